//! Completion queues.
//!
//! The rules of arming and notifying are the engine's: of one queue it has at most one notice in the world,
//! and that one counts as being delivered until it is dropped.

use crate::adapter::Adapter;
use crate::dispatch;
use crate::info::LIMITS;
use crate::object::{Body, Context, Created, Ref};
use crate::registry::{Registry, Ticket};
use crate::status::{self, Answer};
use ndk_abi::ndk::{
    NDK_CQ, NDK_CQ_DISPATCH, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_FN_CQ_NOTIFICATION_CALLBACK,
    NDK_OBJECT_TYPE,
};
use ndk_abi::nt::STATUS_INVALID_PARAMETER;
use nt::RawSpinLock;
use roce::{Arc, Arm, Completion};

/// What is special to a completion queue.
pub struct Cq {
    pub(crate) ticket: Ticket,
    queue: Arc<roce::Cq<RawSpinLock>>,
    notification: Notification,
    adapter: Ref<Adapter>,
}

/// Whom to tell.
#[derive(Clone, Copy)]
pub struct Notification {
    pub callback: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    pub context: Context,
}

impl Body for Cq {
    type Public = NDK_CQ;
    type Dispatch = NDK_CQ_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;
    const DISPATCH: &'static NDK_CQ_DISPATCH = &dispatch::cq::TABLE;

    //= R-CLOSE-26, R-CQ-59
    fn finish(&self) {
        self.ticket.leave();
        let core = self.adapter.core();
        core.engine.destroy_cq(&self.queue);
        core.quotas.cqs.give_back();
    }
}

impl Cq {
    //= R-CREATE-20, R-CREATE-21, R-CREATE-22, R-CREATE-25
    pub fn create(adapter: &Ref<Adapter>, depth: u32, notification: Notification) -> Answer<Created<Self>> {
        if !(1..=LIMITS.cq_depth).contains(&depth) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let core = adapter.core();
        let admission = core.quotas.cqs.admit()?;
        let ticket = Registry::ticket(&core.registry)?;
        let queue = core.engine.create_cq(depth, ticket.number()).map_err(status::create)?;
        admission.keep();
        let cq = Self { ticket, queue, notification, adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), cq)?;
        Ticket::enter(&created.hold());
        Ok(created)
    }

    //= R-CQ-58
    pub fn arm(&self, kind: u32) {
        let arm = match kind {
            NDK_CQ_NOTIFY_ERRORS => Arm::Errors,
            NDK_CQ_NOTIFY_SOLICITED => Arm::Solicited,
            _ => Arm::Any,
        };
        let core = self.adapter.core();
        core.engine.arm_cq(&self.queue, arm);
        if core.engine.has_event() {
            core.kick();
        }
    }

    //= R-CQ-19, R-CQ-20
    pub fn poll(&self, results: &mut [Completion]) -> usize {
        self.queue.poll(results)
    }

    pub fn queue(&self) -> &Arc<roce::Cq<RawSpinLock>> {
        &self.queue
    }

    pub fn notification(&self) -> Notification {
        self.notification
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}
