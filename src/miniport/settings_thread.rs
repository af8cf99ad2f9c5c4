// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that programs the [settings](super::device_settings) of an adapter's device. `PASSIVE_LEVEL`.

use fallible::AliasableBox;
use virtio_net::Error;

use super::adapter::Adapter;
use super::failure::device_failed;
use super::{announce, device_coalescing, device_filter, device_interrupts, device_rss};
use crate::{driver_object, events};
use driver_states::setting::Setting;

/// Starts the thread of an adapter whose device has a control queue. Returns `false` without memory. Not inlined: together with the
/// caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
pub fn start(adapter: &AliasableBox<Adapter>) -> bool {
    if !adapter.port().has_commands() {
        return true;
    }
    adapter.settings.starting();
    let target = Target(adapter.as_ptr());
    let started = nt::start_thread(driver_object::get(), move || target.run());
    if started.is_err() {
        adapter.settings.not_started();
    }
    started.is_ok()
}

/// The thread's reference to its adapter.
struct Target(*const Adapter);

// SAFETY: the pointer is only used to borrow the adapter shared, and the adapter is `Sync`.
unsafe impl Send for Target {}

impl Target {
    fn run(self) {
        // SAFETY: `take_down` waits for the end of `DeviceSettings::run` before the adapter is dropped.
        let adapter = unsafe { &*self.0 };
        adapter.settings.run(adapter.port(), |setting| program(adapter, setting));
    }
}

/// Programs a setting into the device. Returns whether it has answered; a device that has failed is reset, one that refuses is not.
fn program(adapter: &Adapter, setting: Setting) -> bool {
    let port = adapter.port();
    let outcome = match setting {
        Setting::Pairs => port.use_all_pairs(|waited| adapter.settings.go_on(port, waited)),
        Setting::Scaling => device_rss::program(adapter),
        Setting::Filter => device_filter::program(adapter),
        Setting::Coalescing => device_coalescing::program(adapter),
        Setting::Interrupts => device_interrupts::program(adapter),
        Setting::Announcement => announce::acknowledge(adapter),
    };
    match outcome {
        Ok(()) => true,
        // A filter stays narrower than is wanted. That is no reason to end connections by a reset, after which the device may refuse as well.
        Err(error @ Error::CommandRefused) => {
            events::device_failed(adapter.handle(), error);
            true
        }
        Err(error) => {
            if error != Error::OutOfOrder && port.is_running() {
                device_failed(adapter, error);
            }
            false
        }
    }
}
