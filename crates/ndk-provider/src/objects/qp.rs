// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.
//!
//! A post is checked here for what is specific to NDKPI (flags, number of elements) and by the engine for the
//! rest: the queue pair's state, the length, the space in the queue. A failed post
//! changes nothing, except that it ends a chain of deferred requests.
//= R-QP-4, R-QP-16, R-QP-18, R-QP-19, R-QP-23
//= R-QP-61
//= R-QP-38

use crate::base::calls::needed_memory::NeededMemory;
use crate::base::limits::LIMITS;
use crate::base::object::closed::CloseLater;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::srq::Srq;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{
    NDK_OBJECT_TYPE, NDK_OP_FLAG_DEFER, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
    NDK_OP_FLAG_READ_FENCE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS, NDK_QP,
};
use ndk_abi::nt::{
    STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER,
};
use nt::{RawSpinLock, SpinLock};
use roce::{QpSpec, QpState, RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge};
use state_table::state_table;

state_table! {
    /// Whether a connector uses the queue pair.
    pub enum Attachment {
        Free,
        /// A connector connects with it or is connected.
        Attached,
        /// It was connected and no longer is. It cannot connect again.
        Used,
    }
    /// Events of the attachment.
    pub enum AttachmentEvent {
        /// Connect or accept starts.
        Attach: Free => Attached;
        /// It failed before the queue pair processed a packet of the peer.
        Detach: Attached => Free;
        /// The connection ended, or failed later than that, or the queue pair was flushed.
        Use: Attached | Free => Used;
    }
}

/// The data of a queue pair object.
pub struct Qp {
    pair: Arc<roce::Qp<RawSpinLock>>,
    /// Maximum number of elements of a send or write, as requested at create.
    initiator_sges: u32,
    attachment: SpinLock<Attachment>,
    pd: Ref<Pd>,
    /// The other antecedents.
    //= R-CLOSE-14
    queues: Queues,
}

/// The queues that a queue pair uses.
pub struct Queues {
    pub receive_cq: Ref<Cq>,
    pub initiator_cq: Ref<Cq>,
    pub srq: Option<Ref<Srq>>,
}

/// The sizes that a consumer requests.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sges: u32,
    pub initiator_sges: u32,
    pub inline: u32,
}

impl Sizes {
    //= R-CREATE-32, R-CREATE-35, R-CREATE-39, R-INFO-32
    fn within_limits(&self) -> bool {
        self.receive_depth <= LIMITS.receive_depth
            && self.initiator_depth <= LIMITS.initiator_depth
            && self.receive_sges <= LIMITS.receive_sges
            && self.initiator_sges <= LIMITS.initiator_sges
            && self.inline <= LIMITS.inline
    }

    /// Returns the memory that creating the queue pair needs.
    pub fn memory(&self) -> NeededMemory {
        if !self.within_limits() {
            // It is refused at once.
            return NeededMemory::SMALL;
        }
        NeededMemory::queue_pair(
            [self.receive_depth, self.initiator_depth],
            [self.receive_sges, self.initiator_sges],
            self.inline,
        )
    }
}

impl ObjectType for Qp {
    type Public = NDK_QP;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeQp;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.pd.provider())
    }

    //= R-CLOSE-24, R-CLOSE-25
    fn on_finish(&self) {
        let provider = self.pd.provider();
        provider.engine.destroy_qp(&self.pair);
        provider.quotas.qps.give_back();
        provider.after_call();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.pd.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        let Queues { receive_cq, initiator_cq, srq } = &self.queues;
        self.pd.as_ptr().cast() == antecedent
            || receive_cq.as_ptr().cast() == antecedent
            || initiator_cq.as_ptr().cast() == antecedent
            || srq.as_ref().is_some_and(|srq| srq.as_ptr().cast() == antecedent)
    }

    fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.pair.has_element(wanted)
    }
}

