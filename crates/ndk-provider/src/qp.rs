//! Queue pairs.
//!
//! A post is checked here for what only NDKPI knows (the flags, the consumer's number of elements) and by the
//! engine for the rest: the queue pair's state, the length, the room in the queue (
//! R-QP-18, R-QP-19, R-QP-23). A post that fails changes nothing (R-QP-61), except
//! that it ends a chain of deferred ones (R-QP-38).
//= R-QP-4, R-QP-16
//= R-QP-61
//= R-QP-38

use crate::cq::Cq;
use crate::dispatch;
use crate::info::LIMITS;
use crate::machine::machine;
use crate::object::{Body, Created, Ref};
use crate::pd::Pd;
use crate::srq::Srq;
use crate::status::{self, Answer};
use ndk_abi::ndk::{
    NDK_OBJECT_TYPE, NDK_OP_FLAG_DEFER, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
    NDK_OP_FLAG_READ_FENCE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS, NDK_QP,
    NDK_QP_DISPATCH,
};
use ndk_abi::nt::{
    STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER,
};
use nt::{RawSpinLock, SpinLock};
use roce::{Arc, Data, Operation, QpSpec, QpState, RecvRequest, SendFlags, SendRequest, Sge};

machine! {
    /// Whose queue pair it is.
    pub enum Attachment {
        Free,
        /// A connector is connecting with it or is connected.
        Attached,
        /// It was connected, and is not any more.
        Spent,
    }
    /// What happens to it.
    pub enum AttachmentEvent {
        /// A connect or an accept.
        Attach,
        /// That came to nothing, and the queue pair has seen nothing of the peer.
        Detach,
        /// The connection ended, came to nothing later than that, or the queue pair was flushed.
        Spend,
    }
    Free + Attach => Attached,
    Attached + Detach => Free,
    Attached + Spend => Spent,
    Free + Spend => Spent,
}

/// What is special to a queue pair.
pub struct Qp {
    pair: Arc<roce::Qp<RawSpinLock>>,
    /// Elements of a send or write, as asked for.
    initiator_sges: u32,
    attachment: SpinLock<Attachment>,
    pd: Ref<Pd>,
    /// The other antecedents.
    //= R-CLOSE-14
    _queues: (Ref<Cq>, Ref<Cq>, Option<Ref<Srq>>),
}

/// The sizes a consumer asks for.
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
}

impl Body for Qp {
    type Public = NDK_QP;
    type Dispatch = NDK_QP_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeQp;
    const DISPATCH: &'static NDK_QP_DISPATCH = &dispatch::qp::TABLE;

    //= R-CLOSE-24, R-CLOSE-25
    fn finish(&self) {
        let core = self.pd.core();
        core.engine.destroy_qp(&self.pair);
        core.quotas.qps.give_back();
        core.after_call();
    }
}

