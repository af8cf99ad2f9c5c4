// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs and shared receive queues.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr;

use ndk_abi::ndk::{NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NDK_SGE_Anonymous, NDK_SRQ};
use ndk_abi::nt::{GROUP_AFFINITY, NTSTATUS};

use crate::fast_memory::{self, FastMemory};
use crate::memory::{Access, Pd, RemoteMemory};
use crate::object::{Object, entry};
use crate::os::Os;
use crate::{Cq, Handler, Status, pending};

/// A queue pair. Its connector must be dropped first.
pub struct Qp<O: Os> {
    object: Object<O, NDK_QP>,
    receive_cq: Arc<Cq<O>>,
    _initiator_cq: Arc<Cq<O>>,
    _srq: Option<Arc<Srq<O>>>,
    _pd: Arc<Pd<O>>,
}

/// A shared receive queue.
pub struct Srq<O: Os> {
    object: Object<O, NDK_SRQ>,
    // Declared after the object: the notification callback uses it until the close is complete.
    _notification: Option<Box<SrqNotification<O>>>,
    _pd: Arc<Pd<O>>,
}

struct SrqNotification<O: Os> {
    os: Arc<O>,
    /// Runs in each notification callback.
    handler: Handler,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpDepths {
    /// Maximum number of outstanding receives. Ignored with a shared receive queue.
    pub receives: u32,
    /// Maximum number of outstanding initiator requests.
    pub requests: u32,
    /// SGEs of one receive. Ignored with a shared receive queue.
    pub receive_sges: u32,
    /// SGEs of one initiator request.
    pub request_sges: u32,
    /// Maximum data of an inline request in bytes.
    pub inline: u32,
}

impl<O: Os> Srq<O> {
    /// Creates a queue of `depth` receives of up to `sges` SGEs, without a low-water notification.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(pd: &Arc<Pd<O>>, depth: u32, sges: u32) -> Result<Arc<Self>, Status> {
        Self::create(pd, depth, sges, None, None)
    }

    /// Creates a queue of `depth` receives without SGEs that calls `handler` in each low-water notification, which has an
    /// affinity. [`Srq::notify_below`] sets the threshold.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn with_affinity(
        pd: &Arc<Pd<O>>,
        depth: u32,
        affinity: GROUP_AFFINITY,
        handler: Handler,
    ) -> Result<Arc<Self>, Status> {
        let notification = Box::new(SrqNotification { os: Arc::clone(pd.os()), handler });
        Self::create(pd, depth, 0, Some(affinity), Some(notification))
    }

    fn create(
        pd: &Arc<Pd<O>>,
        depth: u32,
        sges: u32,
        mut affinity: Option<GROUP_AFFINITY>,
        notification: Option<Box<SrqNotification<O>>>,
    ) -> Result<Arc<Self>, Status> {
        let context = notification
            .as_deref()
            .map_or(ptr::null_mut(), |context| ptr::from_ref(context).cast_mut().cast());
        let affinity = affinity.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let create = entry(pd.object().dispatch().NdkCreateSrq)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: the protection domain is open; the context of the notification lives until the queue is closed, that
            // of the request until its callback.
            unsafe {
                create(
                    pd.object().raw(),
                    depth,
                    sges,
                    0,
                    Some(srq_notified::<O>),
                    context,
                    affinity,
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Arc::new(Self { object, _notification: notification, _pd: Arc::clone(pd) }))
    }

    /// Requests a notification when the queue holds fewer receives than `threshold`, at least 1 (`NdkModifySrq`).
    ///
    /// # Errors
    /// The status of the provider.
    pub fn notify_below(&self, threshold: u32) -> Result<(), Status> {
        let modify = entry(self.object.dispatch().NdkModifySrq)?;
        pending::request(self.object.os(), |completion, request| {
            // SAFETY: the queue is open; the context of the request lives until the callback.
            unsafe { modify(self.object.raw(), 0, threshold, completion, request) }
        })
    }

    /// Posts a receive for any queue pair of this queue. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn receive(&self, context: usize, sges: &[NDK_SGE]) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSrqReceive)?;
        let status = self.object.os().call(|| {
            // SAFETY: the queue is open; the SGEs are used during the call only.
            unsafe { post(self.object.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32) }
        });
        Status(status).check()
    }
}