impl Qp {
    /// `NdkCreateQp` and `NdkCreateQpWithSrq`.
    //= R-CREATE-33, R-CREATE-34, R-CREATE-36, R-CREATE-37, R-CREATE-38, R-CREATE-40
    pub fn create(pd: &Ref<Pd>, queues: Queues, context: u64, sizes: Sizes) -> NtResult<Created<Self>> {
        let adapter = pd.adapter();
        let Queues { receive_cq, initiator_cq, srq } = &queues;
        let same_miniport =
            receive_cq.adapter().is_sibling_of(adapter) && initiator_cq.adapter().is_sibling_of(adapter);
        //= R-CREATE-53
        let same_domain = srq.as_ref().is_none_or(|srq| srq.pd().is(pd));
        if !same_miniport || !same_domain || !sizes.within_limits() {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let provider = pd.provider();
        let admission = provider.quotas.qps.admit()?;
        let spec = QpSpec {
            pd: pd.domain(),
            send_cq: Arc::clone(initiator_cq.queue()),
            recv_cq: Arc::clone(receive_cq.queue()),
            srq: srq.as_ref().map(|srq| Arc::clone(srq.queue())),
            send_depth: sizes.initiator_depth,
            recv_depth: sizes.receive_depth,
            send_sges: sizes.initiator_sges,
            recv_sges: sizes.receive_sges,
            inline: sizes.inline,
            context,
        };
        let pair = provider.engine.create_qp(spec).map_err(status::create)?;
        admission.keep();
        let qp = Self {
            pair,
            initiator_sges: sizes.initiator_sges,
            attachment: SpinLock::new(Attachment::Free),
            pd: pd.clone(),
            queues,
        };
        Created::try_new(adapter.version(), qp)
    }

    /// Posts to the initiator queue. `data` is an error if the consumer's list could not be read.
    pub fn post(
        &self,
        context: u64,
        operation: SendOperation,
        data: NtResult<SendData<'_>>,
        flags: u32,
    ) -> NtResult {
        let provider = self.pd.provider();
        let posted = data.and_then(|data| {
            let flags = self.check(operation, &data, flags)?;
            let request = SendRequest { context, operation, flags, data };
            provider.engine.post_send(&self.pair, &request).map_err(status::post)
        });
        match posted {
            Ok(()) => provider.after_post(&self.pair),
            Err(_) => self.post_failed(),
        }
        posted
    }

    /// Starts deferred requests after a post to the initiator queue has failed.
    //= R-QP-38
    pub fn post_failed(&self) {
        let provider = self.pd.provider();
        provider.engine.undefer(&self.pair);
        provider.after_post(&self.pair);
    }

    /// Checks what is specific to NDKPI and returns the flags for the engine.
    //= R-QP-14, R-QP-16, R-QP-17, R-QP-23, R-QP-32
    fn check(&self, operation: SendOperation, data: &SendData<'_>, flags: u32) -> NtResult<SendFlags> {
        let flags = send_flags(operation, flags).ok_or(STATUS_INVALID_PARAMETER)?;
        let limit = match operation {
            //= R-INFO-14
            SendOperation::Read { .. } => LIMITS.read_sges,
            _ => self.initiator_sges,
        };
        match data {
            SendData::Sges(sges) if sges.len() > limit as usize => Err(STATUS_DATA_OVERRUN),
            _ => Ok(flags),
        }
    }

    /// `NdkReceive`.
    //= R-QP-5, R-QP-84
    pub fn receive(&self, context: u64, sges: &[Sge]) -> NtResult {
        let provider = self.pd.provider();
        let answer =
            provider.engine.post_recv(&self.pair, &RecvRequest { context, sges }).map_err(status::post);
        provider.after_receive();
        answer
    }

    /// `NdkFlush`. Ends a connection; a queue pair without one stays usable.
    //= R-QP-10, R-QP-62, R-QP-63, R-QP-64, R-QP-68, R-QP-69, R-QP-73
    pub fn flush(&self) {
        let provider = self.pd.provider();
        if !provider.engine.flush_unconnected(&self.pair) {
            self.set_used();
            provider.engine.flush(&self.pair);
        }
        provider.after_call();
    }

    /// Reserves the queue pair for a connection.
    ///
    /// # Errors
    /// `STATUS_CONNECTION_ACTIVE` if it is in use, `STATUS_CONNECTION_INVALID` if it was.
    //= R-QP-75, R-QP-73
    pub fn attach(&self) -> NtResult {
        let mut attachment = self.attachment.lock();
        let error = match *attachment {
            Attachment::Used => STATUS_CONNECTION_INVALID,
            _ => STATUS_CONNECTION_ACTIVE,
        };
        *attachment = attachment.on(AttachmentEvent::Attach).map_err(|_| error)?;
        Ok(())
    }

    /// Releases the queue pair after a failed connect or accept. It may connect again unless requests of the peer
    /// were processed already.
    //= R-QP-73, R-QP-74
    pub fn detach(&self) {
        let unused = self.pair.state() == QpState::Init;
        self.step(if unused { AttachmentEvent::Detach } else { AttachmentEvent::Use });
    }

    /// Marks the queue pair as used: its connection has ended.
    pub fn set_used(&self) {
        self.step(AttachmentEvent::Use);
    }

    /// Returns whether no connector has used the queue pair.
    #[cfg(feature = "strict")]
    pub fn was_never_connected(&self) -> bool {
        *self.attachment.lock() == Attachment::Free && self.pair.state() == QpState::Init
    }

    /// Returns whether a connector has used the queue pair and no longer does: it cannot connect again.
    #[cfg(feature = "strict")]
    pub fn was_connected(&self) -> bool {
        *self.attachment.lock() == Attachment::Used
    }

    fn step(&self, event: AttachmentEvent) {
        let mut attachment = self.attachment.lock();
        *attachment = attachment.on(event).unwrap_or(*attachment);
    }

    pub fn pair(&self) -> &Arc<roce::Qp<RawSpinLock>> {
        &self.pair
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}

/// Returns the engine's flags for `NDK_OP_FLAG_*`, or `None` if a flag is not valid for the operation.
//= R-QP-23, R-QP-24, R-QP-25, R-QP-31, R-QP-34, R-QP-35, R-QP-85
fn send_flags(operation: SendOperation, flags: u32) -> Option<SendFlags> {
    const ALL: u32 = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER;
    let valid = match operation {
        SendOperation::Send | SendOperation::SendInvalidate { .. } => {
            ALL | NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT | NDK_OP_FLAG_INLINE
        }
        SendOperation::Write { .. } => ALL | NDK_OP_FLAG_INLINE,
        SendOperation::Read { .. } => ALL | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
        SendOperation::FastRegister { .. }
        | SendOperation::Invalidate { .. }
        | SendOperation::Bind { .. } => ALL,
    };
    let flag_map = [
        (NDK_OP_FLAG_SILENT_SUCCESS, SendFlags::SILENT),
        (NDK_OP_FLAG_READ_FENCE, SendFlags::FENCE),
        (NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, SendFlags::SOLICITED),
        (NDK_OP_FLAG_DEFER, SendFlags::DEFER),
        (NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE, SendFlags::INVALIDATE_SINK),
    ];
    (flags & !valid == 0).then(|| {
        let requested = flag_map.into_iter().filter(|(bit, _)| flags & bit != 0);
        requested.fold(SendFlags::empty(), |all, (_, flag)| all | flag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: SendOperation = SendOperation::Read { address: 0, key: 1 };
    const WRITE: SendOperation = SendOperation::Write { address: 0, key: 1 };

    //= R-QP-23, R-QP-34
    #[test]
    fn flag_that_is_not_valid_for_the_operation_is_refused() {
        assert_eq!(send_flags(SendOperation::Send, 1 << 31), None);
        assert_eq!(send_flags(READ, NDK_OP_FLAG_INLINE), None);
        assert_eq!(send_flags(WRITE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT), None);
        assert_eq!(send_flags(SendOperation::Send, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE), None);
    }

    //= R-QP-24, R-QP-25, R-QP-31
    #[test]
    fn valid_flags_are_translated() {
        assert_eq!(
            send_flags(SendOperation::Send, 1 | 2 | 4 | 0x40 | 0x200),
            Some(!SendFlags::INVALIDATE_SINK)
        );
        assert_eq!(send_flags(WRITE, NDK_OP_FLAG_INLINE), Some(SendFlags::empty()));
        assert_eq!(send_flags(READ, 0x200), Some(SendFlags::DEFER));
        assert_eq!(send_flags(READ, 0x100), Some(SendFlags::INVALIDATE_SINK));
    }

    //= R-QP-35
    #[test]
    fn every_initiator_request_may_be_deferred() {
        let key = 1;
        let others = [
            SendOperation::Send,
            SendOperation::SendInvalidate { key },
            SendOperation::FastRegister { key },
            SendOperation::Invalidate { key },
            SendOperation::Bind { key },
        ];
        for operation in others.into_iter().chain([READ, WRITE]) {
            assert_eq!(send_flags(operation, NDK_OP_FLAG_DEFER), Some(SendFlags::DEFER), "{operation:?}");
        }
    }

    #[test]
    fn queue_pair_attachment() {
        insta::assert_snapshot!(Attachment::table());
    }
}
