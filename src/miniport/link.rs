// SPDX-License-Identifier: MIT OR Apache-2.0

//! Link state and speed, as reported to NDIS.

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_LINK_PARAMETERS_REVISION_1, NDIS_LINK_SPEED_UNKNOWN, NDIS_LINK_STATE,
    NDIS_LINK_STATE_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1, NDIS_SIZEOF_LINK_STATE_REVISION_1, NDIS_STATUS,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_LINK_STATE, NDIS_STATUS_SUCCESS,
    NDIS_SUPPORTED_PAUSE_FUNCTIONS, NET_IF_MEDIA_CONNECT_STATE, NET_IF_MEDIA_DUPLEX_STATE,
};
use nt::Turn;
use virtio_net::Duplex;

use super::status_indication;
use crate::nic::port::Port;

/// Indications of the link's state, made one at a time, so that the last one reports the current state.
pub struct LinkIndications {
    turn: Turn,
}

impl LinkIndications {
    pub fn new() -> Self {
        Self { turn: Turn::new() }
    }

    /// Indicates the link's state to NDIS. If another thread is doing that, it indicates the state once more, and this
    /// call returns. IRQL <= `DISPATCH_LEVEL`, no lock held.
    pub fn indicate(&self, handle: NDIS_HANDLE, port: &Port) {
        // Repeats if another thread has called meanwhile, because the link changed.
        while self.turn.take() {
            status_indication::indicate(handle, NDIS_STATUS_LINK_STATE, &mut state(port));
            if !self.turn.end() {
                return;
            }
        }
    }
}

/// The members that describe a link in `NDIS_LINK_STATE` and in the general attributes.
pub struct Link {
    pub connected: NET_IF_MEDIA_CONNECT_STATE,
    pub duplex: NET_IF_MEDIA_DUPLEX_STATE,
    /// Transmit and receive speed, in bit/s.
    pub speed: u64,
}

impl Link {
    /// Returns the members for a device that reports `mbits` Mbit/s. A disconnected link has no known speed and duplex state.
    pub const fn new(is_up: bool, mbits: u32, duplex: Duplex) -> Self {
        if is_up {
            Self {
                connected: NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateConnected,
                duplex: match duplex {
                    Duplex::Half => NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateHalf,
                    Duplex::Full => NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateFull,
                    Duplex::Unknown => NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown,
                },
                speed: speed(mbits),
            }
        } else {
            Self {
                connected: NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected,
                duplex: NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown,
                speed: NDIS_LINK_SPEED_UNKNOWN,
            }
        }
    }
}

/// Returns the link's state in NDIS's terms.
fn state(port: &Port) -> NDIS_LINK_STATE {
    let link = Link::new(port.link_up(), port.speed(), port.duplex());
    NDIS_LINK_STATE {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_LINK_STATE_REVISION_1,
            Size: NDIS_SIZEOF_LINK_STATE_REVISION_1,
        },
        MediaConnectState: link.connected,
        MediaDuplexState: link.duplex,
        XmitLinkSpeed: link.speed,
        RcvLinkSpeed: link.speed,
        PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS::NdisPauseFunctionsUnsupported,
        AutoNegotiationFlags: 0,
    }
}

/// Handles `OID_GEN_LINK_PARAMETERS`: a virtual link has no parameters that could be changed.
pub fn set_parameters(parameters: &[u8; NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1 as usize]) -> NDIS_STATUS {
    let [kind, revision, size_low, size_high, ..] = *parameters;
    let is_right = kind == NDIS_OBJECT_TYPE_DEFAULT
        && revision >= NDIS_LINK_PARAMETERS_REVISION_1
        && u16::from_le_bytes([size_low, size_high]) >= NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1;
    if is_right { NDIS_STATUS_SUCCESS } else { NDIS_STATUS_INVALID_PARAMETER }
}

/// Returns the link speed in bit/s for a device that reports `mbits` Mbit/s. A device that reports no speed counts as 10 Gbit/s, because
/// consumers compare the speeds of adapters.
pub const fn speed(mbits: u32) -> u64 {
    const DEFAULT_MBITS: u64 = 10_000;
    let mbits = if mbits == 0 { DEFAULT_MBITS } else { mbits as u64 };
    mbits * 1_000_000
}