impl<O: Os> Qp<O> {
    /// Creates a queue pair whose completions carry `context`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(
        pd: &Arc<Pd<O>>,
        receive_cq: &Arc<Cq<O>>,
        initiator_cq: &Arc<Cq<O>>,
        context: usize,
        depths: &QpDepths,
    ) -> Result<Self, Status> {
        let create = entry(pd.object().dispatch().NdkCreateQp)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: domain and queues are open; the context of the request lives until the callback.
            unsafe {
                create(
                    pd.object().raw(),
                    receive_cq.raw(),
                    initiator_cq.raw(),
                    context as *mut c_void,
                    depths.receives,
                    depths.requests,
                    depths.receive_sges,
                    depths.request_sges,
                    depths.inline,
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Self::of(object, pd, receive_cq, initiator_cq, None))
    }

    /// Creates a queue pair that uses the receives of `srq`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn with_srq(
        pd: &Arc<Pd<O>>,
        receive_cq: &Arc<Cq<O>>,
        initiator_cq: &Arc<Cq<O>>,
        srq: &Arc<Srq<O>>,
        context: usize,
        depths: &QpDepths,
    ) -> Result<Self, Status> {
        let create = entry(pd.object().dispatch().NdkCreateQpWithSrq)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: domain and queues are open; the context of the request lives until the callback.
            unsafe {
                create(
                    pd.object().raw(),
                    receive_cq.raw(),
                    initiator_cq.raw(),
                    srq.object.raw(),
                    context as *mut c_void,
                    depths.requests,
                    depths.request_sges,
                    depths.inline,
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Self::of(object, pd, receive_cq, initiator_cq, Some(srq)))
    }

    fn of(
        object: Object<O, NDK_QP>,
        pd: &Arc<Pd<O>>,
        receive_cq: &Arc<Cq<O>>,
        initiator_cq: &Arc<Cq<O>>,
        srq: Option<&Arc<Srq<O>>>,
    ) -> Self {
        Self {
            object,
            receive_cq: Arc::clone(receive_cq),
            _initiator_cq: Arc::clone(initiator_cq),
            _srq: srq.map(Arc::clone),
            _pd: Arc::clone(pd),
        }
    }

    /// Posts a receive. IRQL <= `DISPATCH_LEVEL`, as for all posts.
    ///
    /// # Errors
    /// The status of the provider, as for all posts.
    pub fn receive(&self, context: usize, sges: &[NDK_SGE]) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkReceive)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the SGEs are used during the call only.
            unsafe { post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32) }
        })
    }

    /// Posts a send of registered memory. `flags` are `NDK_OP_FLAG_*`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn send(&self, context: usize, sges: &[NDK_SGE], flags: u32) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSend)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the SGEs are used during the call only.
            unsafe { post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32, flags) }
        })
    }

    /// Posts an inline send: `message` needs no registration and is copied during the call.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn send_inline(&self, context: usize, message: &[u8], flags: u32) -> Result<(), Status> {
        let sge = NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: message.as_ptr().cast_mut().cast() },
            Length: message.len() as u32,
            MemoryRegionToken: 0,
        };
        self.send(context, &[sge], flags | NDK_OP_FLAG_INLINE)
    }

    /// Posts a send that invalidates the peer's `token`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn send_and_invalidate(
        &self,
        context: usize,
        sges: &[NDK_SGE],
        flags: u32,
        token: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSendAndInvalidate)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the SGEs are used during the call only.
            unsafe {
                post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32, flags, token)
            }
        })
    }

    /// Posts a read from the peer's memory at `offset` into `sges`; without SGEs a read of zero bytes.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn read(
        &self,
        context: usize,
        sges: &[NDK_SGE],
        remote: &RemoteMemory,
        offset: u64,
        flags: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkRead)?;
        let address = remote.address.wrapping_add(offset);
        let context = context as *mut c_void;
        self.post(|| {
            // SAFETY: the queue pair is open; the SGEs are used during the call only.
            unsafe {
                post(self.raw(), context, sges.as_ptr(), sges.len() as u32, address, remote.token, flags)
            }
        })
    }

    /// Posts a write of `sges` to the peer's memory at `offset`; without SGEs a write of zero bytes, which checks that the
    /// peer is reachable.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn write(
        &self,
        context: usize,
        sges: &[NDK_SGE],
        remote: &RemoteMemory,
        offset: u64,
        flags: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkWrite)?;
        let address = remote.address.wrapping_add(offset);
        let context = context as *mut c_void;
        self.post(|| {
            // SAFETY: the queue pair is open; the SGEs are used during the call only.
            unsafe {
                post(self.raw(), context, sges.as_ptr(), sges.len() as u32, address, remote.token, flags)
            }
        })
    }

    /// Posts a fast registration of `memory` with these access rights; it precedes all later requests.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn fast_register(
        &self,
        context: usize,
        memory: &FastMemory<O>,
        access: Access,
        flags: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkFastRegister)?;
        let flags = flags | fast_memory::flags(access);
        self.post(|| {
            // SAFETY: queue pair and region are open; the addresses are used during the call only.
            unsafe {
                post(
                    self.raw(),
                    context as *mut c_void,
                    memory.region(),
                    memory.page_count(),
                    memory.page_addresses(),
                    memory.offset(),
                    memory.len(),
                    memory.base(),
                    flags,
                )
            }
        })
    }

    /// Posts an invalidation of a fast registration.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn invalidate(&self, context: usize, memory: &FastMemory<O>, flags: u32) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkInvalidate)?;
        // SAFETY: queue pair and region are open.
        self.post(|| unsafe { post(self.raw(), context as *mut c_void, memory.header(), flags) })
    }

    /// Cancels all outstanding requests; they complete with `STATUS_CANCELLED` (`NdkFlush`).
    ///
    /// # Errors
    /// `STATUS_NOT_SUPPORTED` if the provider has no such function.
    pub fn flush(&self) -> Result<(), Status> {
        let flush = entry(self.object.dispatch().NdkFlush)?;
        // SAFETY: the queue pair is open.
        self.object.os().call(|| unsafe { flush(self.raw()) });
        Ok(())
    }

    /// Returns the completion queue of the receives.
    #[must_use]
    pub fn receive_cq(&self) -> &Arc<Cq<O>> {
        &self.receive_cq
    }

    pub(crate) fn object(&self) -> &Object<O, NDK_QP> {
        &self.object
    }

    pub(crate) fn raw(&self) -> *mut NDK_QP {
        self.object.raw()
    }

    fn post(&self, post: impl FnOnce() -> i32) -> Result<(), Status> {
        Status(self.object.os().call(post)).check()
    }
}

unsafe extern "efiapi" fn srq_notified<O: Os>(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: null, or the context of the create call, which lives until the queue is closed.
    if let Some(notification) = unsafe { context.cast_const().cast::<SrqNotification<O>>().as_ref() } {
        notification.os.callback("SrqNotification", || (notification.handler)());
    }
}
