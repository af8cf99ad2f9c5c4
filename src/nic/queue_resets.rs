// SPDX-License-Identifier: MIT OR Apache-2.0

//! Resets of single queues: how often one is reset alone, and which ones wait for it.

/// A queue that needs a reset again within this time after its last one, in nanoseconds, is not reset alone again.
const WINDOW: u64 = 60 * 1_000_000_000;

/// The last reset of a queue alone.
#[derive(Debug, Default)]
pub struct LastReset(Option<u64>);

impl LastReset {
    /// Records a reset now. Returns `false`, and records none, if the last one was within the last minute.
    pub fn take(&mut self) -> bool {
        let now = nt::time::now();
        let may_reset = self.0.is_none_or(|last| now.saturating_sub(last) >= WINDOW);
        if may_reset {
            self.0 = Some(now);
        }
        may_reset
    }
}

/// The queues that are to be reset: by pair, from bit 0 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueResets {
    /// Transmit queues that the device does not serve.
    pub stalled: u32,
    /// Transmit queues whose ring the device has corrupted. They are stopped.
    pub corrupt_transmit: u32,
    /// Receive queues, likewise.
    pub corrupt_receive: u32,
}

impl QueueResets {
    /// Adds a pair to one of the sets. A pair beyond the 32nd is none that the driver uses.
    pub fn add(pairs: &mut u32, pair: u32) {
        *pairs |= 1_u32.checked_shl(pair).unwrap_or(0);
    }

    /// Returns the pairs of a set.
    pub fn pairs(pairs: u32) -> impl Iterator<Item = u16> {
        (0..u32::BITS as u16).filter(move |&pair| pairs & 1_u32.wrapping_shl(pair.into()) != 0)
    }

    /// Adds the queues of `others`.
    pub fn merge(&mut self, others: Self) {
        self.stalled |= others.stalled;
        self.corrupt_transmit |= others.corrupt_transmit;
        self.corrupt_receive |= others.corrupt_receive;
    }

    /// Whether no queue is to be reset.
    pub fn are_none(self) -> bool {
        self == Self::default()
    }
}
