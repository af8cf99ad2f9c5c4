// SPDX-License-Identifier: MIT OR Apache-2.0

//! The completion queues of an endpoint, read in batches.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::time::Duration;

use ndk_abi::ndk::{NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_INFO, NDK_RESULT_EX};

use crate::{Adapter, Completions, Cq, Error, Moderation, Os, QpDepths, Waker};

/// Completions polled at once.
const BATCH: usize = 64;

/// One queue for all completions, or one for receives and one for the other requests.
pub struct Queues<O: Os> {
    /// The queue of the receives, and that of the other requests.
    cqs: [Arc<Cq<O>>; 2],
    completions: Completions<O>,
    batch: Batch,
    /// The completions of `batch` that are not processed yet.
    unprocessed: Range<usize>,
}

/// A batch of completions.
struct Batch(Box<[NDK_RESULT_EX; BATCH]>);

// SAFETY: the contexts in it are indices, which are never dereferenced.
unsafe impl Send for Batch {}

impl<O: Os> Queues<O> {
    /// Creates one queue.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn one(adapter: &Arc<Adapter<O>>, depths: &QpDepths) -> Result<Self, Error> {
        let (cq, completions) = Cq::new(adapter, depths.receives + depths.requests)
            .map_err(|status| Error::Call("NdkCreateCq", status))?;
        Ok(Self::of([Arc::clone(&cq), cq], completions))
    }

    /// Creates two queues, and moderates each if the adapter of `info` can do it.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn two(
        adapter: &Arc<Adapter<O>>,
        info: &NDK_ADAPTER_INFO,
        depths: &QpDepths,
        moderation: Moderation,
    ) -> Result<Self, Error> {
        let (cqs, completions) = Cq::pair(adapter, [depths.receives, depths.requests])
            .map_err(|status| Error::Call("NdkCreateCq", status))?;
        if info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED != 0 {
            for cq in &cqs {
                cq.moderate(moderation)
                    .map_err(|status| Error::Call("NdkControlCqInterruptModeration", status))?;
            }
        }
        Ok(Self::of(cqs, completions))
    }

    fn of(cqs: [Arc<Cq<O>>; 2], completions: Completions<O>) -> Self {
        let batch = Batch(Box::new([NDK_RESULT_EX::zeroed(); BATCH]));
        Self { cqs, completions, batch, unprocessed: 0..0 }
    }

    /// Returns the queue of the receives, and that of the other requests.
    pub const fn both(&self) -> &[Arc<Cq<O>>; 2] {
        &self.cqs
    }

    /// Returns a waker of [`wait`](Self::wait).
    pub fn waker(&self) -> Waker<O> {
        self.completions.waker()
    }

    /// Returns the next completion that was polled.
    pub fn next(&mut self) -> Option<NDK_RESULT_EX> {
        self.unprocessed.next().map(|index| self.batch.0[index])
    }

    /// Waits for completions up to `timeout`, after [`next`](Self::next) has returned `None`. Returns whether there are any.
    ///
    /// # Errors
    /// [`Error::Call`] with the error status of a queue.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let taken = self.completions.wait(&mut self.batch.0[..], timeout);
        self.unprocessed = 0..taken.map_err(|status| Error::Call("completion queue", status))?;
        Ok(!self.unprocessed.is_empty())
    }
}
