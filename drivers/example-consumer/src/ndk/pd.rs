// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains.

use driver_support::status::Result;
use fallible::Arc;
use ndk_abi::ndk::NDK_PD;

use super::adapter::Adapter;
use super::object::{Object, entry};
use super::pending;

/// A protection domain.
pub struct Pd {
    object: Object<NDK_PD>,
    /// Names all of memory by logical addresses. Not for peers.
    privileged_token: u32,
    // Declared after the object: closed after it.
    adapter: Arc<Adapter>,
}

impl Pd {
    /// Creates a protection domain. `PASSIVE_LEVEL`.
    pub fn new(adapter: &Arc<Adapter>) -> Result<Self> {
        let create = entry(adapter.dispatch().NdkCreatePd)?;
        let object = Object::<NDK_PD>::create(|| {
            pending::create(|completion, context, into| {
                // SAFETY: the adapter is open; the context lives until the completion.
                unsafe { create(adapter.raw(), completion, context, into) }
            })
        })?;
        let token = entry(object.dispatch().NdkGetPrivilegedMemoryRegionToken)?;
        let mut privileged_token = 0;
        // SAFETY: the protection domain is open.
        unsafe { token(object.raw(), &raw mut privileged_token) };
        Ok(Self { object, privileged_token, adapter: Arc::clone(adapter) })
    }

    pub fn privileged_token(&self) -> u32 {
        self.privileged_token
    }

    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub fn object(&self) -> &Object<NDK_PD> {
        &self.object
    }
}
