//! What NDIS's handlers call with a consumer's pointer.

use super::object;
use crate::adapter::Adapter;
use crate::provider::Provider;
use ndk_abi::ndk::NDK_ADAPTER;

impl Provider {
    /// `CloseNDKAdapterHandler`: returns when everything opened below the adapter is closed, and the last
    /// callback has returned. An adapter of another provider is left alone. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `adapter` was handed out by [`Provider::open`] of some provider of this driver, and is closed once.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let adapter = object!(Adapter, adapter, or return);
        self.close_adapter(&adapter);
    }
}
