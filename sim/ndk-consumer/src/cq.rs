//! Completion queues and the pump that empties them.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_RESULT_EX};
use ndk_abi::nt::NTSTATUS;

use crate::object::{Object, entry};
use crate::os::{Event, Os};
use crate::{Adapter, Status, pending};

/// A completion queue, to be named by queue pairs.
pub struct Cq<O: Os> {
    object: Object<O, NDK_CQ>,
    // Behind the object: the notification callback uses it until the close has ended.
    notification: Arc<Notification<O>>,
    _adapter: Arc<Adapter<O>>,
}

/// The one reader of a completion queue.
///
/// Polls and arms of a queue must not run at the same time (R-CQ-17): they take this value mutably.
//= R-CQ-17
pub struct Completions<O: Os> {
    cq: Arc<Cq<O>>,
}

/// Wakes the reader of a queue for reasons of its own.
pub struct Waker<O: Os> {
    notification: Arc<Notification<O>>,
}

struct Notification<O: Os> {
    os: Arc<O>,
    event: O::Event,
    /// The fault of the queue, if it has one.
    status: AtomicI32,
    count: AtomicU64,
    /// Somebody other than the provider wants the reader.
    woken: AtomicBool,
}

impl<O: Os> Cq<O> {
    /// A queue of `depth` entries, and its reader.
    pub fn new(adapter: &Arc<Adapter<O>>, depth: u32) -> Result<(Arc<Self>, Completions<O>), Status> {
        let os = adapter.os();
        let notification = Arc::new(Notification {
            os: Arc::clone(os),
            event: os.event(),
            status: AtomicI32::new(Status::SUCCESS.0),
            count: AtomicU64::new(0),
            woken: AtomicBool::new(false),
        });
        let create = entry(adapter.object().dispatch().NdkCreateCq)?;
        let context = Arc::as_ptr(&notification).cast_mut().cast();
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the adapter is open; the notification's context lives until the queue is closed, the
            // request's until its callback.
            unsafe {
                create(
                    adapter.raw(),
                    depth,
                    Some(notified::<O>),
                    context,
                    ptr::null_mut(),
                    completion,
                    request,
                    into,
                )
            }
        })?;
        // SAFETY: created just now, to be closed by us.
        let object = unsafe { Object::new(os, raw) };
        let cq = Arc::new(Self { object, notification, _adapter: Arc::clone(adapter) });
        Ok((Arc::clone(&cq), Completions { cq }))
    }

    /// Notifications so far.
    pub fn notifications(&self) -> u64 {
        self.notification.count.load(Ordering::Relaxed)
    }

    pub(crate) fn raw(&self) -> *mut NDK_CQ {
        self.object.raw()
    }
}

impl<O: Os> Completions<O> {
    /// Takes completions that are there, as many as fit into `results`; returns how many. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn poll(&mut self, results: &mut [NDK_RESULT_EX]) -> Result<usize, Status> {
        let object = &self.cq.object;
        let get = entry(object.dispatch().NdkGetCqResultsEx)?;
        let taken = object.os().call(|| {
            // SAFETY: the queue is open, nobody else polls or arms it, `results` has the length said.
            unsafe { get(object.raw(), results.as_mut_ptr(), results.len() as u32) }
        }) as usize;
        if taken > results.len() { Err(Status::INTERNAL_ERROR) } else { Ok(taken) }
    }

    /// Asks for one notification of the next completion of any kind. IRQL <= `DISPATCH_LEVEL`.
    pub fn arm(&mut self) -> Result<(), Status> {
        let object = &self.cq.object;
        let arm = entry(object.dispatch().NdkArmCq)?;
        // SAFETY: the queue is open, and nobody else polls or arms it.
        object.os().call(|| unsafe { arm(object.raw(), NDK_CQ_NOTIFY_ANY) });
        Ok(())
    }

    /// Takes completions, waiting for the first up to `timeout`. Returns 0 when there was none, or when a
    /// [`Waker`] woke. `PASSIVE_LEVEL`.
    pub fn wait(&mut self, results: &mut [NDK_RESULT_EX], timeout: Duration) -> Result<usize, Status> {
        let os = Arc::clone(self.cq.object.os());
        let deadline = os.now() + timeout;
        loop {
            let taken = self.poll(results)?;
            if taken != 0 || self.cq.notification.woken.swap(false, Ordering::AcqRel) {
                return Ok(taken);
            }
            // One that came between the poll and the arm satisfies the arm.
            //= R-CQ-16
            self.arm()?;
            let signaled = self.cq.notification.event.wait(Some(deadline.saturating_sub(os.now())));
            Status(self.cq.notification.status.load(Ordering::Acquire)).check()?;
            if !signaled {
                return Ok(0);
            }
        }
    }

    pub fn waker(&self) -> Waker<O> {
        Waker { notification: Arc::clone(&self.cq.notification) }
    }
}

impl<O: Os> Waker<O> {
    /// Ends the reader's current or next wait. IRQL <= `DISPATCH_LEVEL`.
    pub fn wake(&self) {
        self.notification.woken.store(true, Ordering::Release);
        self.notification.event.set();
    }
}

unsafe extern "efiapi" fn notified<O: Os>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context given at creation, alive until the queue is closed.
    let notification = unsafe { &*context.cast_const().cast::<Notification<O>>() };
    notification.os.called_back("CqNotification");
    if Status(status).check().is_err() {
        notification.status.store(status, Ordering::Release);
    }
    notification.count.fetch_add(1, Ordering::Relaxed);
    notification.event.set();
}
