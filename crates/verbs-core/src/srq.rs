// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues.

use std::sync::Arc;

use fallible::Arc as EngineArc;
use parking_lot::Mutex;
use roce::{DestroyResult, RecvRequest, Srq, SrqSpec};

use crate::Lock;
use crate::adapter::{Notice, Subscriber};
use crate::context::{AsyncEvent, AsyncEventKind};
use crate::error::Error;
use crate::limits;
use crate::memory::ProtectionDomain;
use crate::users::{Unacknowledged, Users};

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Receives that it holds.
    pub receives: u32,
    /// Scatter/gather elements of a receive.
    pub elements: u32,
    /// An event is delivered when it holds fewer receives; 0 for none.
    pub limit: u32,
}

/// A shared receive queue.
pub struct SharedReceiveQueue {
    pd: Arc<ProtectionDomain>,
    srq: EngineArc<Srq<Lock>>,
    id: u64,
    token: u64,
    attributes: Mutex<SrqAttributes>,
    users: Users,
    unacknowledged: Unacknowledged,
}

impl SharedReceiveQueue {
    /// Creates a queue. Returns it; its attributes are at least those asked for.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an attribute is out of range; [`Error::OutOfMemory`].
    pub fn new(pd: &Arc<ProtectionDomain>, asked: SrqAttributes, token: u64) -> Result<Arc<Self>, Error> {
        if asked.receives > limits::REQUESTS || asked.elements > limits::ELEMENTS {
            return Err(Error::Invalid);
        }
        let attributes =
            SrqAttributes { receives: asked.receives.max(1), elements: asked.elements.max(1), limit: 0 };
        let adapter = pd.device().adapter();
        let id = adapter.srqs.context();
        let spec =
            SrqSpec { depth: attributes.receives, sges: attributes.elements, threshold: 0, context: id };
        let srq = adapter.engine.create_srq(&spec)?;
        pd.users().add();
        let queue = Arc::new(Self {
            pd: Arc::clone(pd),
            srq,
            id,
            token,
            attributes: Mutex::new(attributes),
            users: Users::default(),
            unacknowledged: Unacknowledged::default(),
        });
        let subscriber: Arc<dyn Subscriber> = queue.clone();
        adapter.srqs.add(id, &subscriber);
        Ok(queue)
    }

    pub(crate) fn engine_srq(&self) -> EngineArc<Srq<Lock>> {
        self.srq.clone()
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the attributes.
    #[must_use]
    pub fn attributes(&self) -> SrqAttributes {
        *self.attributes.lock()
    }

    /// Changes the number of receives that the queue holds, and the limit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the queue holds more receives, or a value is out of range; [`Error::OutOfMemory`].
    pub fn modify(&self, receives: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let mut attributes = self.attributes.lock();
        let depth = receives.unwrap_or(attributes.receives);
        if !(1..=limits::REQUESTS).contains(&depth) || limit.is_some_and(|limit| limit > depth) {
            return Err(Error::Invalid);
        }
        self.pd.device().engine().modify_srq(&self.srq, receives.unwrap_or(0), limit.unwrap_or(0))?;
        attributes.receives = depth;
        attributes.limit = limit.unwrap_or(attributes.limit);
        drop(attributes);
        self.pd.device().adapter().follow_up();
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the queue is full; [`Error::Invalid`] if the request has too many elements.
    #[inline]
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        Ok(self.pd.device().engine().post_srq(&self.srq, request)?)
    }

    /// Returns the events for which the destruction waits.
    #[must_use]
    pub fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Ends the use of the queue. Waits until the application has acknowledged its events.
    ///
    /// # Errors
    /// [`Error::Busy`] if queue pairs use it.
    pub fn destroy(&self) -> Result<(), Error> {
        self.users.check_none()?;
        let adapter = self.pd.device().adapter();
        adapter.srqs.remove(self.id);
        if adapter.engine.destroy_srq(&self.srq) == DestroyResult::AfterNotice {
            adapter.finish_delivery();
        }
        let token = self.token;
        self.pd.context().async_events().remove(|event| !event.kind.is_of_qp() && event.token == token);
        self.unacknowledged.wait();
        self.pd.users().remove();
        Ok(())
    }
}

impl Subscriber for SharedReceiveQueue {
    fn handle(&self, notice: Notice) {
        if matches!(notice, Notice::Limit) {
            let limit = core::mem::take(&mut self.attributes.lock().limit);
            if limit == 0 {
                // The application has set it to 0 meanwhile, or since: the engine keeps the one before.
                return;
            }
            let event = AsyncEvent { kind: AsyncEventKind::SrqLimitReached, token: self.token };
            self.pd.context().async_events().push(event);
        }
    }
}
