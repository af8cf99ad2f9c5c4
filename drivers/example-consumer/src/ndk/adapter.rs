// SPDX-License-Identifier: MIT OR Apache-2.0

//! An open NDK adapter.

use core::ptr::NonNull;

use driver_support::status::{Result, check, no_memory};
use driver_support::wsk::Wsk;
use fallible::Arc;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO};

use super::object::entry;

/// An open adapter. Dropping it closes it, at `PASSIVE_LEVEL`; all its objects are closed before, because each has a
/// reference to it.
pub struct Adapter {
    raw: NonNull<NDK_ADAPTER>,
    wsk: Arc<Wsk>,
}

// SAFETY: an adapter may be used from any thread.
unsafe impl Send for Adapter {}
// SAFETY: NDKPI allows calls on one adapter from several threads at a time.
unsafe impl Sync for Adapter {}

impl Adapter {
    /// Opens an adapter of the interface with this index. `PASSIVE_LEVEL`.
    pub fn open(wsk: &Arc<Wsk>, interface: u32) -> Result<Arc<Self>> {
        let adapter = Self { raw: wsk.open(interface)?, wsk: Arc::clone(wsk) };
        Arc::try_new(adapter).map_err(no_memory)
    }

    /// Returns the adapter's limits. `PASSIVE_LEVEL`.
    pub fn info(&self) -> Result<NDK_ADAPTER_INFO> {
        let query = entry(self.dispatch().NdkQueryAdapterInfo)?;
        let mut info = NDK_ADAPTER_INFO::zeroed();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        // SAFETY: the adapter is open; `info` has `size` bytes.
        check(unsafe { query(self.raw(), &raw mut info, &raw mut size) })?;
        Ok(info)
    }

    pub fn raw(&self) -> *mut NDK_ADAPTER {
        self.raw.as_ptr()
    }

    pub fn dispatch(&self) -> &NDK_ADAPTER_DISPATCH {
        // SAFETY: the adapter is open as long as this value exists, and a provider does not move or change its
        // header.
        let table = unsafe { self.raw.as_ref() }.Dispatch;
        // SAFETY: a dispatch table is valid as long as the adapter is open.
        unsafe { &*table }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; every object of it has had a reference, so all are closed.
        unsafe { self.wsk.close(self.raw) };
    }
}
