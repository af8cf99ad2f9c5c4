//! Queue pairs and shared receive queues: posts.

use core::ffi::c_void;
use core::ptr;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NDK_SGE_Anonymous, NDK_SRQ};

use crate::fast::{self, FastMemory};
use crate::memory::{Access, Pd, RemoteMemory};
use crate::object::{Object, entry};
use crate::os::Os;
use crate::{Cq, Status, pending};

/// A queue pair. Drop its connector first.
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
    _pd: Arc<Pd<O>>,
}

/// How big a queue pair is to be.
#[derive(Clone, Copy, Debug)]
pub struct QpDepths {
    /// Receives outstanding at once. Not used with a shared receive queue.
    pub receives: u32,
    /// Initiator requests outstanding at once.
    pub requests: u32,
    /// Scatter/gather entries of one receive. Not used with a shared receive queue.
    pub receive_sges: u32,
    /// Scatter/gather entries of one initiator request.
    pub request_sges: u32,
    /// Bytes of an inline request.
    pub inline: u32,
}

impl<O: Os> Srq<O> {
    /// A queue of `depth` receives of up to `sges` entries, without low-water notification.
    pub fn new(pd: &Arc<Pd<O>>, depth: u32, sges: u32) -> Result<Arc<Self>, Status> {
        let create = entry(pd.object().dispatch().NdkCreateSrq)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: the protection domain is open; without threshold nothing is notified.
            unsafe {
                create(
                    pd.object().raw(),
                    depth,
                    sges,
                    0,
                    Some(srq_notified),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created just now, to be closed by us.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Arc::new(Self { object, _pd: Arc::clone(pd) }))
    }

    /// Posts a receive for any queue pair on this queue. IRQL <= `DISPATCH_LEVEL`.
    pub fn receive(&self, context: usize, sges: &[NDK_SGE]) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSrqReceive)?;
        let status = self.object.os().call(|| {
            // SAFETY: the queue is open; the entries are used during the call only.
            unsafe { post(self.object.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32) }
        });
        Status(status).check()
    }
}

impl<O: Os> Qp<O> {
    /// A queue pair whose completions carry `context`.
    pub fn new(
        pd: &Arc<Pd<O>>,
        receive_cq: &Arc<Cq<O>>,
        initiator_cq: &Arc<Cq<O>>,
        context: usize,
        depths: &QpDepths,
    ) -> Result<Self, Status> {
        let create = entry(pd.object().dispatch().NdkCreateQp)?;
        let raw = pending::create(pd.os(), |completion, request, into| {
            // SAFETY: domain and queues are open; the request's context lives until the callback.
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
        // SAFETY: created just now, to be closed by us.
        let object = unsafe { Object::new(pd.os(), raw) };
        Ok(Self::of(object, pd, receive_cq, initiator_cq, None))
    }

    /// A queue pair that takes its receives from `srq`.
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
            // SAFETY: domain and queues are open; the request's context lives until the callback.
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
        // SAFETY: created just now, to be closed by us.
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

    /// Posts a receive. IRQL <= `DISPATCH_LEVEL`, like all posts.
    pub fn receive(&self, context: usize, sges: &[NDK_SGE]) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkReceive)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the entries are used during the call only.
            unsafe { post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32) }
        })
    }

    /// Sends a message gathered from registered memory. `flags`: `NDK_OP_FLAG_*`.
    pub fn send(&self, context: usize, sges: &[NDK_SGE], flags: u32) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSend)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the entries are used during the call only.
            unsafe { post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32, flags) }
        })
    }

    /// Sends `message`, which needs no registration and is copied during the call.
    pub fn send_inline(&self, context: usize, message: &[u8], flags: u32) -> Result<(), Status> {
        let sge = NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: message.as_ptr().cast_mut().cast() },
            Length: message.len() as u32,
            MemoryRegionToken: 0,
        };
        self.send(context, &[sge], flags | NDK_OP_FLAG_INLINE)
    }

    /// Sends a message with which the peer's `token` becomes invalid.
    pub fn send_and_invalidate(
        &self,
        context: usize,
        sges: &[NDK_SGE],
        flags: u32,
        token: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkSendAndInvalidate)?;
        self.post(|| {
            // SAFETY: the queue pair is open; the entries are used during the call only.
            unsafe {
                post(self.raw(), context as *mut c_void, sges.as_ptr(), sges.len() as u32, flags, token)
            }
        })
    }

    /// Reads from the peer's memory at `offset` into `sges`; no entries read nothing.
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
            // SAFETY: the queue pair is open; the entries are used during the call only.
            unsafe {
                post(self.raw(), context, sges.as_ptr(), sges.len() as u32, address, remote.token, flags)
            }
        })
    }

    /// Writes `sges` to the peer's memory at `offset`; no entries write nothing, and tell whether the peer is
    /// there.
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
            // SAFETY: the queue pair is open; the entries are used during the call only.
            unsafe {
                post(self.raw(), context, sges.as_ptr(), sges.len() as u32, address, remote.token, flags)
            }
        })
    }

    /// Opens `memory` to the peer in this way, for every later request and message.
    pub fn fast_register(
        &self,
        context: usize,
        memory: &FastMemory<O>,
        access: Access,
        flags: u32,
    ) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkFastRegister)?;
        let flags = flags | fast::flags(access);
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

    /// Ends a registration that [`fast_register`](Self::fast_register) made.
    pub fn invalidate(&self, context: usize, memory: &FastMemory<O>, flags: u32) -> Result<(), Status> {
        let post = entry(self.object.dispatch().NdkInvalidate)?;
        // SAFETY: queue pair and region are open.
        self.post(|| unsafe { post(self.raw(), context as *mut c_void, memory.header(), flags) })
    }

    /// Cancels everything outstanding; the cancellations are completions like others.
    pub fn flush(&self) -> Result<(), Status> {
        let flush = entry(self.object.dispatch().NdkFlush)?;
        // SAFETY: the queue pair is open.
        self.object.os().call(|| unsafe { flush(self.raw()) });
        Ok(())
    }

    pub fn receive_cq(&self) -> &Arc<Cq<O>> {
        &self.receive_cq
    }

    pub(crate) fn raw(&self) -> *mut NDK_QP {
        self.object.raw()
    }

    fn post(&self, post: impl FnOnce() -> i32) -> Result<(), Status> {
        Status(self.object.os().call(post)).check()
    }
}

unsafe extern "efiapi" fn srq_notified(_context: *mut c_void, _status: i32) {}
