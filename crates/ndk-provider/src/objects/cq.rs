// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.
//!
//! The engine implements arming, notification and moderation: it has at most one notice per queue, which counts as being
//! delivered until it is dropped.

use crate::base::calls::needed_memory::NeededMemory;
use crate::base::limits::{LIMITS, TIMER_GRANULARITY};
use crate::base::object::callback::CqNotification;
use crate::base::object::closed::CloseLater;
use crate::base::object::registry::{Registered, Registry, Ticket};
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::affinity::Affinity;
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::objects::adapter::Adapter;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::time::Duration;
use fallible::Arc;
use ndk_abi::ndk::{NDK_CQ, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OBJECT_TYPE};
use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_INVALID_PARAMETER_MIX};
use nt::RawSpinLock;
use roce::{Arm, Completion, Moderation};

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

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.adapter.provider())
    }

    //= R-CLOSE-26, R-CQ-59
    fn on_finish(&self) {
        let provider = self.adapter.provider();
        provider.engine.destroy_cq(&self.queue);
        provider.quotas.cqs.give_back();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.adapter.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.adapter.as_ptr().cast() == antecedent
    }
}

impl Cq {
    /// Returns the memory that creating a queue of `depth` completions needs, or giving it this depth.
    pub fn memory(depth: u32) -> NeededMemory {
        let is_refused = depth > LIMITS.cq_depth;
        if is_refused { NeededMemory::SMALL } else { NeededMemory::completion_queue(depth) }
    }

    /// `NdkCreateCq`. `depth` is in completions. The notification callback runs on a processor of `affinity`.
    //= R-CREATE-20, R-CREATE-21, R-CREATE-22, R-CREATE-25
    pub fn create(
        adapter: &Ref<Adapter>,
        depth: u32,
        notification: CqNotification,
        affinity: Option<Affinity>,
    ) -> NtResult<Created<Self>> {
        if !(1..=LIMITS.cq_depth).contains(&depth) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let provider = adapter.provider();
        let admission = provider.quotas.cqs.admit()?;
        let ticket = Registry::ticket(&provider.registry)?;
        let notice_queue = provider.notice_queue(affinity);
        let queue =
            provider.engine.create_cq_in(depth, ticket.number(), notice_queue).map_err(status::create)?;
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
        self.adapter.provider().engine.arm_cq(&self.queue, arm);
        self.leave_notices();
    }

    /// `NdkResizeCq`. `depth` is in completions.
    //= R-CQ-39, R-CQ-40, R-CQ-41
    pub fn resize(&self, depth: u32) -> NtResult {
        if !(1..=LIMITS.cq_depth).contains(&depth) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        self.adapter.provider().engine.resize_cq(&self.queue, depth).map_err(status::modify)?;
        self.leave_notices();
        Ok(())
    }

    /// `NdkControlCqInterruptModeration`. `interval` is in microseconds, `count` in completions.
    //= R-CQ-48, R-CQ-50, R-CQ-52, R-CQ-54
    pub fn moderate(&self, interval: u32, count: u32) -> NtResult {
        let moderation = moderation(interval, count, self.queue.depth())?;
        self.adapter.provider().engine.moderate_cq(&self.queue, moderation).map_err(status::modify)?;
        self.leave_notices();
        Ok(())
    }

    /// Leaves a notice to the DPC, or to the timer if it is held back.
    fn leave_notices(&self) {
        let provider = self.adapter.provider();
        if provider.engine.has_event() {
            provider.defer();
        }
        provider.set_timer();
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

/// Translates the parameters of `NdkControlCqInterruptModeration` for a queue of `depth` entries. `None`: no moderation.
///
/// The interval is rounded down by the granularity of the timer that ends it, so that the callback is not later than
/// the consumer asked. Intervals that are shorter become 0.
//= R-CQ-46, R-CQ-47, R-CQ-48, R-CQ-49
fn moderation(interval: u32, count: u32, depth: u32) -> NtResult<Option<Moderation>> {
    let unlimited = (interval == u32::MAX, count == u32::MAX || count > depth);
    let (interval, count) = match unlimited {
        (true, true) => return Err(STATUS_INVALID_PARAMETER_MIX),
        (true, false) => (None, Some(count)),
        (false, unlimited) => {
            let interval = Duration::from_micros(interval.into()).saturating_sub(TIMER_GRANULARITY);
            (Some(interval), (!unlimited).then_some(count))
        }
    };
    let none = interval == Some(Duration::ZERO) || count.is_some_and(|count| count <= 1);
    Ok((!none).then_some(Moderation { interval, count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-CQ-46, R-CQ-47, R-CQ-49, R-CQ-54
    #[test]
    fn moderation_parameters_are_translated() {
        let moderated = |interval, count| {
            Ok(Some(Moderation { interval: Option::map(interval, Duration::from_micros), count }))
        };
        let hour = 3_600_000_000;
        let table = [
            // Interval, count, result. The depth is 16.
            (0, 5, Ok(None)),
            (0, u32::MAX, Ok(None)),
            (hour, 0, Ok(None)),
            (hour, 1, Ok(None)),
            (u32::MAX, 0, Ok(None)),
            (u32::MAX, 1, Ok(None)),
            (hour, 2, moderated(Some(3_600_000_000 - 1020), Some(2))),
            (hour, 16, moderated(Some(3_600_000_000 - 1020), Some(16))),
            (hour, 17, moderated(Some(3_600_000_000 - 1020), None)),
            (hour, u32::MAX, moderated(Some(3_600_000_000 - 1020), None)),
            (u32::MAX, 2, moderated(None, Some(2))),
            (u32::MAX, 16, moderated(None, Some(16))),
            // What Microsoft's sample asks for.
            (20, u32::MAX, Ok(None)),
            (1020, 8, Ok(None)),
            (1021, 8, moderated(Some(1), Some(8))),
        ];
        for (interval, count, expected) in table {
            assert_eq!(moderation(interval, count, 16), expected, "{interval}, {count}");
        }
    }

    //= R-CQ-48
    #[test]
    fn moderation_without_any_limit_is_refused() {
        for count in [17, u32::MAX] {
            assert_eq!(moderation(u32::MAX, count, 16), Err(STATUS_INVALID_PARAMETER_MIX));
        }
        assert!(moderation(u32::MAX, 16, 16).is_ok());
    }
}
