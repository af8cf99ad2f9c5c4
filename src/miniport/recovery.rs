// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recovery of a device that failed, of stalled transmit queues, and the start after a reset. `PASSIVE_LEVEL`.
//!
//! A reset stops the device, which loses its state, and initializes it again with the same queues. Each step is bounded.

use core::time::Duration;

use virtio_net::Error;

use super::adapter::Adapter;
use super::failure::{device_failed, remove};
use super::transition_requests::announce_if_asked;
use super::{configuration_change, device_settings, send};
use crate::events;
use driver_states::device::{DeviceEvent, DeviceState};

/// Time that consumers have to close their NDK adapters before the device loses its state.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Resets the device after a failure.
//= R-PNP-4
pub fn reset(adapter: &Adapter) {
    adapter.ndk().suspend(CLOSE_LIMIT);
    adapter.port().stop();
    adapter.transitions.forget_stalled();
    if restart(adapter) {
        events::write(adapter.handle(), events::table::RECOVERED, [0, 0]);
    }
}

/// Has the device reset its stalled transmit queues. A device that cannot reset queues is reset as a whole later,
/// unless it serves them again.
pub fn stalled(adapter: &Adapter, pairs: u32) {
    for number in (0..u32::BITS).filter(|&number| pairs & 1_u32.wrapping_shl(number) != 0) {
        match adapter.port().reset_transmit_queue(number as u16) {
            Ok(()) => events::write(adapter.handle(), events::table::QUEUE_RESET, [number, 0]),
            Err(Error::OutOfOrder) => {}
            Err(_) => device_failed(adapter, Error::TransmitStalled),
        }
    }
    // A configuration interrupt may have been missed while the registers were in use here.
    configuration_change::handle(adapter);
}

/// Starts the stopped device. If that fails, removes the adapter and returns `false`.
//= R-PNP-16
pub fn restart(adapter: &Adapter) -> bool {
    if let Err(error) = adapter.port().restart().and_then(|_| device_settings::program(adapter)) {
        if adapter.port().state() != DeviceState::Absent {
            events::device_failed(adapter.handle(), error);
        }
        give_up(adapter);
        return false;
    }
    adapter.indicate_link();
    announce_if_asked(adapter);
    adapter.ndk().resume();
    true
}

/// Gives up the device: has NDIS remove the adapter.
pub fn give_up(adapter: &Adapter) {
    if adapter.port().step(DeviceEvent::Remove) {
        events::write(adapter.handle(), events::table::GIVEN_UP, [0, 0]);
        send::abandon(adapter);
        remove(adapter);
    }
}
