// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows.

use alloc::sync::Arc;
use core::ffi::c_void;

use ndk_abi::ndk::{NDK_MW, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE};

use crate::memory::{Memory, Pd, RemoteMemory};
use crate::object::{Object, entry};
use crate::os::Os;
use crate::{Qp, Status, pending};

/// A memory window: gives the peer of one queue pair access to a part of registered memory.
pub struct Window<O: Os> {
    object: Object<O, NDK_MW>,
    _pd: Arc<Pd<O>>,
}

impl<O: Os> Window<O> {
    /// Creates a window that is not bound (`NdkCreateMw`).
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(pd: &Arc<Pd<O>>) -> Result<Self, Status> {
        let create = entry(pd.object().dispatch().NdkCreateMw)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: the protection domain is open; the context lives until the callback.
            unsafe { create(pd.object().raw(), completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Self { object, _pd: Arc::clone(pd) })
    }

    /// Posts a bind of the window to `length` bytes of `memory` at `offset`, which the peer may read and write. Returns
    /// them for the peer. The completion has the context.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn bind(
        &self,
        qp: &Qp<O>,
        context: usize,
        memory: &Memory<O>,
        offset: usize,
        length: usize,
    ) -> Result<RemoteMemory, Status> {
        let post = entry(qp.object().dispatch().NdkBind)?;
        let token = entry(self.object.dispatch().NdkGetRemoteTokenFromMw)?;
        let (address, flags) =
            (memory.at(offset, length), NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
        let status = self.object.os().call(|| {
            // SAFETY: queue pair, region and window are open.
            unsafe {
                post(
                    qp.raw(),
                    context as *mut c_void,
                    memory.region(),
                    self.object.raw(),
                    address.cast(),
                    length,
                    flags,
                )
            }
        });
        Status(status).check()?;
        // SAFETY: `object` keeps the window open, and the function is a member of its dispatch table.
        let token = self.object.os().call(|| unsafe { token(self.object.raw()) });
        Ok(RemoteMemory { address: address as u64, token, length: length as u64 })
    }

    /// Posts an invalidation of the window.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn invalidate(&self, qp: &Qp<O>, context: usize) -> Result<(), Status> {
        let post = entry(qp.object().dispatch().NdkInvalidate)?;
        // SAFETY: queue pair and window are open.
        let status = self
            .object
            .os()
            .call(|| unsafe { post(qp.raw(), context as *mut c_void, self.object.raw().cast(), 0) });
        Status(status).check()
    }
}
