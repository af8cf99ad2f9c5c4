// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attributes of a queue pair that do not change after its creation.

use lock_api::RawMutex;

use crate::cq::Cq;
use crate::region::access_rights::{Pd, Scope};
use crate::srq::Srq;
use fallible::Arc;
use roce_wire::Qpn;

/// Parameters of [`Engine::create_qp`](crate::Engine::create_qp).
#[derive(Debug)]
pub struct QpSpec<R: RawMutex> {
    pub pd: Pd,
    /// Completion queue of the send queue.
    pub send_cq: Arc<Cq<R>>,
    /// Completion queue of receives; may be the same.
    pub recv_cq: Arc<Cq<R>>,
    /// Shared receive queue to use instead of a receive queue.
    pub srq: Option<Arc<Srq<R>>>,
    /// Capacity of the send queue, in requests.
    pub send_depth: u32,
    /// Capacity of the receive queue, in requests; ignored with a shared receive queue.
    pub recv_depth: u32,
    /// Scatter/gather elements per request of the send queue. READs may have more, see
    /// [`Config::read_sges`](crate::Config::read_sges).
    pub send_sges: u32,
    /// Scatter/gather elements per receive; ignored with a shared receive queue.
    pub recv_sges: u32,
    /// Bytes of inline data per request of the send queue.
    pub inline: u32,
    /// Returned in completions.
    pub context: u64,
}

/// Attributes that a queue pair was created with.
#[derive(Debug)]
pub(crate) struct QpAttributes<R: RawMutex> {
    pub(crate) qpn: Qpn,
    /// Index of its slot in the engine's table; identifies its timer.
    pub(crate) index: u32,
    pub(crate) pd: Pd,
    pub(crate) context: u64,
    /// Scatter/gather elements per request that the send queue has room for from the start.
    pub(crate) send_sges: u32,
    pub(crate) send_cq: Arc<Cq<R>>,
    pub(crate) recv_cq: Arc<Cq<R>>,
    pub(crate) srq: Option<Arc<Srq<R>>>,
    /// See [`Config::relax`](crate::Config::relax).
    pub(crate) relax: fn(),
}

impl<R: RawMutex> QpAttributes<R> {
    /// Returns which keys the queue pair's requests and its peer may use.
    pub(crate) fn scope(&self) -> Scope {
        Scope { pd: self.pd, qpn: self.qpn }
    }
}
