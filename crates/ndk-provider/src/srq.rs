//! Shared receive queues. Arming and thresholds are the engine's.

use crate::dispatch;
use crate::info::LIMITS;
use crate::object::{Body, Context, Created, Ref};
use crate::pd::Pd;
use crate::registry::{Registry, Ticket};
use crate::status::{self, Answer};
use ndk_abi::ndk::{NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_OBJECT_TYPE, NDK_SRQ, NDK_SRQ_DISPATCH};
use ndk_abi::nt::STATUS_INVALID_PARAMETER;
use nt::RawSpinLock;
use roce::{Arc, RecvRequest, Sge, SrqSpec};

/// What is special to a shared receive queue.
pub struct Srq {
    pub(crate) ticket: Ticket,
    queue: Arc<roce::Srq<RawSpinLock>>,
    //= R-CREATE-31, R-SRQ-16
    notification: Option<Notification>,
    pd: Ref<Pd>,
}

/// Whom to tell.
#[derive(Clone, Copy)]
pub struct Notification {
    pub callback: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    pub context: Context,
}

impl Body for Srq {
    type Public = NDK_SRQ;
    type Dispatch = NDK_SRQ_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeSrq;
    const DISPATCH: &'static NDK_SRQ_DISPATCH = &dispatch::srq::TABLE;

    //= R-SRQ-21, R-SRQ-22
    fn finish(&self) {
        self.ticket.leave();
        let core = self.pd.core();
        core.engine.destroy_srq(&self.queue);
        core.quotas.srqs.give_back();
    }
}

impl Srq {
    //= R-CREATE-29, R-SRQ-14, R-SRQ-15
    pub fn create(
        pd: &Ref<Pd>,
        depth: u32,
        sges: u32,
        threshold: u32,
        notification: Option<Notification>,
    ) -> Answer<Created<Self>> {
        if depth == 0 || depth > LIMITS.srq_depth || sges > LIMITS.receive_sges {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let core = pd.core();
        let admission = core.quotas.srqs.admit()?;
        let ticket = Registry::ticket(&core.registry)?;
        let spec = SrqSpec { depth, sges, threshold, context: ticket.number() };
        let queue = core.engine.create_srq(&spec).map_err(status::create)?;
        admission.keep();
        let srq = Self { ticket, queue, notification, pd: pd.clone() };
        let created = Created::try_new(pd.adapter().version(), srq)?;
        Ticket::enter(&created.hold());
        Ok(created)
    }

    //= R-SRQ-3, R-SRQ-5
    pub fn receive(&self, context: u64, sges: &[Sge]) -> Answer {
        self.pd.core().engine.post_srq(&self.queue, &RecvRequest { context, sges }).map_err(status::post)
    }

    /// 0 leaves either as it is.
    //= R-SRQ-7, R-SRQ-8, R-SRQ-9, R-SRQ-10, R-SRQ-11, R-SRQ-12
    pub fn modify(&self, depth: u32, threshold: u32) -> Answer {
        if depth > LIMITS.srq_depth {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let core = self.pd.core();
        core.engine.modify_srq(&self.queue, depth, threshold).map_err(status::modify)?;
        core.after_call();
        Ok(())
    }

    pub fn queue(&self) -> &Arc<roce::Srq<RawSpinLock>> {
        &self.queue
    }

    pub fn notification(&self) -> Option<Notification> {
        self.notification
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
