// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::prefetch::prefetch_bytes;
use crate::qp_attributes::QpAttributes;
use crate::region::access_rights::Pd;
use crate::transport::cache_lines;
use crate::transport::rc_transport::RcTransport;
use crate::transport::requester::send_queue;
use crate::transport::state::State;
use crate::work::Sge;
use roce_wire::Qpn;

/// A reliable-connection queue pair. The methods that post requests are the engine's.
#[derive(Debug)]
#[repr(C)]
pub struct Qp<R: RawMutex> {
    /// Number of its shard, [`Qp::NO_SHARD`] once it is destroyed. Changes under the lock.
    pub(crate) shard: AtomicU32,
    /// Whether it is in its shard's ready list. Changes with that list locked.
    pub(crate) ready: AtomicBool,
    pub(crate) attributes: QpAttributes<R>,
    /// Posts to either queue, flushes and the connection's end take this lock: they may run at the same time.
    //= R-QP-8, R-QP-9, R-QP-11, R-QP-12
    pub(crate) transport: Mutex<R, RcTransport>,
}

impl<R: RawMutex> Qp<R> {
    pub(crate) const NO_SHARD: u32 = u32::MAX;

    /// Returns the queue pair number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.attributes.qpn
    }

    /// Returns the context that the queue pair was created with.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.attributes.context
    }

    /// Returns the protection domain of the queue pair.
    #[must_use]
    pub fn pd(&self) -> Pd {
        self.attributes.pd
    }

    /// Starts to load what a packet uses. The caller does something else before it takes the lock.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.prefetch_attributes();
        cache_lines::prefetch(self.transport.data_ptr());
    }

    /// Starts to load the attributes and the lock.
    #[inline]
    fn prefetch_attributes(&self) {
        prefetch_bytes(core::ptr::from_ref(self).cast(), 0..offset_of!(Self, transport));
    }

    /// Starts to load what a post to the receive queue uses, as [`Qp::prefetch`] does.
    #[inline]
    pub(crate) fn prefetch_receives(&self) {
        self.prefetch_attributes();
        cache_lines::prefetch_receives(self.transport.data_ptr());
    }

    #[inline]
    pub(crate) fn shard(&self) -> u32 {
        self.shard.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_shard(&self, number: u32) {
        self.shard.store(number, Ordering::Release);
    }

    /// Locks the queue pair, after the payload that is being copied without the lock, if any. The copying thread is at
    /// `DISPATCH_LEVEL`, and needs this lock only.
    ///
    /// Posts and getters lock `transport` instead and do not wait: they neither end a request nor move the queue pair. The post of a
    /// local request, which is executed at once, may do the former and waits.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, R, RcTransport> {
        let transport = self.transport.lock();
        if transport.is_copying() { self.lock_after_copy(transport) } else { transport }
    }

    /// Releases the lock and acquires it after the copy.
    #[cold]
    #[inline(never)]
    fn lock_after_copy<'a>(
        &'a self,
        mut transport: MutexGuard<'a, R, RcTransport>,
    ) -> MutexGuard<'a, R, RcTransport> {
        while transport.is_copying() {
            MutexGuard::unlocked(&mut transport, self.attributes.relax);
        }
        transport
    }

    /// Returns the state of the queue pair at some moment during the call.
    #[must_use]
    pub fn state(&self) -> State {
        self.transport.lock().state()
    }

    /// Returns whether requests that were begun before a change to SQD are not complete.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.transport.lock().drain.is_pending()
    }

    /// Returns how many requests the send queue takes at least: more once some are complete.
    #[must_use]
    pub fn free_requests(&self) -> u32 {
        send_queue::free_requests(self.transport.lock().send_queue())
    }

    /// Returns whether an element of an outstanding request, of either queue, is one that `wanted` accepts.
    pub fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.transport.lock().has_element(wanted)
    }

    /// Returns whether neither queue holds a request. Completions may still be unread.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.transport.lock().is_drained()
    }
}
