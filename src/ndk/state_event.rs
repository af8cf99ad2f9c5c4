// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event of the system log that says whether RDMA is on, with which path MTU, or why it is off. `PASSIVE_LEVEL`.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;

use driver_states::rate_limit::RateLimit;
use ndk_abi::ndis::NDIS_HANDLE;

use crate::events::{self, table};

/// Whether RDMA is on, and why not.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Situation {
    On = 1,
    OffByKeyword = 2,
    OffByWindows = 3,
    /// The device does not work, or consumers have not closed since then.
    OffByDevice = 4,
}

/// The state of RDMA of an adapter, as its event log has it.
pub struct StateEvent {
    /// The path MTU. The smallest one fits each MTU that the adapter can have.
    path_mtu: u32,
    /// The adapter's MTU.
    mtu: u32,
    /// The configured path MTU.
    configured: u32,
    /// The number of the situation that was written last; 0 if there is none.
    written: AtomicU8,
    /// The number of the last situation, written or not.
    last: AtomicU8,
    /// The event of that one was left out, because such events came too often.
    omitted: AtomicBool,
}

impl StateEvent {
    /// Time after which an event that was left out can be written.
    pub const RETRY: Duration = Duration::from_nanos(RateLimit::INTERVAL);

    pub const fn new(path_mtu: u32, mtu: u32, configured: u32) -> Self {
        let (written, last, omitted) = (AtomicU8::new(0), AtomicU8::new(0), AtomicBool::new(false));
        Self { path_mtu, mtu, configured, written, last, omitted }
    }

    /// Returns whether the last event was left out. It is to be written after [`RETRY`](Self::RETRY), so that the log ends with the state.
    pub fn is_omitted(&self) -> bool {
        self.omitted.load(Ordering::Relaxed)
    }

    /// Allows that the event that was left out is written.
    pub fn retry(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Writes the situation, unless the log says so already, or the event was left out. One caller at a time.
    pub fn write(&self, handle: NDIS_HANDLE, situation: Situation, open_adapters: usize) {
        if self.last.swap(situation as u8, Ordering::Relaxed) == situation as u8 {
            return;
        }
        if self.written.load(Ordering::Relaxed) == situation as u8 {
            self.omitted.store(false, Ordering::Relaxed);
            return;
        }
        let of_mtu = [self.mtu, self.configured];
        let (event, data) = match situation {
            Situation::On => (self.on(), of_mtu),
            Situation::OffByKeyword => (table::RDMA_OFF_KEYWORD, [0; 2]),
            Situation::OffByWindows => (table::RDMA_OFF_WINDOWS, [0; 2]),
            Situation::OffByDevice => {
                (table::RDMA_OFF_DEVICE, [u32::try_from(open_adapters).unwrap_or(u32::MAX), 0])
            }
        };
        let is_written = events::write(handle, event, data);
        if is_written {
            self.written.store(situation as u8, Ordering::Relaxed);
        }
        self.omitted.store(!is_written, Ordering::Relaxed);
    }

    /// Returns the event of RDMA that is on.
    const fn on(&self) -> table::Event {
        match self.path_mtu {
            4096.. => table::RDMA_ON_4096,
            2048.. => table::RDMA_ON_2048,
            1024.. => table::RDMA_ON_1024,
            512.. => table::RDMA_ON_512,
            _ => table::RDMA_ON_256,
        }
    }
}