impl Qp {
    //= R-CREATE-33, R-CREATE-34, R-CREATE-36, R-CREATE-37, R-CREATE-38, R-CREATE-40
    pub fn create(
        pd: &Ref<Pd>,
        receive_cq: &Ref<Cq>,
        initiator_cq: &Ref<Cq>,
        srq: Option<&Ref<Srq>>,
        context: u64,
        sizes: Sizes,
    ) -> Answer<Created<Self>> {
        let adapter = pd.adapter();
        let kin = receive_cq.adapter().is(adapter)
            && initiator_cq.adapter().is(adapter)
            && srq.is_none_or(|srq| srq.pd().is(pd));
        if !kin || !sizes.within_limits() {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let core = pd.core();
        let admission = core.quotas.qps.admit()?;
        let spec = QpSpec {
            pd: pd.domain(),
            send_cq: Arc::clone(initiator_cq.queue()),
            recv_cq: Arc::clone(receive_cq.queue()),
            srq: srq.map(|srq| Arc::clone(srq.queue())),
            send_depth: sizes.initiator_depth,
            recv_depth: sizes.receive_depth,
            // A read may carry as many elements as the adapter says, whatever the queue pair asked for.
            send_sges: sizes.initiator_sges.max(LIMITS.read_sges),
            recv_sges: sizes.receive_sges,
            inline: sizes.inline,
            context,
        };
        let pair = core.engine.create_qp(spec).map_err(status::create)?;
        admission.keep();
        let qp = Self {
            pair,
            initiator_sges: sizes.initiator_sges,
            attachment: SpinLock::new(Attachment::Free),
            pd: pd.clone(),
            _queues: (receive_cq.clone(), initiator_cq.clone(), srq.cloned()),
        };
        Created::try_new(adapter.version(), qp)
    }

    /// Posts to the initiator queue, unless the consumer's list was not even readable.
    pub fn initiate(&self, context: u64, operation: Operation, data: Answer<Data<'_>>, flags: u32) -> Answer {
        let core = self.pd.core();
        let posted = data.and_then(|data| {
            let flags = self.check(operation, &data, flags)?;
            let request = SendRequest { context, operation, flags, data };
            core.engine.post_send(&self.pair, &request).map_err(status::post)
        });
        match posted {
            Ok(()) => core.after_call(),
            Err(_) => self.refuse(),
        }
        posted
    }

    /// A post to the initiator queue has failed: what was deferred before it starts.
    //= R-QP-38
    pub fn refuse(&self) {
        let core = self.pd.core();
        core.engine.undefer(&self.pair);
        core.after_call();
    }

    /// What only NDKPI knows of a post; and the flags for the engine.
    //= R-QP-14, R-QP-16, R-QP-17, R-QP-23, R-QP-32
    fn check(&self, operation: Operation, data: &Data<'_>, flags: u32) -> Answer<SendFlags> {
        let flags = send_flags(operation, flags).ok_or(STATUS_INVALID_PARAMETER)?;
        let limit = match operation {
            //= R-INFO-14
            Operation::Read { .. } => LIMITS.read_sges,
            _ => self.initiator_sges,
        };
        match data {
            Data::Sges(sges) if sges.len() > limit as usize => Err(STATUS_DATA_OVERRUN),
            _ => Ok(flags),
        }
    }

    /// Posts to the receive queue.
    //= R-QP-5, R-QP-84
    pub fn receive(&self, context: u64, sges: &[Sge]) -> Answer {
        let core = self.pd.core();
        let answer = core.engine.post_recv(&self.pair, &RecvRequest { context, sges }).map_err(status::post);
        core.after_receive();
        answer
    }

    //= R-QP-10, R-QP-62, R-QP-63, R-QP-64, R-QP-68, R-QP-69, R-QP-73
    pub fn flush(&self) {
        self.spend();
        let core = self.pd.core();
        core.engine.flush(&self.pair);
        core.after_call();
    }

    /// A connection is to be made with it.
    //= R-QP-75, R-QP-73
    pub fn attach(&self) -> Answer {
        let mut attachment = self.attachment.lock();
        let refusal = match *attachment {
            Attachment::Spent => STATUS_CONNECTION_INVALID,
            _ => STATUS_CONNECTION_ACTIVE,
        };
        *attachment = attachment.on(AttachmentEvent::Attach).ok_or(refusal)?;
        Ok(())
    }

    /// The connection came to nothing: another may be tried, unless the peer's requests were served already.
    //= R-QP-73, R-QP-74
    pub fn detach(&self) {
        let unused = self.pair.state() == QpState::Init;
        self.step(if unused { AttachmentEvent::Detach } else { AttachmentEvent::Spend });
    }

    /// The connection is over.
    pub fn spend(&self) {
        self.step(AttachmentEvent::Spend);
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

/// Flags that mean something to an operation, and what they mean to the engine.
//= R-QP-23, R-QP-24, R-QP-25, R-QP-31, R-QP-34, R-QP-35, R-QP-85
fn send_flags(operation: Operation, flags: u32) -> Option<SendFlags> {
    const ALL: u32 = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER;
    let known = match operation {
        Operation::Send | Operation::SendInvalidate { .. } => {
            ALL | NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT | NDK_OP_FLAG_INLINE
        }
        Operation::Write { .. } => ALL | NDK_OP_FLAG_INLINE,
        // Without the capability the last one is ignored.
        Operation::Read { .. } => ALL | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
        Operation::FastRegister { .. } | Operation::Invalidate { .. } | Operation::Bind { .. } => ALL,
    };
    let meanings = [
        (NDK_OP_FLAG_SILENT_SUCCESS, SendFlags::SILENT),
        (NDK_OP_FLAG_READ_FENCE, SendFlags::FENCE),
        (NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, SendFlags::SOLICITED),
        (NDK_OP_FLAG_DEFER, SendFlags::DEFER),
    ];
    (flags & !known == 0).then(|| {
        let asked = meanings.into_iter().filter(|(bit, _)| flags & bit != 0);
        asked.fold(SendFlags::empty(), |all, (_, meaning)| all | meaning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Operation = Operation::Read { address: 0, key: 1 };
    const WRITE: Operation = Operation::Write { address: 0, key: 1 };

    //= R-QP-23, R-QP-34
    #[test]
    fn a_flag_that_means_nothing_to_the_operation_is_refused() {
        assert_eq!(send_flags(Operation::Send, 1 << 31), None);
        assert_eq!(send_flags(READ, NDK_OP_FLAG_INLINE), None);
        assert_eq!(send_flags(WRITE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT), None);
        assert_eq!(send_flags(Operation::Send, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE), None);
    }

    //= R-QP-24, R-QP-25, R-QP-31
    #[test]
    fn every_other_flag_means_what_the_header_says() {
        assert_eq!(send_flags(Operation::Send, 1 | 2 | 4 | 0x40 | 0x200), Some(SendFlags::all()));
        assert_eq!(send_flags(WRITE, NDK_OP_FLAG_INLINE), Some(SendFlags::empty()));
        assert_eq!(send_flags(READ, 0x200), Some(SendFlags::DEFER));
        assert_eq!(send_flags(READ, 0x100), Some(SendFlags::empty()));
    }

    #[test]
    fn the_attachment_of_a_queue_pair() {
        insta::assert_snapshot!(crate::machine::print(Attachment::TABLE));
    }
}
