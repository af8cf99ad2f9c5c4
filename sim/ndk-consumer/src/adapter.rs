//! An open adapter.

use core::ptr::NonNull;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_INFO};

use crate::Status;
use crate::object::{NdkObject, Object, entry};
use crate::os::Os;

/// An adapter that somebody else opened and will close, after this value and everything made of it.
pub struct Adapter<O: Os> {
    object: Object<O, NDK_ADAPTER>,
}

impl<O: Os> Adapter<O> {
    /// # Safety
    /// `raw` is an adapter opened for this consumer; it stays open until the value returned here and
    /// every object created through it is gone.
    pub unsafe fn new(os: &Arc<O>, raw: NonNull<NDK_ADAPTER>) -> Arc<Self> {
        // SAFETY: the caller's promise; adapters have no close of their own.
        Arc::new(Self { object: unsafe { Object::new(os, raw) } })
    }

    /// Limits and abilities. `PASSIVE_LEVEL`.
    pub fn info(&self) -> Result<NDK_ADAPTER_INFO, Status> {
        let query = entry(self.object.dispatch().NdkQueryAdapterInfo)?;
        let mut info = NDK_ADAPTER_INFO::zeroed();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        self.os()
            .call(|| {
                // SAFETY: the adapter is open; `info` has the size said.
                Status(unsafe { query(self.raw(), &raw mut info, &raw mut size) })
            })
            .check()?;
        Ok(info)
    }

    /// The NDKPI version it was opened at, major and minor.
    pub fn version(&self) -> (u16, u16) {
        // SAFETY: the adapter is open, and its header does not change.
        let adapter = unsafe { &*self.raw() };
        (adapter.header().Version.Major, adapter.header().Version.Minor)
    }

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
