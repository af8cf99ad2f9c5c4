// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapters of the driver, for a debugger: `viordma.js` of the package finds them by the name of the variable.

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::adapter::Adapter;

/// Largest number of adapters in the list. A debugger finds more by their address only.
const MAX: usize = 16;

/// The initialized adapters; null where there is none. The driver does not read it, which `used` keeps the compiler from noticing.
#[used]
static ADAPTERS: [AtomicPtr<Adapter>; MAX] = [const { AtomicPtr::new(null_mut()) }; MAX];

/// Adds an adapter, if there is room.
pub(super) fn add(adapter: &Adapter) {
    replace(null_mut(), from_ref(adapter).cast_mut());
}

/// Removes an adapter, before it is dropped.
pub(super) fn remove(adapter: &Adapter) {
    replace(from_ref(adapter).cast_mut(), null_mut());
}

fn replace(from: *mut Adapter, to: *mut Adapter) {
    for entry in &ADAPTERS {
        if entry.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}
