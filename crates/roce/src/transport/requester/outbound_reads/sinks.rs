// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that several outstanding READs write.
//!
//! READs complete in order, and so does what they write: of two READs into the same memory, the later one decides what it
//! holds. So a response is stored before those of earlier READs only if these write other memory. Regions with different keys
//! count as different memory.

use crate::transport::requester::payload::Payload;
use crate::transport::requester::send_queue::{SendQueue, Wqe};
use crate::transport::sequence::Sequence;
use crate::work::Sge;

/// Which READs may be stored before the ones they follow. Each READ is compared with these once.
#[derive(Debug)]
pub(crate) struct ReadSinks {
    /// READs before it write none of the memory of earlier ones.
    checked: Sequence,
    /// The READ at `checked` waits until all before this are complete.
    waits_for: Sequence,
}

impl ReadSinks {
    pub(crate) const NEW: Self = Self { checked: Sequence::ZERO, waits_for: Sequence::ZERO };

    /// Returns whether the response at `sequence` may be stored while the one at `una` is missing. All requests from the oldest
    /// one to its own are READs.
    #[inline]
    pub(crate) fn may_store(&mut self, queue: &SendQueue, una: Sequence, sequence: Sequence) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{SendData, SendFlags, SendOperation, SendRequest};

    const MTU: u32 = 1024;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    /// READs of four packets each, into memory at these addresses.
    fn queue(addresses: &[u64]) -> SendQueue {
        let mut queue = SendQueue::try_new(8, 1, 0).unwrap();
        for &address in addresses {
            let sges = [Sge { address, length: 4 * MTU, key: 7 }];
            let operation = SendOperation::Read { address: 0, key: 0 };
            let (flags, data) = (SendFlags::empty(), SendData::Sges(&sges));
            queue.post(&SendRequest { context: 0, operation, flags, data }, MTU, 1 << 31).unwrap();
        }
        queue
    }

    #[test]
    fn responses_are_stored_before_those_of_reads_into_other_memory() {
        let queue = queue(&[0, 4096, 3 * 4096, 2 * 4096]);
        for sequence in [4, 7, 8, 12, 15] {
            let mut sinks = ReadSinks::NEW;
            assert!(sinks.may_store(&queue, at(0), at(sequence)), "{sequence}");
        }
    }

    #[test]
    fn a_read_into_memory_of_earlier_ones_waits_until_these_are_complete() {
        // The third one writes the last byte of the first one, and all but a byte of the second one.
        let (mut queue, mut sinks) = (queue(&[0, 4096, 4095]), ReadSinks::NEW);
        for sequence in [8, 11, 8] {
            assert!(!sinks.may_store(&queue, at(0), at(sequence)), "{sequence}");
            assert!(sinks.may_store(&queue, at(0), at(5)), "the second one");
        }
        queue.pop();
        for (una, expected) in [(4, false), (7, false), (8, true)] {
            if una == 8 {
                queue.pop();
            }
            assert_eq!(sinks.may_store(&queue, at(una), at(9)), expected, "{una}");
        }
    }
}
