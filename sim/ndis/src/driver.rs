// SPDX-License-Identifier: MIT OR Apache-2.0

//! A registered miniport driver.

use std::sync::{Arc, atomic::AtomicU32};

use ndk_abi::{
    ndis::NDIS_MINIPORT_DRIVER_CHARACTERISTICS, ndk::NDIS_NDK_PROVIDER_CHARACTERISTICS, nt::DRIVER_OBJECT,
};
use nt_sim::{BugCheck, Host, Tolerance, Tolerances, guest::Guest, services::Slot, verifier::undocumented};
use parking_lot::Mutex;

/// The miniport drivers of a host, in the order they registered.
pub(crate) static DRIVERS: Slot<Mutex<Vec<Arc<Driver>>>> = Slot::new();

/// Returns the miniport drivers of a host, in the order they registered.
pub(crate) fn drivers(host: &Host) -> Vec<Arc<Driver>> {
    host.state(&DRIVERS).lock().clone()
}

/// Returns the miniport driver with this driver object.
pub(crate) fn of_object(host: &Host, object: Guest<DRIVER_OBJECT>) -> Option<Arc<Driver>> {
    drivers(host).into_iter().find(|driver| driver.object == object)
}

/// A registered miniport driver.
pub struct Driver {
    pub handle: usize,
    pub context: usize,
    pub characteristics: NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    /// The NDK provider's handlers.
    pub ndk: Mutex<Option<NDIS_NDK_PROVIDER_CHARACTERISTICS>>,
    pub(crate) object: Guest<DRIVER_OBJECT>,
    pub(crate) setting_options: Mutex<bool>,
    /// Work items that are queued or whose routine is running.
    pub(crate) work: AtomicU32,
}

impl Driver {
    /// Reports what no documentation forbids: a violation unless it is tolerated of the driver's image.
    pub(crate) fn undocumented(&self, host: &Host, fault: Tolerance, text: &str) {
        let of_driver = host.drivers().into_iter().find(|driver| driver.object() == self.object);
        let tolerates = of_driver.map_or(Tolerances::NONE, |driver| driver.image().tolerates());
        undocumented(fault, tolerates, BugCheck::BUGCODE_NDIS_DRIVER, text);
    }
}

// SAFETY: function pointers and addresses of the image, used on the host's threads only.
unsafe impl Send for Driver {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Driver {}
