// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attributes of queue pairs.

use roce::Access;
use roce_wire::PathMtu;

use crate::limits;

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection (RC).
    Reliable,
    /// Unreliable connection (UC).
    Unreliable,
    /// Unreliable datagram (UD).
    Datagram,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QpState {
    #[default]
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    /// Requests that have begun are completed, and no others are begun (SQD).
    Drained,
    /// A request of an unreliable service failed (SQE). Receives go on.
    SendError,
    Error,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub send_requests: u32,
    pub receive_requests: u32,
    pub send_elements: u32,
    pub receive_elements: u32,
    /// Bytes.
    pub inline: u32,
}

impl Capabilities {
    /// Returns what a queue pair has that is asked for these; `None` if it is more than the limits.
    pub(super) fn granted(self) -> Option<Self> {
        let within = self.send_requests <= limits::REQUESTS
            && self.receive_requests <= limits::REQUESTS
            && self.send_elements <= limits::ELEMENTS
            && self.receive_elements <= limits::ELEMENTS
            && self.inline <= limits::INLINE;
        within.then(|| Self {
            send_requests: self.send_requests.max(1),
            receive_requests: self.receive_requests.max(1),
            send_elements: self.send_elements.max(1),
            receive_elements: self.receive_elements.max(1),
            inline: self.inline.max(limits::MIN_INLINE),
        })
    }
}

/// The path to a peer, as the application names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    pub gid: [u8; 16],
    pub flow_label: u32,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub service_level: u8,
    pub port: u8,
    /// Whether there is a GID, which frames of RoCE need.
    pub is_global: bool,
}

/// Attributes that modifications set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    pub state: QpState,
    /// The state that the application expects before a modification.
    pub current_state: QpState,
    pub access: Access,
    pub pkey_index: u16,
    pub port: u8,
    pub q_key: u32,
    pub path: AddressVector,
    pub path_mtu: PathMtu,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub receive_psn: u32,
    pub send_psn: u32,
    pub outbound_reads: u8,
    pub inbound_reads: u8,
    pub rnr_timer: u8,
    pub destination: u32,
    /// With a change to [`QpState::Drained`]: an event follows when the requests that have begun are complete.
    pub drain_event: bool,
    /// In [`QpState::Drained`]: requests that have begun are not complete.
    pub draining: bool,
}

impl Default for QpAttributes {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            current_state: QpState::Reset,
            access: Access::empty(),
            pkey_index: 0,
            port: 0,
            q_key: 0,
            path: AddressVector::default(),
            path_mtu: PathMtu::Bytes1024,
            timeout: 0,
            retries: 0,
            rnr_retries: 0,
            receive_psn: 0,
            send_psn: 0,
            outbound_reads: 0,
            inbound_reads: 0,
            rnr_timer: 0,
            destination: 0,
            drain_event: false,
            draining: false,
        }
    }
}
