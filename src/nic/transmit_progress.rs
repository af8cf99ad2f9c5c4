// SPDX-License-Identifier: MIT OR Apache-2.0

//! Progress of a transmit queue: whether the device returns slots, or the queue has stalled.

use fallible::Arc;

use super::queue_resets::LastReset;
use super::transmit_watchdog::Watchdog;

/// Number of watchdog checks without a returned slot after which a queue counts as stalled: one second, because RDMA
/// retries for two.
const STALLED_CHECKS: u32 = 4;
/// Number of such checks after which frames no longer wait: five seconds. No checks are made while the virtual machine is suspended.
const HUNG_CHECKS: u32 = 20;

/// Outcome of a check whether the device returns slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The device returns slots, or none is outstanding, or the time is not over.
    Fine,
    /// The device has returned no slot for a second: the queue must be reset.
    Stalled,
    /// The device has returned no slot for five seconds, or longer: frames must not wait. `is_new`: this is the first such check.
    Hung { is_new: bool },
}

/// The watchdog's record of whether the device returns slots.
#[derive(Default)]
pub struct Watch {
    pub watchdog: Option<Arc<Watchdog>>,
    /// [`TransmitQueue::completed`](virtio_net::TransmitQueue::completed) at the last check.
    completed: u64,
    /// Checks since the device last returned a slot, while others were outstanding.
    checks: u32,
    /// The last reset of the queue alone.
    pub last_reset: LastReset,
}

impl Watch {
    /// Checks whether the device has returned slots since the last check, of which it has returned `completed` in all. `is_due`: it is
    /// expected to.
    pub fn check(&mut self, completed: u64, is_due: bool) -> Progress {
        if !is_due || completed != self.completed {
            (self.completed, self.checks) = (completed, 0);
            return Progress::Fine;
        }
        let checks = self.checks.saturating_add(1);
        self.checks = checks;
        match checks {
            STALLED_CHECKS if self.last_reset.take() => Progress::Stalled,
            HUNG_CHECKS.. => Progress::Hung { is_new: checks == HUNG_CHECKS },
            _ => Progress::Fine,
        }
    }

    /// Begins anew: the queue was stopped.
    pub fn clear(&mut self) {
        self.checks = 0;
    }
}
