// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts: a device as the application has opened it, with a queue of asynchronous events.

use std::sync::Arc;

use crate::device::Device;
use crate::error::Error;
use crate::events::EventQueue;

/// An asynchronous event, with the token of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    pub kind: AsyncEventKind,
    /// Given by the application when the object was created.
    pub token: u64,
}

/// Kind of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncEventKind {
    /// A completion queue overflowed.
    CqError,
    /// A request of a queue pair failed fatally.
    QpFatal,
    /// An invalid request of the peer was refused.
    QpRequestError,
    /// A request of the peer violated access rights.
    QpAccessError,
    /// The requests are complete that a queue pair had begun before a change to SQD.
    SendQueueDrained,
    /// A shared receive queue fell below its limit.
    SrqLimitReached,
    /// A queue pair in error no longer takes receives of its shared receive queue.
    LastWqeReached,
}

impl AsyncEventKind {
    /// Returns whether it is an event of a queue pair.
    #[must_use]
    pub const fn is_of_qp(self) -> bool {
        matches!(
            self,
            Self::QpFatal
                | Self::QpRequestError
                | Self::QpAccessError
                | Self::SendQueueDrained
                | Self::LastWqeReached
        )
    }
}

/// An opened device.
#[derive(Debug)]
pub struct Context {
    device: Arc<Device>,
    async_events: EventQueue<AsyncEvent>,
}

impl Context {
    /// Opens a context of a device.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new(device: Arc<Device>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { device, async_events: EventQueue::new()? }))
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the queue of asynchronous events.
    #[must_use]
    pub fn async_events(&self) -> &EventQueue<AsyncEvent> {
        &self.async_events
    }
}
