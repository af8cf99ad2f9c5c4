// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions for fast registration.

use driver_support::status::Result;
use ndk_abi::ndk::{NDK_MR, NDK_OBJECT_HEADER};
use ndk_abi::nt::STATUS_INTERNAL_ERROR;

use super::object::{Object, entry};
use super::pd::Pd;
use super::pending;

/// A memory region that requests register and invalidate.
pub struct Region {
    object: Object<NDK_MR>,
    remote_token: u32,
}

/// A range of memory that a peer may access.
#[derive(Clone, Copy)]
pub struct Target {
    pub address: u64,
    pub token: u32,
    /// Length in bytes.
    pub length: u32,
}

impl Region {
    /// Creates a region for up to `pages` pages, with remote access. `PASSIVE_LEVEL`.
    pub fn new(pd: &Pd, pages: u32) -> Result<Self> {
        let create = entry(pd.object().dispatch().NdkCreateMr)?;
        let object = Object::<NDK_MR>::create(|| {
            pending::create(|completion, context, into| {
                // SAFETY: the protection domain is open; the context lives until the completion.
                unsafe { create(pd.object().raw(), 1, completion, context, into) }
            })
        })?;
        let initialize = entry(object.dispatch().NdkInitializeFastRegisterMr)?;
        pending::request(|completion, context| {
            // SAFETY: the region is open and not registered; the context lives until the completion.
            unsafe { initialize(object.raw(), pages, 1, completion, context) }
        })?;
        let token = entry(object.dispatch().NdkGetRemoteTokenFromMr)?;
        // SAFETY: the region is initialized. Its token stays the same over all registrations.
        let remote_token = unsafe { token(object.raw()) };
        if remote_token == 0 {
            return Err(STATUS_INTERNAL_ERROR);
        }
        Ok(Self { object, remote_token })
    }

    /// Returns the token for the peer.
    pub fn remote_token(&self) -> u32 {
        self.remote_token
    }

    pub fn raw(&self) -> *mut NDK_MR {
        self.object.raw()
    }

    pub fn header(&self) -> *mut NDK_OBJECT_HEADER {
        self.object.raw().cast()
    }

    /// Closes the region without waiting; the close of the protection domain waits for it. IRQL <= `DISPATCH_LEVEL`.
    pub fn close_unwaited(self) {
        self.object.close_unwaited();
    }
}
