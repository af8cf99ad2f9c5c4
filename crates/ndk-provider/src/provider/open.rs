// SPDX-License-Identifier: MIT OR Apache-2.0

//! `OpenNDKAdapterHandler` and `CloseNDKAdapterHandler`.

use super::Provider;
use crate::base::object::{Borrow, ObjectType, Ref};
use crate::base::version;
use crate::objects::adapter::Adapter;
use core::sync::atomic::Ordering;
use fallible::Arc;
use ndk_abi::ndis::{
    NDIS_STATUS, NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES,
};
use ndk_abi::ndk::{NDK_ADAPTER, NDK_VERSION};

impl Provider {
    /// `OpenNDKAdapterHandler`: opens an NDK adapter. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// `NDIS_STATUS_BAD_VERSION` if the version is not supported, `NDIS_STATUS_ADAPTER_NOT_READY` if the
    /// provider is not enabled, `NDIS_STATUS_RESOURCES` without memory.
    //= R-OPEN-8, R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-12, R-OPEN-16, R-OPEN-17, R-OPEN-23
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        let version = version::negotiate(version).ok_or(NDIS_STATUS_BAD_VERSION)?;
        self.open_adapters.fetch_add(1, Ordering::AcqRel);
        //= R-OPEN-30
        // Counted before the check: a caller that disables the provider and then sees no open adapter will see
        // none later.
        if !self.is_enabled() {
            self.open_adapters.fetch_sub(1, Ordering::AcqRel);
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        let created = Adapter::create(&self.state, version).map_err(|_| {
            self.open_adapters.fetch_sub(1, Ordering::AcqRel);
            NDIS_STATUS_RESOURCES
        })?;
        Ok(created.publish())
    }

    /// `CloseNDKAdapterHandler`: returns when everything opened below the adapter is closed and the last
    /// callback has returned. Ignores an adapter of another provider. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `adapter` was returned by [`Provider::open`] of some provider of this driver, and is closed once.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: by this function's contract a provider of this driver published the adapter, and it is not closed before this.
        if let Some(adapter) = unsafe { Borrow::<Adapter>::new(adapter) } {
            self.close_adapter(&adapter);
        }
    }

    //= R-OPEN-24, R-OPEN-25, R-OPEN-26, R-OPEN-40
    //= R-OPEN-28
    fn close_adapter(&self, adapter: &Ref<Adapter>) {
        if Arc::ptr_eq(adapter.provider(), &self.state) {
            if let Some(checker) = &self.state.checker {
                checker.close_begins(Adapter::TYPE, adapter.as_ptr().cast());
            }
            Adapter::close(adapter);
            self.open_adapters.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
