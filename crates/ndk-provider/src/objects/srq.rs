// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues. The engine implements arming and thresholds.

use crate::base::calls::needed_memory::NeededMemory;
use crate::base::limits::LIMITS;
use crate::base::object::callback::SrqNotification;
use crate::base::object::closed::CloseLater;
use crate::base::object::registry::{Registered, Registry, Ticket};
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::affinity::Affinity;
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::objects::pd::Pd;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_SRQ};
use ndk_abi::nt::STATUS_INVALID_PARAMETER;
use nt::RawSpinLock;
use roce::{RecvRequest, Sge, SrqSpec};

/// The data of a shared receive queue object.
pub struct Srq {
    ticket: Ticket,
    queue: Arc<roce::Srq<RawSpinLock>>,
    //= R-CREATE-31, R-SRQ-16
    notification: Option<SrqNotification>,
    pd: Ref<Pd>,
}

impl Registered for Srq {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl ObjectType for Srq {
    type Public = NDK_SRQ;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeSrq;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.pd.provider())
    }

    //= R-SRQ-21, R-SRQ-22
    fn on_finish(&self) {
        let provider = self.pd.provider();
        provider.engine.destroy_srq(&self.queue);
        provider.quotas.srqs.give_back();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.pd.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.pd.as_ptr().cast() == antecedent
    }

    fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.queue.has_element(wanted)
    }
}

impl Srq {
    /// Returns the memory that creating the queue needs, or giving it this depth.
    pub fn memory(depth: u32, sges: u32) -> NeededMemory {
        let is_refused = depth > LIMITS.srq_depth || sges > LIMITS.receive_sges;
        if is_refused { NeededMemory::SMALL } else { NeededMemory::receive_queue(depth, sges) }
    }

    /// `NdkCreateSrq`. `depth` is in requests of up to `sges` elements. The notification callback runs on a processor of
    /// `affinity`.
    //= R-CREATE-29, R-SRQ-14, R-SRQ-15, R-SRQ-19
    pub fn create(
        pd: &Ref<Pd>,
        depth: u32,
        sges: u32,
        threshold: u32,
        notification: Option<SrqNotification>,
        affinity: Option<Affinity>,
    ) -> NtResult<Created<Self>> {
        if depth == 0 || depth > LIMITS.srq_depth || sges > LIMITS.receive_sges {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let provider = pd.provider();
        let admission = provider.quotas.srqs.admit()?;
        let ticket = Registry::ticket(&provider.registry)?;
        let spec = SrqSpec { depth, sges, threshold, context: ticket.number() };
        let queue =
            provider.engine.create_srq_in(&spec, provider.notice_queue(affinity)).map_err(status::create)?;
        admission.keep();
        let srq = Self { ticket, queue, notification, pd: pd.clone() };
        let created = Created::try_new(pd.adapter().version(), srq)?;
        Ticket::enter(&created.reference());
        Ok(created)
    }

    /// `NdkSrqReceive`.
    //= R-SRQ-3, R-SRQ-5
    pub fn receive(&self, context: u64, sges: &[Sge]) -> NtResult {
        self.pd.provider().engine.post_srq(&self.queue, &RecvRequest { context, sges }).map_err(status::post)
    }

    /// `NdkModifySrq`. 0 leaves the depth or the threshold unchanged.
    //= R-SRQ-7, R-SRQ-8, R-SRQ-9, R-SRQ-10, R-SRQ-11, R-SRQ-12
    pub fn modify(&self, depth: u32, threshold: u32) -> NtResult {
        if depth > LIMITS.srq_depth {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let provider = self.pd.provider();
        provider.engine.modify_srq(&self.queue, depth, threshold).map_err(status::modify)?;
        provider.after_call();
        Ok(())
    }

    pub fn queue(&self) -> &Arc<roce::Srq<RawSpinLock>> {
        &self.queue
    }

    pub fn notification(&self) -> Option<SrqNotification> {
        self.notification
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
