// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: a ring of fixed size, an arm, and at most one notice at a time.
//!
//! Producers are queue pairs; the consumer polls. What the consumer asked to be told of is the *arm*;
//! what tells it is a *notice*, which the engine hands out through
//! [`Engine::poll_event`](crate::Engine::poll_event) and which counts as being delivered until it is
//! dropped. Of one queue there is never more than one notice in the world.

use alloc::vec::Vec;
use lock_api::{Mutex, RawMutex};

use crate::error::CreateError;
use crate::work::{Completion, CompletionStatus};
use fallible::Arc;
use fallible::vec;

/// What an armed queue tells of. In the order of the merge rule: of two arms the greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arm {
    /// Faults of the queue itself.
    Errors,
    /// Those, solicited receives, and requests that fail.
    Solicited,
    /// Those, and every other completion.
    Any,
}

impl Arm {
    pub const ALL: [Self; 3] = [Self::Errors, Self::Solicited, Self::Any];

    /// What counts when `self` is outstanding and `second` comes: whichever tells of more.
    #[must_use]
    pub fn merge(self, second: Self) -> Self {
        //= R-CQ-8
        self.max(second)
    }
}

/// Which arms a completion satisfies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interest {
    Plain,
    /// A solicited receive, or a failure.
    Solicited,
}

/// Why a queue cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CqFault {
    /// A completion found the queue full.
    Overflow,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq<R: RawMutex> {
    /// What the consumer knows it by.
    context: u64,
    /// Tells it from other queues of the engine.
    id: u64,
    state: Mutex<R, Ring>,
}

struct Ring {
    /// `depth` entries, the oldest at `head`.
    entries: Vec<Option<(Completion, Interest)>>,
    head: usize,
    len: usize,
    arm: Option<Arm>,
    /// How many of the unread completions came since the last notice began: the newest ones.
    fresh: usize,
    /// How many of those satisfy [`Arm::Solicited`].
    fresh_solicited: usize,
    fault: Option<CqFault>,
    fault_told: bool,
    notice: Notice,
    destroyed: bool,
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring")
            .field("depth", &self.entries.len())
            .field("len", &self.len)
            .field("arm", &self.arm)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

/// Where the one notice of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    /// In the engine's list of events.
    Queued,
    /// With the engine's driver. An arm given meanwhile waits until it is back.
    Delivering,
}

/// What a change to a queue makes necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum NoticeAction {
    None,
    /// Put a notice of the queue into the list of events.
    Queue,
}

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Pushed {
    pub(crate) action: NoticeAction,
    /// The queue has just become unusable.
    pub(crate) faulted: bool,
}

/// There is no such notice any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawn;

/// What became of a request to destroy a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestroyResult {
    /// The context will not be seen again.
    Now,
    /// A notice is with the driver; when it is dropped, an event tells that it was the last.
    AfterNotice,
}

impl<R: RawMutex> Cq<R> {
    pub(crate) fn try_new(depth: u32, context: u64, id: u64) -> Result<Arc<Self>, CreateError> {
        if depth == 0 {
            return Err(CreateError::Invalid);
        }
        //= R-CQ-31
        let entries = vec::filled(depth as usize, None)?;
        let state = Mutex::new(Ring {
            entries,
            head: 0,
            len: 0,
            arm: None,
            fresh: 0,
            fresh_solicited: 0,
            fault: None,
            fault_told: false,
            notice: Notice::None,
            destroyed: false,
        });
        Ok(Arc::try_new(Self { context, id, state })?)
    }

    /// What the queue was created with.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Entries that the queue holds without overflow.
    pub fn depth(&self) -> u32 {
        self.state.lock().entries.len() as u32
    }

    /// Unread completions.
    pub fn len(&self) -> u32 {
        self.state.lock().len as u32
    }

    /// Whether there is no unread completion.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why the queue is unusable, if it is.
    pub fn fault(&self) -> Option<CqFault> {
        self.state.lock().fault
    }

    /// Takes the oldest completions, as many as there are and `results` has room for. Returns how many.
    pub fn poll(&self, results: &mut [Completion]) -> usize {
        let mut ring = self.state.lock();
        let mut taken = 0;
        //= R-CQ-19
        //= R-CQ-36
        for result in results {
            let Some(completion) = ring.pop() else { break };
            *result = completion;
            taken += 1;
        }
        taken
    }

    pub(crate) fn push(&self, completion: Completion, solicited: bool) -> Pushed {
        let mut ring = self.state.lock();
        let nothing = Pushed { action: NoticeAction::None, faulted: false };
        //= R-CQ-32
        if ring.fault.is_some() || ring.destroyed {
            return nothing;
        }
        if ring.len == ring.entries.len() {
            ring.fault = Some(CqFault::Overflow);
            return Pushed { action: ring.notify_if_due(), faulted: true };
        }
        //= R-CQ-5
        //= R-CQ-6
        let interest = if solicited || completion.status != CompletionStatus::Success {
            Interest::Solicited
        } else {
            Interest::Plain
        };
        ring.append(completion, interest);
        Pushed { action: ring.notify_if_due(), faulted: false }
    }

