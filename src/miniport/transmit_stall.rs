// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stalled transmit queues: a watchdog checks whether the device returns transmit slots. A queue that stalls is reset, if the device can do
//! that. A device whose back end takes no frames is no broken one: after five seconds, frames no longer wait for it, and they are sent again
//! once it takes those that it has.

use fallible::{AliasableBox, Arc};

use super::adapter::Adapter;
use super::failure::transmit_has_failed;
use super::send;
use super::transition_requests::reset_stalled;
use crate::events;
use crate::nic::transmit_progress::Progress;
use crate::nic::transmit_watchdog::Watchdog;

/// Starts a watchdog for the transmit queues. If there is no memory for it, a stalled queue is not noticed. Not inlined: together with the
/// caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
pub fn watch(adapter: &AliasableBox<Adapter>) {
    let target = Target(adapter.as_ptr());
    // SAFETY: `take_down` takes the watchdog from all pairs, and so waits for a check that runs, before the adapter is dropped.
    let run = move || check(unsafe { target.adapter() });
    let Some(watchdog) = Watchdog::try_new(run) else { return };
    for pair in adapter.port().pairs() {
        pair.set_watchdog(Some(Arc::clone(&watchdog)));
    }
}

/// The adapter of a watchdog.
struct Target(*const Adapter);

// SAFETY: the pointer is only used to borrow the adapter shared, and the adapter is `Sync`.
unsafe impl Send for Target {}
// SAFETY: shared access only copies the pointer; see `Send` for its use.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// The adapter has not been dropped.
    unsafe fn adapter(&self) -> &Adapter {
        // SAFETY: this function's contract; the adapter is only ever borrowed shared.
        unsafe { &*self.0 }
    }
}

/// Checks whether the device returns transmit slots while its link is up. `DISPATCH_LEVEL`.
fn check(adapter: &Adapter) {
    let port = adapter.port();
    for (number, pair) in (0..).zip(port.pairs()) {
        if transmit_has_failed(adapter, number, pair) {
            continue;
        }
        match pair.check_progress(port.link_up()) {
            Progress::Fine => {}
            Progress::Stalled => reset_stalled(adapter, number),
            Progress::Hung { is_new } => {
                if is_new {
                    events::write(adapter.handle(), events::table::TRANSMIT_STALLED, [number, 0]);
                }
                send::abandon_pair(adapter, pair);
            }
        }
    }
}
