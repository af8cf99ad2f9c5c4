// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failure of the device: it violated the format of a ring, reported that it needs a reset, did not answer, or was removed. IRQL <=
//! `DISPATCH_LEVEL`.

use ndk_abi::ndis::NdisMRemoveMiniport;
use virtio_net::Error;

use super::adapter::Adapter;
use super::send;
use super::transition_requests::recover;
use crate::events;
use driver_states::device::DeviceEvent;

/// Handles a failed device: logs an event once, aborts all pending work, and reports that the link is down. Then a work item resets the
/// device, or, if the device is gone, NDIS removes the adapter. IRQL <= `DISPATCH_LEVEL`.
//= R-PNP-8
pub fn device_failed(adapter: &Adapter, error: Error) {
    let gone = error == Error::Removed;
    if !adapter.port().step(if gone { DeviceEvent::Remove } else { DeviceEvent::Fail }) {
        return;
    }
    events::device_failed(adapter.handle(), error);
    adapter.ndk().lose();
    send::abandon(adapter);
    adapter.indicate_link();
    if gone {
        remove(adapter);
    } else {
        recover(adapter);
    }
}

/// Has NDIS remove the adapter.
pub fn remove(adapter: &Adapter) {
    // An error means that NDIS is removing the adapter already.
    // SAFETY: the handle is NDIS's of an adapter that is not halted, because callers borrow it; no lock is held.
    let _ = unsafe { NdisMRemoveMiniport(adapter.handle()) };
}