    pub(crate) fn arm(&self, arm: Arm) -> NoticeAction {
        let mut ring = self.state.lock();
        if ring.destroyed {
            return NoticeAction::None;
        }
        //= R-CQ-8
        //= R-CQ-9
        ring.arm = Some(ring.arm.map_or(arm, |first| first.merge(arm)));
        ring.notify_if_due()
    }

    /// The queued notice goes to the driver, with the fault it tells of.
    pub(crate) fn begin_notice(&self) -> Result<Option<CqFault>, Withdrawn> {
        let mut ring = self.state.lock();
        if ring.destroyed || ring.notice != Notice::Queued {
            return Err(Withdrawn);
        }
        ring.notice = Notice::Delivering;
        //= R-CQ-10
        //= R-CQ-12
        // What is unread now is known to the consumer once it has been told; only what comes later makes
        // a new notice.
        ring.fresh = 0;
        ring.fresh_solicited = 0;
        let fault = ring.fault.filter(|_| !ring.fault_told);
        ring.fault_told |= fault.is_some();
        Ok(fault)
    }

    /// The driver is done with the notice. `true` when the queue was destroyed meanwhile.
    pub(crate) fn end_notice(&self) -> (NoticeAction, bool) {
        let mut ring = self.state.lock();
        //= R-CQ-14
        //= R-CQ-15
        // What satisfied an arm while the notice was out, and was read meanwhile, is no reason for
        // another one: the arm stays.
        ring.notice = Notice::None;
        (ring.notify_if_due(), ring.destroyed)
    }

    pub(crate) fn destroy(&self) -> DestroyResult {
        let mut ring = self.state.lock();
        ring.destroyed = true;
        ring.arm = None;
        match ring.notice {
            Notice::None | Notice::Queued => {
                ring.notice = Notice::None;
                DestroyResult::Now
            }
            Notice::Delivering => DestroyResult::AfterNotice,
        }
    }
}

impl<R: RawMutex> PartialEq for Cq<R> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<R: RawMutex> Eq for Cq<R> {}

impl Ring {
    fn pop(&mut self) -> Option<Completion> {
        let (completion, interest) = self.entries.get_mut(self.head)?.take()?;
        // The fresh ones are the newest, the oldest is read first.
        if self.fresh == self.len {
            self.fresh = self.fresh.saturating_sub(1);
            if interest == Interest::Solicited {
                self.fresh_solicited = self.fresh_solicited.saturating_sub(1);
            }
        }
        self.head = self.wrap(self.head.wrapping_add(1));
        self.len = self.len.saturating_sub(1);
        Some(completion)
    }

    /// There is room.
    fn append(&mut self, completion: Completion, interest: Interest) {
        let tail = self.wrap(self.head.wrapping_add(self.len));
        if let Some(entry) = self.entries.get_mut(tail) {
            *entry = Some((completion, interest));
            self.len += 1;
            self.fresh += 1;
            self.fresh_solicited += usize::from(interest == Interest::Solicited);
        }
    }

    /// `index`, which is less than two rounds, inside the first.
    fn wrap(&self, index: usize) -> usize {
        if index >= self.entries.len() { index.wrapping_sub(self.entries.len()) } else { index }
    }

    /// Whether something that `arm` tells of has happened since the last notice, and is still to be seen.
    fn satisfies(&self, arm: Arm) -> bool {
        //= R-CQ-35
        if self.fault.is_some() && !self.fault_told {
            return true;
        }
        match arm {
            //= R-CQ-3
            //= R-CQ-4
            //= R-CQ-10
            Arm::Any => self.fresh > 0,
            Arm::Solicited => self.fresh_solicited > 0,
            //= R-CQ-7
            Arm::Errors => false,
        }
    }

    /// Uses the arm up if it is satisfied and the notice is at hand.
    fn notify_if_due(&mut self) -> NoticeAction {
        //= R-CQ-1
        //= R-CQ-2
        //= R-CQ-13
        if self.destroyed || !self.arm.is_some_and(|arm| self.satisfies(arm)) {
            return NoticeAction::None;
        }
        match self.notice {
            Notice::None => {
                self.arm = None;
                self.notice = Notice::Queued;
                NoticeAction::Queue
            }
            // The notice on its way tells of this as well.
            Notice::Queued => {
                self.arm = None;
                NoticeAction::None
            }
            //= R-CQ-14
            Notice::Delivering => NoticeAction::None,
        }
    }
}
