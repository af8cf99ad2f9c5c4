// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that several outstanding READs write.
//!
//! READs complete in order, and so does what they write: of two READs into the same memory, the later one decides what it
//! holds. So a response is stored before those of earlier READs only if these write other memory. Regions with different keys
//! count as different memory.

use super::send_queue::{Payload, SendQueue, Wqe};
use super::sequence::Sequence;
use crate::work::Sge;

/// Which READs may be stored before the ones they follow. Each READ is compared with these once.
#[derive(Debug)]
pub(super) struct ReadSinks {
    /// READs before it write none of the memory of earlier ones.
    checked: Sequence,
    /// The READ at `checked` waits until all before this are complete.
    waits_for: Sequence,
}

impl ReadSinks {
    pub(super) const NEW: Self = Self { checked: Sequence::ZERO, waits_for: Sequence::ZERO };

    /// Returns whether the response at `sequence` may be stored while the one at `una` is missing. All requests from the oldest
    /// one to its own are READs.
    #[inline]
    pub(super) fn may_store(&mut self, queue: &SendQueue, una: Sequence, sequence: Sequence) -> bool {
        sequence < self.checked || una >= self.waits_for && self.check(queue, sequence)
    }

    /// Compares READs that were not compared yet with those before them. These were all requested, so that they are 16 of up to 32
    /// elements at most with the limits of the driver: 120 pairs of READs, and each pair once.
    #[inline(never)]
    fn check(&mut self, queue: &SendQueue, sequence: Sequence) -> bool {
        let reads = || (0..u32::from(u8::MAX)).map_while(|index| queue.get(index));
        let checked = self.checked;
        for later in reads().skip_while(|wqe| wqe.end() <= checked) {
            if later.first > sequence {
                break;
            }
            let mut before = reads().take_while(|wqe| wqe.first < later.first);
            if let Some(earlier) = before.find(|earlier| overlap(queue, earlier, later)) {
                self.waits_for = earlier.end();
                return false;
            }
            self.checked = later.end();
        }
        sequence < self.checked
    }
}

/// Returns whether two READs write the same memory.
fn overlap(queue: &SendQueue, one: &Wqe, other: &Wqe) -> bool {
    let (Payload::Sges(one), Payload::Sges(other)) = (queue.payload(one), queue.payload(other)) else {
        return true;
    };
    one.iter().any(|one| other.iter().any(|other| shares_bytes(one, other)))
}

fn shares_bytes(one: &Sge, other: &Sge) -> bool {
    one.key == other.key
        && (one.address.wrapping_sub(other.address) < u64::from(other.length)
            || other.address.wrapping_sub(one.address) < u64::from(one.length))
}
