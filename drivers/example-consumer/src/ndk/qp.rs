// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs, and posts to them.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};

use driver_support::status::{Result, check};
use ndk_abi::ndk::{NDK_LOGICAL_ADDRESS, NDK_MR, NDK_OBJECT_HEADER, NDK_QP, NDK_QP_DISPATCH, NDK_SGE};

use super::cq::Cq;
use super::object::{NdkObject, Object, entry};
use super::pd::Pd;
use super::pending;
use super::region::Target;

/// Depths of a queue pair's queues in requests, and scatter/gather entries of a request.
#[derive(Clone, Copy)]
pub struct QpLimits {
    pub receives: u32,
    pub initiator: u32,
    pub receive_entries: u32,
    pub initiator_entries: u32,
}

/// A queue pair. Dropping it closes it.
pub struct Qp {
    object: Object<NDK_QP>,
}

/// Posts to a queue pair. Every function may be called at IRQL <= `DISPATCH_LEVEL`; posts to the receive queue,
/// and posts to the initiator queue, must not be concurrent.
pub struct Poster(NonNull<NDK_QP>);

// SAFETY: a queue pair may be used from any thread; the users serialize posts.
unsafe impl Send for Poster {}
// SAFETY: a shared reference posts only, and its users serialize posts.
unsafe impl Sync for Poster {}

impl Qp {
    /// Creates a queue pair. `PASSIVE_LEVEL`.
    pub fn new(pd: &Pd, receive_cq: &Cq, initiator_cq: &Cq, limits: QpLimits) -> Result<Self> {
        let create = entry(pd.object().dispatch().NdkCreateQp)?;
        let object = Object::<NDK_QP>::create(|| {
            pending::create(|completion, context, into| {
                // SAFETY: protection domain and completion queues are open and outlive the queue pair; the context
                // lives until the completion.
                unsafe {
                    create(
                        pd.object().raw(),
                        receive_cq.raw(),
                        initiator_cq.raw(),
                        null_mut(),
                        limits.receives,
                        limits.initiator,
                        limits.receive_entries,
                        limits.initiator_entries,
                        0,
                        completion,
                        context,
                        into,
                    )
                }
            })
        })?;
        Ok(Self { object })
    }

    pub fn raw(&self) -> *mut NDK_QP {
        self.object.raw()
    }

    pub fn close(&self) {
        self.object.close();
    }

    /// Returns what posts to the queue pair.
    ///
    /// # Safety
    /// It is not used after the queue pair is closed.
    pub unsafe fn poster(&self) -> Option<Poster> {
        NonNull::new(self.object.raw()).map(Poster)
    }
}

impl Poster {
    fn table(&self) -> &NDK_QP_DISPATCH {
        // SAFETY: the queue pair is open, by the contract of `Qp::poster`.
        let table = unsafe { self.0.as_ref() }.dispatch();
        // SAFETY: a dispatch table is valid as long as objects refer to it.
        unsafe { &*table }
    }

    /// Posts a receive.
    pub fn receive(&self, context: usize, entries: &[NDK_SGE]) -> Result {
        let receive = entry(self.table().NdkReceive)?;
        let (context, count) = (context as *mut c_void, entries.len() as u32);
        // SAFETY: the queue pair is open; the entries are used during the call only.
        check(unsafe { receive(self.0.as_ptr(), context, entries.as_ptr(), count) })
    }

    /// Posts a message.
    pub fn send(&self, context: usize, entries: &[NDK_SGE], flags: u32) -> Result {
        let send = entry(self.table().NdkSend)?;
        let (context, count) = (context as *mut c_void, entries.len() as u32);
        // SAFETY: the queue pair is open while this value exists, and the provider copies the entries before it
        // returns.
        check(unsafe { send(self.0.as_ptr(), context, entries.as_ptr(), count, flags) })
    }

    /// Posts a message that invalidates a token of the peer.
    pub fn send_and_invalidate(&self, context: usize, entries: &[NDK_SGE], flags: u32, token: u32) -> Result {
        let send = entry(self.table().NdkSendAndInvalidate)?;
        let (context, count) = (context as *mut c_void, entries.len() as u32);
        // SAFETY: the queue pair is open while this value exists, and the provider copies the entries before it
        // returns.
        check(unsafe { send(self.0.as_ptr(), context, entries.as_ptr(), count, flags, token) })
    }

    /// Posts the registration of `length` bytes, which begin `offset` bytes into the first of `pages`, for a peer that
    /// will address them from `base`.
    ///
    /// # Safety
    /// The region is open.
    #[allow(clippy::too_many_arguments, reason = "those of NdkFastRegister")]
    pub unsafe fn fast_register(
        &self,
        context: usize,
        region: *mut NDK_MR,
        pages: &[NDK_LOGICAL_ADDRESS],
        offset: u32,
        length: usize,
        base: u64,
        flags: u32,
    ) -> Result {
        let register = entry(self.table().NdkFastRegister)?;
        let (context, count) = (context as *mut c_void, pages.len() as u32);
        let base = base as *mut c_void;
        // SAFETY: queue pair and region are open; the page array is copied during the call.
        check(unsafe {
            register(self.0.as_ptr(), context, region, count, pages.as_ptr(), offset, length, base, flags)
        })
    }

    /// Posts an invalidation: afterwards the peer has no access.
    ///
    /// # Safety
    /// The region is open.
    pub unsafe fn invalidate(&self, context: usize, region: *mut NDK_OBJECT_HEADER, flags: u32) -> Result {
        let invalidate = entry(self.table().NdkInvalidate)?;
        // SAFETY: the caller passes a region of this adapter; the queue pair is open while this value exists.
        check(unsafe { invalidate(self.0.as_ptr(), context as *mut c_void, region, flags) })
    }

    /// Posts a read of the peer's memory.
    pub fn read(&self, context: usize, entries: &[NDK_SGE], from: Target, flags: u32) -> Result {
        let read = entry(self.table().NdkRead)?;
        let (context, count) = (context as *mut c_void, entries.len() as u32);
        let qp = self.0.as_ptr();
        // SAFETY: the queue pair is open while this value exists, and the provider copies the entries before it
        // returns.
        check(unsafe { read(qp, context, entries.as_ptr(), count, from.address, from.token, flags) })
    }

    /// Posts a write to the peer's memory.
    pub fn write(&self, context: usize, entries: &[NDK_SGE], to: Target, flags: u32) -> Result {
        let write = entry(self.table().NdkWrite)?;
        let (context, count) = (context as *mut c_void, entries.len() as u32);
        let qp = self.0.as_ptr();
        // SAFETY: the queue pair is open while this value exists, and the provider copies the entries before it
        // returns.
        check(unsafe { write(qp, context, entries.as_ptr(), count, to.address, to.token, flags) })
    }

    /// Cancels all that is posted. Its completions come through the completion queues.
    pub fn flush(&self) {
        let Some(flush) = self.table().NdkFlush else { return };
        // SAFETY: the queue pair is open.
        unsafe { flush(self.0.as_ptr()) };
    }
}
