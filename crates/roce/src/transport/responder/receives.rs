// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives of a queue pair: the posted ones, and the one that the current message fills.

use lock_api::RawMutex;

use super::fatal_nak::FatalNak;
use crate::error::CreateError;
use crate::qp_attributes::QpSpec;
use crate::recv_queue::{CurrentReceive, RecvQueue};
use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::work::{CompletionStatus, Sge};

/// The receives of a queue pair. With a shared receive queue, `queue` is empty.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Receives {
    pub(crate) queue: RecvQueue,
    /// The receive that the current message fills.
    pub(in crate::transport) current: CurrentReceive,
}

impl Receives {
    /// Without capacity.
    pub(super) const NONE: Self = Self { queue: RecvQueue::EMPTY, current: CurrentReceive::NONE };

    /// Allocates the receive queue, and room for the current receive.
    pub(super) fn initialize<R: RawMutex>(&mut self, spec: &QpSpec<R>) -> Result<(), CreateError> {
        let current_sges = spec.srq.as_ref().map_or(spec.recv_sges, |srq| srq.sges());
        let depth = if spec.srq.is_some() { 0 } else { spec.recv_depth };
        self.queue = RecvQueue::try_new(depth, spec.recv_sges)?;
        self.current = CurrentReceive::try_new(current_sges)?;
        Ok(())
    }

    /// Returns whether no receive is posted or in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.current.active
    }

    /// Returns whether an element of a receive is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.queue.has_element(wanted) || (self.current.active && self.current.sges().iter().any(wanted))
    }

    /// Makes the oldest receive the current one. Returns `false` when none is posted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    pub(in crate::transport) fn take<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        //= R-SRQ-1
        match &env.qp.srq {
            Some(srq) => {
                let (taken, follow) = srq.take(&mut self.current);
                env.shared.notices.apply_srq(srq, follow);
                taken
            }
            None => self.take_posted(),
        }
    }

    /// Writes payload to the current receive at `cursor`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small SEND")]
    pub(in crate::transport) fn write<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        cursor: &mut SgeCursor,
        payload: &[u8],
    ) -> Result<(), FatalNak> {
        let mut rest = payload;
        let sges = self.current.sges();
        cursor.walk(sges, payload.len() as u32, FatalNak::TOO_LONG, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(FatalNak::TOO_LONG)?;
            rest = later;
            let stored = env.regions.write_local(env.qp.pd, sge, within, now);
            stored.map_err(|AccessError| FatalNak::PROTECTION)
        })
    }

    /// Makes the oldest receive of the queue the current one. Returns `false` when none is posted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    pub(super) fn take_posted(&mut self) -> bool {
        self.queue.take(&mut self.current)
    }

    /// Completes the current receive with `status`, if there is one: its message failed.
    pub(in crate::transport) fn fail_current<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        status: CompletionStatus,
    ) {
        if core::mem::take(&mut self.current.active) {
            env.complete_receive(self.current.context, status);
        }
    }

    /// Drops all receives without completions.
    pub(super) fn reset(&mut self) {
        self.current.active = false;
        self.queue.clear();
    }

    /// Completes posted receives as flushed.
    pub(crate) fn drain<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while let Some(context) = self.queue.pop() {
            env.complete_receive(context, CompletionStatus::Flushed);
        }
    }
}
