// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shared part of a connection, which the provider's callbacks enter.

use core::ffi::c_void;

use driver_support::status::{Result, check, no_memory};
use fallible::Arc;
use ndk_abi::ndk::{NDK_CQ, NDK_RESULT_EX};
use ndk_abi::nt::{
    NTSTATUS, STATUS_CONNECTION_DISCONNECTED, STATUS_DEVICE_NOT_READY, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_SUCCESS,
};
use nt::{Event, SpinLock};

use super::message::{Kind, Message};
use super::queue::{Queue, Work};
use crate::ndk::{Poster, Region, arm, poll};
use crate::os::Once;

/// One side's handling of messages and completions. All functions are called at `DISPATCH_LEVEL` with the connection's
/// lock held: they post, note and signal, and return. An error ends the connection.
pub trait Protocol: Send + 'static {
    /// A message other than [`Kind::Grant`] has arrived. `invalidated`: the token that it invalidated.
    fn received(&mut self, queue: &mut Queue, message: Message, invalidated: Option<u32>) -> Result;
    /// A request of the initiator queue has succeeded.
    fn completed(&mut self, queue: &mut Queue, work: Work) -> Result;
    /// Called after messages and completions: credits and room may be there now for what had to wait.
    fn proceed(&mut self, queue: &mut Queue) -> Result;
    /// The connection has ended or failed; called once. All that is posted comes back, without further calls.
    fn ended(&mut self, status: NTSTATUS);
    /// Gives the regions of the connection to the caller, which closes them.
    fn take_regions(&mut self) -> alloc::vec::Vec<Region>;
}

/// Results taken from a completion queue at once.
const BATCH: usize = 8;

/// `NDK_OPERATION_TYPE`: this bit is set in the types of receives only.
const RECEIVE: i32 = 1;

/// The shared part of a connection.
pub struct Channel<P> {
    /// Set when the queue pair exists, before a completion queue is armed.
    inner: Once<Inner<P>>,
    /// Set when the connection has ended and all that was posted has come back.
    idle: Event,
}

struct Inner<P> {
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    /// Flushes the queue pair without the lock, because a flush may complete requests and notify at once.
    flusher: Poster,
    state: SpinLock<State<P>>,
}

struct State<P> {
    protocol: P,
    queue: Queue,
    /// A thread is about to flush, or flushes.
    is_flushing: bool,
}

// SAFETY: the completion queues are open as long as notifications arrive, and notifications of one queue never overlap:
// so nothing polls or arms a queue concurrently. All else is behind the lock.
unsafe impl<P: Send> Send for Inner<P> {}
// SAFETY: notifications of one queue never overlap, so that each part behind a shared reference has one user at a
// time.
unsafe impl<P: Send> Sync for Inner<P> {}

impl<P: Protocol> Channel<P> {
    pub fn new() -> Result<Arc<Self>> {
        let idle = Event::try_new().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        Arc::try_new(Self { inner: Once::new(), idle }).map_err(no_memory)
    }

    /// Attaches the queues, and arms both completion queues.
    ///
    /// # Safety
    /// The completion queues notify [`receives_arrived`] and [`requests_completed`] with this channel as context, and
    /// are open until they are closed after [`wait_idle`](Self::wait_idle). `flusher` may be used until then.
    pub unsafe fn attach(
        &self,
        receive_cq: *mut NDK_CQ,
        initiator_cq: *mut NDK_CQ,
        flusher: Poster,
        queue: Queue,
        protocol: P,
    ) -> Result {
        let state = SpinLock::new(State { protocol, queue, is_flushing: false });
        let inner = Inner { receive_cq, initiator_cq, flusher, state };
        self.inner.set(inner).map_err(|_| STATUS_DEVICE_NOT_READY)?;
        // SAFETY: open, and not armed yet: nothing else polls or arms it.
        unsafe { arm(receive_cq) }?;
        // SAFETY: the queue is open and was not armed yet: no other code polls or arms it.
        unsafe { arm(initiator_cq) }
    }

    /// Calls `act` with the connection's lock held. An error ends the connection. IRQL <= `DISPATCH_LEVEL`.
    pub fn with<R>(&self, act: impl FnOnce(&mut P, &mut Queue) -> Result<R>) -> Result<R> {
        let inner = self.inner.get().ok_or(STATUS_DEVICE_NOT_READY)?;
        let mut state = inner.state.lock();
        let State { protocol, queue, is_flushing } = &mut *state;
        let result = act(protocol, queue);
        if let Err(status) = &result
            && queue.end(*status)
        {
            protocol.ended(*status);
            *is_flushing = true;
            drop(state);
            inner.flusher.flush();
            state = inner.state.lock();
            state.is_flushing = false;
        }
        if state.queue.ended().is_some() && state.queue.is_idle() && !state.is_flushing {
            self.idle.set();
        }
        result
    }

