// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration interrupts: the link has changed, the device asks for an announcement, or it has failed.

use super::adapter::Adapter;
use super::failure::device_failed;
use super::send;
use super::transition_requests::announce_if_asked;

/// Handles a configuration interrupt: a change of the link, a request for an announcement, or a failure of the device. IRQL <=
/// `DISPATCH_LEVEL`.
pub fn handle(adapter: &Adapter) {
    let changed = adapter.port().configuration_changed();
    announce_if_asked(adapter);
    match changed {
        Ok(true) => {
            if !adapter.port().link_up() {
                send::abandon(adapter);
            }
            adapter.indicate_link();
        }
        Ok(false) => {}
        Err(error) => device_failed(adapter, error),
    }
}
