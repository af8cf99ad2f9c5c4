// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use core::time::Duration;

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

/// The only reader of one or two completion queues. Polling and arming must not be concurrent: both borrow this value mutably.
//= R-CQ-17
pub struct Completions<O: Os> {
    /// Polled in this order.
    cqs: Vec<Arc<Cq<O>>>,
    reader: Arc<Reader<O>>,
}

/// Wakes the reader of completion queues without a completion.
pub struct Waker<O: Os>(Arc<Reader<O>>);

/// Moderation of the notifications of a queue: each is delayed until one of these is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moderation {
    /// Microseconds since the first completion; `u32::MAX` for any time.
    pub interval: u32,
    /// Completions; `u32::MAX` for any number.
    pub count: u32,
}

/// Reader of completions that waits to be woken.
struct Reader<O: Os> {
    event: O::Event,
    /// A [`Waker`] has woken the reader.
    woken: AtomicBool,
}

struct Notification<O: Os> {
    os: Arc<O>,
    reader: Arc<Reader<O>>,
    /// The error status of the queue.
    status: AtomicI32,
    count: AtomicU64,
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

    /// Creates two queues of these depths, and one reader for both, which takes the completions of the first one first.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn pair(
        adapter: &Arc<Adapter<O>>,
        depths: [u32; 2],
    ) -> Result<([Arc<Self>; 2], Completions<O>), Status> {
        let reader = Reader::new(adapter.os());
        let [first, second] = depths.map(|depth| Self::create_for(&reader, adapter, depth, None, None));
        let cqs = [first?, second?];
        Ok((cqs.clone(), Completions { cqs: cqs.into(), reader }))
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

    /// Creates a CQ with a handler and an affinity of its notifications.
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
        affinity: Option<GROUP_AFFINITY>,
        handler: Option<Handler>,
    ) -> Result<(Arc<Self>, Completions<O>), Status> {
        let reader = Reader::new(adapter.os());
        let cq = Self::create_for(&reader, adapter, depth, affinity, handler)?;
        Ok((Arc::clone(&cq), Completions { cqs: vec![cq], reader }))
    }

    fn create_for(
        reader: &Arc<Reader<O>>,
        adapter: &Arc<Adapter<O>>,
        depth: u32,
        mut affinity: Option<GROUP_AFFINITY>,
        handler: Option<Handler>,
    ) -> Result<Arc<Self>, Status> {
        let os = adapter.os();
        let notification = Arc::new(Notification {
            os: Arc::clone(os),
            reader: Arc::clone(reader),
            status: AtomicI32::new(Status::SUCCESS.0),
            count: AtomicU64::new(0),
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
        Ok(Arc::new(Self { object, notification, _adapter: Arc::clone(adapter) }))
    }

    /// Moderates the notifications (`NdkControlCqInterruptModeration`). IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn moderate(&self, moderation: Moderation) -> Result<(), Status> {
        let control = entry(self.object.dispatch().NdkControlCqInterruptModeration)?;
        let Moderation { interval, count } = moderation;
        // SAFETY: `object` keeps the queue open, and the function is a member of its dispatch table.
        Status(self.object.os().call(|| unsafe { control(self.object.raw(), interval, count) })).check()
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
        let mut total = 0;
        for Cq { object, .. } in self.cqs.iter().map(Arc::as_ref) {
            let Some(rest) = results.get_mut(total..).filter(|rest| !rest.is_empty()) else { break };
            let get = entry(object.dispatch().NdkGetCqResultsEx)?;
            let taken = object.os().call(|| {
                // SAFETY: the queue is open, this is its only reader, and `rest` has the length passed.
                unsafe { get(object.raw(), rest.as_mut_ptr(), rest.len() as u32) }
            }) as usize;
            if taken > rest.len() {
                return Err(Status::INTERNAL_ERROR);
            }
            total += taken;
        }
        Ok(total)
    }

    /// Requests one notification of each queue for its next completion of any kind (`NdkArmCq`). IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_NOT_SUPPORTED` if the provider has no such function.
    pub fn arm(&mut self) -> Result<(), Status> {
        for Cq { object, .. } in self.cqs.iter().map(Arc::as_ref) {
            let arm = entry(object.dispatch().NdkArmCq)?;
            // SAFETY: the queue is open, and this is its only reader.
            object.os().call(|| unsafe { arm(object.raw(), NDK_CQ_NOTIFY_ANY) });
        }
        Ok(())
    }

    /// Polls completions, and waits for the first one up to `timeout`. Returns 0 on timeout or if a [`Waker`] woke the
    /// reader. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The error status of a queue.
    pub fn wait(&mut self, results: &mut [NDK_RESULT_EX], timeout: Duration) -> Result<usize, Status> {
        let Some(os) = self.cqs.first().map(|cq| Arc::clone(cq.object.os())) else { return Ok(0) };
        let deadline = os.now() + timeout;
        loop {
            let taken = self.poll(results)?;
            if taken != 0 || self.reader.woken.swap(false, Ordering::AcqRel) {
                return Ok(taken);
            }
            // A completion between poll and arm triggers the notification.
            //= R-CQ-16
            self.arm()?;
            let signaled = self.reader.event.wait(Some(deadline.saturating_sub(os.now())));
            for cq in &self.cqs {
                Status(cq.notification.status.load(Ordering::Acquire)).check()?;
            }
            if !signaled {
                return Ok(0);
            }
        }
    }

    /// Returns a waker of this reader.
    #[must_use]
    pub fn waker(&self) -> Waker<O> {
        Waker(Arc::clone(&self.reader))
    }
}

impl<O: Os> Waker<O> {
    /// Ends the current or the next wait of the reader. IRQL <= `DISPATCH_LEVEL`.
    pub fn wake(&self) {
        self.0.woken.store(true, Ordering::Release);
        self.0.event.set();
    }
}

impl<O: Os> Reader<O> {
    fn new(os: &Arc<O>) -> Arc<Self> {
        Arc::new(Self { event: os.event(), woken: AtomicBool::new(false) })
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
        notification.reader.event.set();
        if let Some(handler) = &notification.handler {
            handler();
        }
    });
}
