// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing by the device: programs the IP versions for which the stack has enabled it.

use virtio_net::Error;

use super::adapter::Adapter;
use super::dpc;

/// Has the started device coalesce for the IP versions in force. If this switches coalescing off for a version, the frames in the receive
/// queues are indicated first; only then are further coalesced frames of that version dropped. If the device refuses, coalesced frames that
/// it should not deliver are dropped. Does nothing if the device does not run, because its start calls this again. Waits at most two
/// seconds for the device's answer. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    let port = adapter.port();
    let programmed = port.with_commands(|commands| {
        // Read only with the control queue taken: a later change is programmed by the next user of the queue.
        let wanted = adapter.offloads.coalescing();
        let is_revoking = adapter.coalescing.begin_change(wanted);
        let programmed = commands.set_coalescing(wanted, || port.is_running());
        if programmed == Ok(true) && is_revoking {
            dpc::indicate_received(adapter);
        }
        adapter.coalescing.complete_change(wanted);
        programmed
    });
    match programmed {
        Some(Err(error)) if port.is_running() => Err(error),
        _ => Ok(()),
    }
}
