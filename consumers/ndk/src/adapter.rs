// SPDX-License-Identifier: MIT OR Apache-2.0

//! An open adapter.

use alloc::sync::Arc;
use core::ptr::NonNull;

use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_INFO};

use crate::Status;
use crate::object::{NdkObject, Object, entry};
use crate::os::Os;

/// An open adapter. The caller opened it and closes it after this value and all objects created through it.
pub struct Adapter<O: Os> {
    object: Object<O, NDK_ADAPTER>,
}

impl<O: Os> Adapter<O> {
    /// Wraps an open adapter.
    ///
    /// # Safety
    /// `raw` is an adapter opened for this consumer; it stays open until the value returned here and
    /// every object created through it is gone.
    pub unsafe fn new(os: &Arc<O>, raw: NonNull<NDK_ADAPTER>) -> Arc<Self> {
        // SAFETY: open by the contract of this function; adapters have no close function.
        Arc::new(Self { object: unsafe { Object::new(os, raw) } })
    }

    /// Returns limits and capabilities (`NdkQueryAdapterInfo`). `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn info(&self) -> Result<NDK_ADAPTER_INFO, Status> {
        let query = entry(self.object.dispatch().NdkQueryAdapterInfo)?;
        let mut info = NDK_ADAPTER_INFO::zeroed();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        self.os()
            .call(|| {
                // SAFETY: the adapter is open; `info` has `size` bytes.
                Status(unsafe { query(self.raw(), &raw mut info, &raw mut size) })
            })
            .check()?;
        Ok(info)
    }

    /// Returns the NDKPI version of the adapter, major and minor.
    #[must_use]
    pub fn version(&self) -> (u16, u16) {
        // SAFETY: the adapter is open, and its header does not change.
        let adapter = unsafe { &*self.raw() };
        (adapter.header().Version.Major, adapter.header().Version.Minor)
    }

    /// Returns the system.
    #[must_use]
    pub fn os(&self) -> &Arc<O> {
        self.object.os()
    }

    pub(crate) fn raw(&self) -> *mut NDK_ADAPTER {
        self.object.raw()
    }

    pub(crate) fn object(&self) -> &Object<O, NDK_ADAPTER> {
        &self.object
    }
}
