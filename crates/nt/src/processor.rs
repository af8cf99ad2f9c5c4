// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processors of all groups, by the index that the system gives each of them.

use ndk_abi::nt::PROCESSOR_NUMBER;

use crate::sys;

/// Returns the number of active processors. Any IRQL.
#[must_use]
pub fn count() -> u32 {
    sys::processor_count()
}

/// Returns the index of the calling processor, on which the caller stays while it is at `DISPATCH_LEVEL`. Any IRQL.
#[must_use]
pub fn current() -> u32 {
    sys::current_processor()
}

/// Returns the index of processor `number` of `group`; `None` if it is not active. Any IRQL.
#[must_use]
pub fn index(group: u16, number: u8) -> Option<u32> {
    sys::processor_index(group, number)
}

/// Returns group and number of the processor with this index; `None` if it is not active. Any IRQL.
#[must_use]
pub fn number(index: u32) -> Option<PROCESSOR_NUMBER> {
    sys::processor_number(index)
}

/// Keeps the calling thread on one processor while it lives.
pub(crate) struct OnProcessor {
    previous: sys::Affinity,
    /// An affinity belongs to a thread.
    not_send: core::marker::PhantomData<*const ()>,
}

impl OnProcessor {
    /// Moves the calling thread to the processor with this index. It stays where it is if there is none. `PASSIVE_LEVEL`.
    pub(crate) fn new(index: u32) -> Self {
        Self { previous: sys::bind_thread(index), not_send: core::marker::PhantomData }
    }
}

impl Drop for OnProcessor {
    fn drop(&mut self) {
        sys::unbind_thread(&mut self.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbered_within_groups() {
        assert_eq!(index(0, 0), Some(0));
        assert_eq!(index(0, u8::try_from(count()).unwrap()), None);
        assert_eq!(index(7, 0), None);
    }

    #[test]
    fn thread_returns_from_the_processor_that_it_was_moved_to() {
        let last = count() - 1;
        {
            let _moved = OnProcessor::new(last);
            assert_eq!(current(), last);
        }
        assert_eq!(current(), 0);
    }
}
