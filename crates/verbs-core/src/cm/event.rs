// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of connection management.

use std::sync::Arc;

use roce::{PrivateData, ReadLimits};

use crate::qp::AddressVector;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmEventKind {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    ConnectRequest,
    /// The peer accepted. The queue pair is to be made ready, and the connection established.
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
}

/// Values that the peer has sent with an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters {
    pub private_data: PrivateData,
    pub reads: ReadLimits,
    pub retries: u8,
    pub rnr_retries: u8,
    /// Number of the peer's queue pair.
    pub qpn: u32,
    /// Of a queue pair for datagrams.
    pub q_key: u32,
    /// The path to the peer.
    pub path: AddressVector,
}

/// An event of an identifier of type `T`.
#[derive(Debug)]
pub struct CmEvent<T> {
    /// The identifier that it is about; for a request, that of the new connection.
    pub id: Arc<T>,
    /// For a request, the identifier that listens.
    pub listener: Option<Arc<T>>,
    pub kind: CmEventKind,
    /// 0; the reason of a REJ; or a negative error number.
    pub status: i32,
    pub parameters: Parameters,
}

impl<T> CmEvent<T> {
    /// Returns the identifier whose destruction waits until the event is acknowledged.
    #[must_use]
    pub fn counted(&self) -> &Arc<T> {
        self.listener.as_ref().unwrap_or(&self.id)
    }
}
