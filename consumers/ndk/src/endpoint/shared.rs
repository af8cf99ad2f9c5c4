// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives that several endpoints share.

use alloc::sync::Arc;

use crate::error::Error;
use crate::os::Os;
use crate::{Access, Adapter, Memory, Pd, Srq};

/// Flag of the contexts of shared receives; no request index has it.
const SHARED: usize = 1 << 63;

/// A shared receive queue with its message buffers. An endpoint reposts the buffers of the messages that it received.
pub struct SharedReceives<O: Os> {
    // Declared, and thus closed, before the memory that its receives use.
    queue: Arc<Srq<O>>,
    buffers: Memory<O>,
    /// Length of a buffer in bytes.
    message: usize,
    pd: Arc<Pd<O>>,
}

impl<O: Os> SharedReceives<O> {
    /// Creates a queue and posts `count` receives of `message` bytes.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn new(adapter: &Arc<Adapter<O>>, count: u32, message: usize) -> Result<Arc<Self>, Error> {
        let pd = Pd::new(adapter).map_err(|status| Error::Call("NdkCreatePd", status))?;
        let buffers = Memory::new(&pd, count as usize * message, Access::LocalWrite)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let queue = Srq::new(&pd, count, 1).map_err(|status| Error::Call("NdkCreateSrq", status))?;
        let this = Self { queue, buffers, message, pd };
        (0..count as usize).try_for_each(|buffer| this.post(buffer))?;
        Ok(Arc::new(this))
    }

    /// Returns the buffer of a request context; `None` if it is not that of a shared receive.
    pub fn buffer(&self, context: usize) -> Option<usize> {
        let buffer = context & !SHARED;
        (context & SHARED != 0 && buffer * self.message < self.buffers.len()).then_some(buffer)
    }

    /// Copies a message out of its buffer.
    pub fn load(&self, buffer: usize, into: &mut [u8]) {
        self.buffers.load(buffer * self.message, into);
    }

    /// Posts a buffer whose message was processed.
    pub fn post(&self, buffer: usize) -> Result<(), Error> {
        let sge = self.buffers.sge(buffer * self.message, self.message);
        self.queue.receive(buffer | SHARED, &[sge]).map_err(|status| Error::Call("NdkSrqReceive", status))
    }

    pub fn queue(&self) -> &Arc<Srq<O>> {
        &self.queue
    }

    pub fn pd(&self) -> &Arc<Pd<O>> {
        &self.pd
    }
}
