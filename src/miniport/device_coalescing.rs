// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing by the device: programs the IP versions for which the stack has enabled it.

use virtio_net::Error;

use super::adapter::Adapter;
use super::dpc;
use driver_states::setting::Setting;

/// Takes over the IP versions in force. If this switches coalescing off for a version, the frames in the receive queues are indicated after
/// the device has stopped coalescing, and only then are further coalesced frames of that version divided: those of a device that refuses, or
/// that has not answered in time. `PASSIVE_LEVEL`, one caller at a time.
pub fn changed(adapter: &Adapter) {
    let wanted = adapter.offloads.coalescing();
    let is_revoking = adapter.coalescing.begin_change(wanted);
    adapter.settings.set(adapter.port(), Setting::Coalescing);
    if is_revoking {
        dpc::indicate_received(adapter);
    }
    adapter.coalescing.complete_change(wanted);
}

/// Has the started device coalesce for the IP versions in force. Waits for its answer. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed, or was stopped.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    adapter.port().with_commands(|commands| {
        // Read only now: a later change is programmed next.
        let wanted = adapter.offloads.coalescing();
        commands.set_coalescing(wanted, |waited| adapter.settings.go_on(adapter.port(), waited)).map(drop)
    })
}
