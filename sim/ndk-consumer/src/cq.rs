// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_RESULT_EX};
use ndk_abi::nt::{GROUP_AFFINITY, NTSTATUS};

use crate::object::{Object, entry};
use crate::os::{Event, Os};
use crate::{Adapter, Status, pending};

/// A completion queue.
pub struct Cq<O: Os> {
    object: Object<O, NDK_CQ>,
    // Declared after the object: the notification callback uses it until the close is complete.
    notification: Arc<Notification<O>>,
    _adapter: Arc<Adapter<O>>,
}

/// The only reader of a completion queue. Polling and arming must not be concurrent: both borrow this value mutably.
//= R-CQ-17
pub struct Completions<O: Os> {
    cq: Arc<Cq<O>>,
}

/// Wakes the reader of a completion queue without a completion.
pub struct Waker<O: Os> {
    notification: Arc<Notification<O>>,
}

struct Notification<O: Os> {
    os: Arc<O>,
    event: O::Event,
    /// The error status of the queue.
    status: AtomicI32,
    count: AtomicU64,
    /// A [`Waker`] has woken the reader.
    woken: AtomicBool,
    /// Runs in each notification callback.
    handler: Option<Handler>,
}

/// Runs in the notification callback of a completion queue, at IRQL <= `DISPATCH_LEVEL`.
pub type Handler = Box<dyn Fn() + Send + Sync>;

impl<O: Os> Cq<O> {
    /// Creates a queue of `depth` entries (`NdkCreateCq`); returns it and its reader.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(adapter: &Arc<Adapter<O>>, depth: u32) -> Result<(Arc<Self>, Completions<O>), Status> {
        Self::create(adapter, depth, None, None)
    }

    /// Creates a queue of `depth` entries that calls `handler` at each notification; returns it and its reader.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn with_handler(
        adapter: &Arc<Adapter<O>>,
        depth: u32,
        handler: Handler,
    ) -> Result<(Arc<Self>, Completions<O>), Status> {
        Self::create(adapter, depth, None, Some(handler))
    }

    /// As [`Cq::with_handler`], with an affinity of the notifications.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn with_affinity(
        adapter: &Arc<Adapter<O>>,
        depth: u32,
        affinity: GROUP_AFFINITY,
        handler: Handler,
    ) -> Result<(Arc<Self>, Completions<O>), Status> {
        Self::create(adapter, depth, Some(affinity), Some(handler))
    }

    fn create(
        adapter: &Arc<Adapter<O>>,
        depth: u32,
        mut affinity: Option<GROUP_AFFINITY>,
        handler: Option<Handler>,
    ) -> Result<(Arc<Self>, Completions<O>), Status> {
        let os = adapter.os();
        let notification = Arc::new(Notification {
            os: Arc::clone(os),
            event: os.event(),
            status: AtomicI32::new(Status::SUCCESS.0),
            count: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            handler,
        });
        let create = entry(adapter.object().dispatch().NdkCreateCq)?;
        let context = Arc::as_ptr(&notification).cast_mut().cast();
        let affinity = affinity.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the adapter is open; the context of the notification lives until the queue is closed, that of the
            // request until its callback.
            unsafe {
                create(
                    adapter.raw(),
                    depth,
                    Some(notified::<O>),
                    context,
                    affinity,
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(os, raw) };
        let cq = Arc::new(Self { object, notification, _adapter: Arc::clone(adapter) });
        Ok((Arc::clone(&cq), Completions { cq }))
    }

    /// Returns the number of notifications so far.
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notification.count.load(Ordering::Relaxed)
    }

    pub(crate) fn raw(&self) -> *mut NDK_CQ {
        self.object.raw()
    }
}

impl<O: Os> Completions<O> {
    /// Polls completions into `results`; returns their number. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_INTERNAL_ERROR` if the provider returns more than fit.
    pub fn poll(&mut self, results: &mut [NDK_RESULT_EX]) -> Result<usize, Status> {
        let object = &self.cq.object;
        let get = entry(object.dispatch().NdkGetCqResultsEx)?;
        let taken = object.os().call(|| {
            // SAFETY: the queue is open, this is its only reader, and `results` has the length passed.
            unsafe { get(object.raw(), results.as_mut_ptr(), results.len() as u32) }
        }) as usize;
        if taken > results.len() { Err(Status::INTERNAL_ERROR) } else { Ok(taken) }
    }

    /// Requests one notification for the next completion of any kind (`NdkArmCq`). IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_NOT_SUPPORTED` if the provider has no such function.
    pub fn arm(&mut self) -> Result<(), Status> {
        let object = &self.cq.object;
        let arm = entry(object.dispatch().NdkArmCq)?;
        // SAFETY: the queue is open, and this is its only reader.
        object.os().call(|| unsafe { arm(object.raw(), NDK_CQ_NOTIFY_ANY) });
        Ok(())
    }

    /// Polls completions, and waits for the first one up to `timeout`. Returns 0 on timeout or if a [`Waker`] woke the
    /// reader. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The error status of the queue.
    pub fn wait(&mut self, results: &mut [NDK_RESULT_EX], timeout: Duration) -> Result<usize, Status> {
        let os = Arc::clone(self.cq.object.os());
        let deadline = os.now() + timeout;
        loop {
            let taken = self.poll(results)?;
            if taken != 0 || self.cq.notification.woken.swap(false, Ordering::AcqRel) {
                return Ok(taken);
            }
            // A completion between poll and arm triggers the notification.
            //= R-CQ-16
            self.arm()?;
            let signaled = self.cq.notification.event.wait(Some(deadline.saturating_sub(os.now())));
            Status(self.cq.notification.status.load(Ordering::Acquire)).check()?;
            if !signaled {
                return Ok(0);
            }
        }
    }

    /// Returns a waker of this reader.
    #[must_use]
    pub fn waker(&self) -> Waker<O> {
        Waker { notification: Arc::clone(&self.cq.notification) }
    }
}

impl<O: Os> Waker<O> {
    /// Ends the current or the next wait of the reader. IRQL <= `DISPATCH_LEVEL`.
    pub fn wake(&self) {
        self.notification.woken.store(true, Ordering::Release);
        self.notification.event.set();
    }
}

unsafe extern "efiapi" fn notified<O: Os>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context of the create call, which lives until the queue is closed.
    let notification = unsafe { &*context.cast_const().cast::<Notification<O>>() };
    notification.os.callback("CqNotification", || {
        if Status(status).check().is_err() {
            notification.status.store(status, Ordering::Release);
        }
        notification.count.fetch_add(1, Ordering::Relaxed);
        notification.event.set();
        if let Some(handler) = &notification.handler {
            handler();
        }
    });
}
