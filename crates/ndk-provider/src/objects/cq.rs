// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.
//!
//! The engine implements arming and notification: it has at most one notice per queue, which counts as being
//! delivered until it is dropped.

use crate::base::callback::CqNotification;
use crate::base::limits::LIMITS;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::registry::{Registered, Registry, Ticket};
use crate::base::status::{self, NtResult};
use crate::objects::adapter::Adapter;
use fallible::Arc;
use ndk_abi::ndk::{NDK_CQ, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OBJECT_TYPE};
use ndk_abi::nt::STATUS_INVALID_PARAMETER;
use nt::RawSpinLock;
use roce::{Arm, Completion};

/// The data of a completion queue object.
pub struct Cq {
    ticket: Ticket,
    queue: Arc<roce::Cq<RawSpinLock>>,
    notification: CqNotification,
    adapter: Ref<Adapter>,
}

impl Registered for Cq {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl ObjectType for Cq {
    type Public = NDK_CQ;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;

    //= R-CLOSE-26, R-CQ-59
    fn on_finish(&self) {
        self.ticket.leave();
        let shared = self.adapter.shared();
        shared.engine.destroy_cq(&self.queue);
        shared.quotas.cqs.give_back();
    }
}

impl Cq {
    /// `NdkCreateCq`. `depth` is in completions.
    //= R-CREATE-20, R-CREATE-21, R-CREATE-22, R-CREATE-25
    pub fn create(
        adapter: &Ref<Adapter>,
        depth: u32,
        notification: CqNotification,
    ) -> NtResult<Created<Self>> {
        if !(1..=LIMITS.cq_depth).contains(&depth) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let shared = adapter.shared();
        let admission = shared.quotas.cqs.admit()?;
        let ticket = Registry::ticket(&shared.registry)?;
        let queue = shared.engine.create_cq(depth, ticket.number()).map_err(status::create)?;
        admission.keep();
        let cq = Self { ticket, queue, notification, adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), cq)?;
        Ticket::enter(&created.reference());
        Ok(created)
    }

    /// `NdkArmCq`. If a completion is due already, the DPC makes the callback.
    //= R-CQ-58
    pub fn arm(&self, kind: u32) {
        let arm = match kind {
            NDK_CQ_NOTIFY_ERRORS => Arm::Errors,
            NDK_CQ_NOTIFY_SOLICITED => Arm::Solicited,
            _ => Arm::Any,
        };
        let shared = self.adapter.shared();
        shared.engine.arm_cq(&self.queue, arm);
        if shared.engine.has_event() {
            shared.queue_dpc();
        }
    }

    /// Moves completions into `results` and returns their number.
    //= R-CQ-19, R-CQ-20
    pub fn poll(&self, results: &mut [Completion]) -> usize {
        self.queue.poll(results)
    }

    pub fn queue(&self) -> &Arc<roce::Cq<RawSpinLock>> {
        &self.queue
    }

    pub fn notification(&self) -> CqNotification {
        self.notification
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}
