// SPDX-License-Identifier: MIT OR Apache-2.0

//! The direct OID requests that are in progress.

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_PENDING};
use nt_sim::Event;
use parking_lot::Mutex;

use crate::wait::wait_until;

/// The direct requests of an adapter that are in progress, by the address of the request.
#[derive(Default)]
pub(crate) struct DirectOids(Mutex<BTreeMap<usize, Arc<Pending>>>);

/// A request that is in progress.
pub(crate) struct Pending {
    pub done: Event,
    status: Mutex<NDIS_STATUS>,
}

impl DirectOids {
    /// Records a request before the miniport gets it; `done` is set by its completion.
    pub fn begin(&self, request: usize, done: Event) -> Arc<Pending> {
        let pending = Arc::new(Pending { done, status: Mutex::new(NDIS_STATUS_PENDING) });
        self.0.lock().insert(request, pending.clone());
        pending
    }

    /// Records the end of a request; `None` if it is not in progress.
    pub fn end(&self, request: usize) -> Option<Arc<Pending>> {
        self.0.lock().remove(&request)
    }

    /// Waits until no request is in progress: NDIS does not halt an adapter that has some.
    pub fn wait_for_none(&self) {
        wait_until(|| self.0.lock().is_empty());
    }
}

impl Pending {
    /// Returns the status of the completion.
    pub fn status(&self) -> NDIS_STATUS {
        *self.status.lock()
    }

    pub fn complete(&self, status: NDIS_STATUS) {
        *self.status.lock() = status;
        self.done.set();
    }
}