    /// Ends the connection: nothing is posted afterwards, and what is posted comes back. IRQL <= `DISPATCH_LEVEL`.
    pub fn end(&self, status: NTSTATUS) {
        // The error is what ends it.
        let _: Result = self.with(|_, _| Err(status));
    }

    /// Returns why the connection has ended, if it has.
    pub fn ended(&self) -> Option<NTSTATUS> {
        let inner = self.inner.get()?;
        inner.state.lock().queue.ended()
    }

    /// Waits until all that was posted has come back. The connection must have ended. `PASSIVE_LEVEL`.
    pub fn wait_idle(&self) {
        if self.inner.get().is_some() {
            self.idle.wait();
        }
    }

    /// Takes the regions of an idle connection.
    pub fn take_regions(&self) -> alloc::vec::Vec<Region> {
        self.inner.get().map_or_else(alloc::vec::Vec::new, |inner| inner.state.lock().protocol.take_regions())
    }

    /// Takes all completions, handles them, and arms the queue again. None may be left: those that were there when the
    /// notification began need not cause another one.
    //= R-CQ-11
    fn drain(&self, cq: *mut NDK_CQ) -> Result {
        loop {
            let mut results = [NDK_RESULT_EX::zeroed(); BATCH];
            // SAFETY: called by the queue's notification, which does not overlap with another one of this queue.
            let taken = unsafe { poll(cq, &mut results) }?;
            if taken == 0 {
                break;
            }
            // A failed request ends the connection in `with`; here the remaining completions go on.
            let _: Result = self.with(|protocol, queue| {
                let mut outcome = Ok(());
                for result in results.iter().take(taken) {
                    outcome = outcome.and(handle(protocol, queue, result));
                }
                outcome?;
                if queue.ended().is_none() {
                    protocol.proceed(queue)?;
                    queue.grant_if_due()?;
                }
                Ok(())
            });
        }
        // SAFETY: as above. A completion that has arrived since the last poll causes a notification.
        //= R-CQ-16
        unsafe { arm(cq) }
    }
}

fn handle<P: Protocol>(protocol: &mut P, queue: &mut Queue, result: &NDK_RESULT_EX) -> Result {
    let context = result.RequestContext.addr();
    if result.Type.0 & RECEIVE == 0 {
        let work = Work::of(context);
        queue.work_done(work);
        check(result.Status)?;
        return if queue.ended().is_some() { Ok(()) } else { protocol.completed(queue, work) };
    }
    queue.receive_done();
    check(result.Status)?;
    if queue.ended().is_some() {
        return Ok(());
    }
    let message = queue.received(context, result.BytesTransferred as usize)?;
    queue.statistics().messages_received.add(1);
    let is_invalidation =
        result.Type == ndk_abi::ndk::NDK_OPERATION_TYPE::NdkOperationTypeReceiveAndInvalidate;
    let invalidated = is_invalidation.then_some(result.TypeSpecificCompletionOutput as u32);
    if invalidated.is_some() {
        queue.statistics().remote_invalidations.add(1);
    }
    if message.kind == Kind::Grant { Ok(()) } else { protocol.received(queue, message, invalidated) }
}

/// The notification of the receive completion queue; `context` is the channel.
pub unsafe extern "efiapi" fn receives_arrived<P: Protocol>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context of the queue's creation; the channel outlives the queue.
    let channel = unsafe { &*context.cast_const().cast::<Channel<P>>() };
    notified(channel, status, |inner| inner.receive_cq);
}

/// The notification of the initiator completion queue; `context` is the channel.
pub unsafe extern "efiapi" fn requests_completed<P: Protocol>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context of the queue's creation; the channel outlives the queue.
    let channel = unsafe { &*context.cast_const().cast::<Channel<P>>() };
    notified(channel, status, |inner| inner.initiator_cq);
}

fn notified<P: Protocol>(channel: &Channel<P>, status: NTSTATUS, cq: impl Fn(&Inner<P>) -> *mut NDK_CQ) {
    let Some(inner) = channel.inner.get() else { return };
    let outcome = channel.drain(cq(inner));
    if status != STATUS_SUCCESS {
        channel.end(status);
    } else if let Err(status) = outcome {
        channel.end(status);
    }
}

/// The disconnect event of the connector; `context` is the channel.
pub unsafe extern "efiapi" fn disconnected<P: Protocol>(context: *mut c_void) {
    // SAFETY: the context passed with the event; the channel outlives the connector.
    let channel = unsafe { &*context.cast_const().cast::<Channel<P>>() };
    channel.end(STATUS_CONNECTION_DISCONNECTED);
}
