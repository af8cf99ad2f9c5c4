// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts that all identifiers share: one for each device, with a protection domain. They are open until the process ends.

use core::ffi::c_int;
use core::net::IpAddr;
use std::collections::HashMap;

use parking_lot::Mutex;
use verbs_core::Error;

use crate::abi::context::IbvContext;
use crate::abi::objects::IbvPd;
use crate::{device, errno, open, pd};

/// A context and its protection domain, by address: pointers that programs get.
#[derive(Clone, Copy)]
pub struct OpenDevice {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
}

// SAFETY: the pointers are handles, which any thread may use.
unsafe impl Send for OpenDevice {}

static OPEN: Mutex<Option<HashMap<IpAddr, OpenDevice>>> = Mutex::new(None);

/// Returns the context of an address.
///
/// # Errors
/// [`Error::NoDevice`]; those of opening a device.
pub fn of(address: IpAddr) -> Result<OpenDevice, Error> {
    let mut all = OPEN.lock();
    let all = all.get_or_insert_default();
    if let Some(shared) = all.get(&address) {
        return Ok(*shared);
    }
    let listed = device::all().iter().find(|listed| listed.address() == address);
    let context = open::open(listed.ok_or(Error::NoDevice)?)?;
    let shared = OpenDevice { context, pd: pd::create(context)? };
    all.insert(address, shared);
    Ok(shared)
}

/// Returns the contexts of all devices; the list ends with a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut IbvContext {
    let opened: Vec<_> = device::all()
        .iter()
        .filter_map(|listed| of(listed.address()).ok())
        .map(|shared| shared.context)
        .collect();
    if opened.is_empty() {
        return errno::pointer(Err(Error::NoDevice));
    }
    let count = opened.len();
    let bytes = (count + 1) * size_of::<*mut IbvContext>();
    // SAFETY: the call takes no pointer.
    let list = unsafe { libc::calloc(1, bytes) }.cast::<*mut IbvContext>();
    if list.is_null() {
        return errno::pointer(Err(Error::OutOfMemory));
    }
    for (at, context) in opened.into_iter().enumerate() {
        let place = list.wrapping_add(at);
        // SAFETY: within the list, whose last entry stays null.
        unsafe { place.write(context) };
    }
    if !num_devices.is_null() {
        // SAFETY: the program passes null or a number that the call may write.
        unsafe { num_devices.write(c_int::try_from(count).unwrap_or(c_int::MAX)) };
    }
    list
}

/// Frees a list of `rdma_get_devices`. The contexts stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut IbvContext) {
    // SAFETY: `rdma_get_devices` has allocated the list with the C library.
    unsafe { libc::free(list.cast()) };
}
