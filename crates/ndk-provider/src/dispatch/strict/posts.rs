// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of posts and polls: calls that the consumer serializes, elements, a queue pair that was never connected.

use super::call::{Call, Guard};
use crate::base::limits::LIMITS;
use crate::base::object::Borrow;
use crate::base::object::unchecked::{Serial, Unchecked};
use crate::base::strict::Mistake;
use crate::dispatch::sge_list::{MAX_SGES, sges};
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use ndk_abi::ndk::{NDK_CQ, NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NDK_SRQ};
use ndk_abi::nt::{NTSTATUS, STATUS_CONNECTION_INVALID, STATUS_SUCCESS};
use roce::Sge;

/// A call that the consumer serializes with others.
struct Serialized(Option<(Unchecked, Serial)>);

impl Serialized {
    fn begin(call: &Call, object: Option<Unchecked>, serial: Serial) -> Self {
        let Some(object) = object else { return Self(None) };
        if object.begin(serial) {
            call.report(Mistake::ConcurrentCalls, serial as u32);
            return Self(None);
        }
        Self(Some((object, serial)))
    }

    fn end(self) {
        if let Some((object, serial)) = self.0 {
            object.end(serial);
        }
    }
}

/// A poll or an arm of a completion queue.
//= R-CQ-17
pub struct PollGuard(Serialized);

impl PollGuard {
    /// `lacks_room`: the array for the results is null.
    ///
    /// # Safety
    /// `cq` is open.
    pub unsafe fn new(call: &Call, cq: *mut NDK_CQ, lacks_room: bool) -> Self {
        if lacks_room {
            call.report(Mistake::NullResult, 0);
        }
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        Self(Serialized::begin(call, unsafe { Unchecked::new::<Cq>(cq) }, Serial::Poll))
    }
}

impl Guard for PollGuard {
    fn end(self, _call: &Call, _status: NTSTATUS) {
        self.0.end();
    }
}

/// A receive posted to a shared receive queue.
pub struct SrqGuard(Serialized, Option<u32>);

impl SrqGuard {
    /// # Safety
    /// `srq` is open; `sgl` is null or has `count` elements.
    //= R-SRQ-4, R-QP-43
    pub unsafe fn new(call: &Call, srq: *mut NDK_SRQ, sgl: *const NDK_SGE, count: u32) -> Self {
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        let serialized = Serialized::begin(call, unsafe { Unchecked::new::<Srq>(srq) }, Serial::Receive);
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        let opened = unsafe { Borrow::<Srq>::new(srq) };
        // SAFETY: the list is the consumer's argument: null, or `count` elements that stay as they are during the call.
        let unknown = opened.and_then(|srq| unsafe { unknown_token(srq.pd(), sgl, count, true) });
        Self(serialized, unknown)
    }
}

impl Guard for SrqGuard {
    fn end(self, call: &Call, status: NTSTATUS) {
        self.0.end();
        report_token(call, status, self.1);
    }
}

/// A receive posted to a queue pair.
pub struct ReceiveGuard(Serialized, Option<u32>);

impl ReceiveGuard {
    /// # Safety
    /// `qp` is open; `sgl` is null or has `count` elements.
    //= R-QP-8, R-QP-9, R-QP-43
    pub unsafe fn new(call: &Call, qp: *mut NDK_QP, sgl: *const NDK_SGE, count: u32) -> Self {
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        let serialized = Serialized::begin(call, unsafe { Unchecked::new::<Qp>(qp) }, Serial::Receive);
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        let opened = unsafe { Borrow::<Qp>::new(qp) };
        // SAFETY: the list is the consumer's argument: null, or `count` elements that stay as they are during the call.
        let unknown = opened.and_then(|qp| unsafe { unknown_token(qp.pd(), sgl, count, true) });
        Self(serialized, unknown)
    }
}

impl Guard for ReceiveGuard {
    fn end(self, call: &Call, status: NTSTATUS) {
        self.0.end();
        report_token(call, status, self.1);
    }
}

/// A request posted to the initiator queue.
pub struct InitiatorGuard {
    serialized: Serialized,
    unknown: Option<u32>,
    never_connected: bool,
}

impl InitiatorGuard {
    /// `is_read`: the elements are written.
    ///
    /// # Safety
    /// `qp` is open; `sgl` is null or has `count` elements.
    //= R-QP-8, R-QP-9, R-QP-43
    pub unsafe fn new(
        call: &Call,
        qp: *mut NDK_QP,
        sgl: *const NDK_SGE,
        count: u32,
        flags: u32,
        is_read: bool,
    ) -> Self {
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        let serialized = Serialized::begin(call, unsafe { Unchecked::new::<Qp>(qp) }, Serial::Initiator);
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        let Some(qp) = (unsafe { Borrow::<Qp>::new(qp) }) else {
            return Self { serialized, unknown: None, never_connected: false };
        };
        let unknown = if flags & NDK_OP_FLAG_INLINE != 0 {
            None
        } else {
            // SAFETY: the list is the consumer's argument: null, or `count` elements that stay as they are during the call.
            unsafe { unknown_token(qp.pd(), sgl, count, is_read) }
        };
        Self { serialized, unknown, never_connected: qp.was_never_connected() }
    }
}

impl Guard for InitiatorGuard {
    fn end(self, call: &Call, status: NTSTATUS) {
        self.serialized.end();
        report_token(call, status, self.unknown);
        if self.never_connected && status == STATUS_CONNECTION_INVALID {
            call.report(Mistake::NotConnected, status.cast_unsigned());
        }
    }
}

/// Reports an element of a request that was accepted. The engine fails the request when it is executed.
fn report_token(call: &Call, status: NTSTATUS, unknown: Option<u32>) {
    if let (STATUS_SUCCESS, Some(token)) = (status, unknown) {
        call.report(Mistake::UnknownToken, token);
    }
}

/// Returns the token of the first element that cannot become valid.
///
/// # Safety
/// `sgl` is null or has `count` elements.
#[inline(never)]
unsafe fn unknown_token(pd: &Pd, sgl: *const NDK_SGE, count: u32, write: bool) -> Option<u32> {
    const _: () = assert!(MAX_SGES <= 64 && LIMITS.read_sges as usize <= MAX_SGES);
    let mut copy = [Sge::default(); MAX_SGES];
    // SAFETY: the list is the consumer's argument: null, or `count` elements that stay as they are during the call.
    let sges = unsafe { sges(sgl, count, &mut copy) }.ok()?;
    let engine = &pd.provider().engine;
    //= R-QP-15
    let mut used = sges.iter().filter(|sge| sge.length != 0);
    used.find(|sge| !engine.memory().is_known_local(pd.domain(), sge, write)).map(|sge| sge.key)
}
