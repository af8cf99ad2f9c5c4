// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues and channels.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use fallible::Arc as EngineArc;
use roce::{Arm, Completion, CompletionKind, CompletionStatus, Cq, DestroyResult, Moderation};

use crate::Lock;
use crate::adapter::{Notice, Subscriber};
use crate::context::{AsyncEvent, AsyncEventKind, Context};
use crate::error::Error;
use crate::events::EventQueue;
use crate::limits;
use crate::users::{Unacknowledged, Users};

/// Completions that one call takes from the engine at a time.
const BATCH: usize = 32;

/// A work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// Of the request.
    pub id: u64,
    /// Number of the queue pair.
    pub qpn: u32,
    pub kind: CompletionKind,
    pub status: CompletionStatus,
    /// Length of the message received, or of the request.
    pub bytes: u32,
    pub immediate: Option<[u8; 4]>,
}

/// A channel of completion events, with a file descriptor.
#[derive(Debug)]
pub struct CompletionChannel {
    context: Arc<Context>,
    events: EventQueue<Weak<CompletionQueue>>,
    users: Users,
}

impl CompletionChannel {
    /// Creates a channel.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let events = EventQueue::new()?;
        Ok(Arc::new(Self { context: Arc::clone(context), events, users: Users::default() }))
    }

    /// Takes the next event: the token of a completion queue. Waits for one unless the descriptor does not block.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take(&self) -> Result<u64, Error> {
        loop {
            // What there is is found without waiting for the progress thread.
            self.context.device().adapter().attend();
            let count = |cq: &Weak<CompletionQueue>| {
                if let Some(cq) = cq.upgrade() {
                    cq.unacknowledged.taken();
                }
            };
            if let Some(cq) = self.events.take_counted(count)?.upgrade() {
                return Ok(cq.token);
            }
        }
    }

    /// Ends the use of the channel.
    ///
    /// # Errors
    /// [`Error::Busy`] if completion queues use it.
    pub fn destroy(&self) -> Result<(), Error> {
        self.users.check_none()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// A completion queue.
pub struct CompletionQueue {
    context: Arc<Context>,
    cq: EngineArc<Cq<Lock>>,
    id: u64,
    token: u64,
    channel: Option<Arc<CompletionChannel>>,
    users: Users,
    unacknowledged: Unacknowledged,
    own: Weak<Self>,
}

impl CompletionQueue {
    /// Creates a queue of `depth` entries, at least 1 and at most [`limits::COMPLETIONS`]. Its events name `token`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::OutOfMemory`].
    pub fn new(
        context: &Arc<Context>,
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
        token: u64,
    ) -> Result<Arc<Self>, Error> {
        check_depth(depth)?;
        let adapter = context.device().adapter();
        let id = adapter.cqs.context();
        let cq = adapter.engine.create_cq(depth, id)?;
        adapter.engine.arm_cq(&cq, Arm::Errors);
        if let Some(channel) = channel {
            channel.users.add();
        }
        let queue = Arc::new_cyclic(|own| Self {
            context: Arc::clone(context),
            cq,
            id,
            token,
            channel: channel.cloned(),
            users: Users::default(),
            unacknowledged: Unacknowledged::default(),
            own: own.clone(),
        });
        let subscriber: Arc<dyn Subscriber> = queue.clone();
        adapter.cqs.add(id, &subscriber);
        Ok(queue)
    }

    pub(crate) fn engine_cq(&self) -> EngineArc<Cq<Lock>> {
        self.cq.clone()
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Returns the context of the queue.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.cq.depth()
    }

    /// Takes up to `max` completions, and calls `each` with them. If there are none, drives the device and looks again. Returns their number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the queue has overflowed and holds no more completions.
    pub fn poll(&self, max: usize, mut each: impl FnMut(WorkCompletion)) -> Result<usize, Error> {
        let mut taken = self.take(max, &mut each);
        if taken == 0 && max > 0 {
            self.context.device().adapter().poll();
            taken = self.take(max, &mut each);
            if taken == 0 && self.cq.fault().is_some() {
                return Err(Error::Invalid);
            }
        }
        Ok(taken)
    }

    fn take(&self, max: usize, each: &mut dyn FnMut(WorkCompletion)) -> usize {
        let numbers = &self.context.device().adapter().numbers;
        let mut batch = [Completion::EMPTY; BATCH];
        let mut taken = 0;
        while taken < max {
            let wanted = (max - taken).min(BATCH);
            let polled = self.cq.poll(&mut batch[..wanted]);
            for completion in &batch[..polled] {
                // Those of destroyed queue pairs are dropped, as NICs do.
                if let Some(qpn) = numbers.get(completion.qp_context) {
                    each(of_engine(completion, qpn));
                    taken += 1;
                }
            }
            if polled < wanted {
                break;
            }
        }
        taken
    }

    /// Drops the unread completions of the queue pair that the engine names by `id`.
    pub(crate) fn discard(&self, id: u64) {
        self.cq.discard(id);
    }

    /// Requests an event for the next completion; with `solicited_only`, for the next one that is solicited or failed.
    pub fn request_event(&self, solicited_only: bool) {
        let adapter = self.context.device().adapter();
        adapter.engine.arm_cq(&self.cq, if solicited_only { Arm::Solicited } else { Arm::Any });
        adapter.attend();
        adapter.follow_up();
    }

    /// Returns the events for which the destruction waits. [`CompletionChannel::take`] counts those that it returns.
    #[must_use]
    pub fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Changes the number of entries.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the queue holds more completions, or the number is out of range; [`Error::OutOfMemory`].
    pub fn resize(&self, depth: u32) -> Result<(), Error> {
        check_depth(depth)?;
        self.context.device().engine().resize_cq(&self.cq, depth)?;
        Ok(())
    }

    /// Holds events back until there are `count` completions, at most for `period`; not at all if either is 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn moderate(&self, count: u16, period: Duration) -> Result<(), Error> {
        let moderated = count > 0 && !period.is_zero();
        let moderation =
            moderated.then_some(Moderation { interval: Some(period), count: Some(count.into()) });
        self.context.device().engine().moderate_cq(&self.cq, moderation)?;
        self.context.device().adapter().follow_up();
        Ok(())
    }

    /// Ends the use of the queue. Waits until the application has acknowledged its events.
    ///
    /// # Errors
    /// [`Error::Busy`] if queue pairs use it.
    pub fn destroy(&self) -> Result<(), Error> {
        self.users.check_none()?;
        let adapter = self.context.device().adapter();
        adapter.cqs.remove(self.id);
        if adapter.engine.destroy_cq(&self.cq) == DestroyResult::AfterNotice {
            adapter.finish_delivery();
        }
        if let Some(channel) = &self.channel {
            channel.events.remove(|event| event.ptr_eq(&self.own));
            channel.users.remove();
        }
        let is_own = |event: &AsyncEvent| event.kind == AsyncEventKind::CqError && event.token == self.token;
        self.context.async_events().remove(is_own);
        self.unacknowledged.wait();
        Ok(())
    }
}

impl Subscriber for CompletionQueue {
    fn handle(&self, notice: Notice) {
        let Notice::Completions(fault) = notice else { return };
        if fault.is_some() {
            let event = AsyncEvent { kind: AsyncEventKind::CqError, token: self.token };
            self.context.async_events().push(event);
            return;
        }
        if let Some(channel) = &self.channel {
            channel.events.push(self.own.clone());
        }
        // The notice has consumed the arm.
        self.context.device().engine().arm_cq(&self.cq, Arm::Errors);
    }
}

fn check_depth(depth: u32) -> Result<(), Error> {
    if (1..=limits::COMPLETIONS).contains(&depth) { Ok(()) } else { Err(Error::Invalid) }
}

fn of_engine(completion: &Completion, qpn: u32) -> WorkCompletion {
    WorkCompletion {
        id: completion.context,
        qpn,
        kind: completion.kind,
        status: completion.status,
        bytes: completion.bytes,
        immediate: completion.immediate,
    }
}
