// SPDX-License-Identifier: MIT OR Apache-2.0

//! REJ: reject.

use core::fmt;

use super::ids::{CommId, RespondedMessage};
use crate::{
    layout::layout,
    place::{Be16, Be32, Bits, Bytes},
    value::newtypes,
};

/// The reason of a REJ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

macro_rules! reasons {
    ($($code:literal $konst:ident $name:literal;)*) => {
        impl RejReason {
            $(#[doc = $name] pub const $konst: Self = Self($code);)*

            /// Returns a description; `None` for a reason that the specification does not define.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

//= rocev2 §11
reasons! {
    1 NO_QP "no queue pair";
    2 NO_EEC "no end-to-end context";
    3 NO_RESOURCES "no resources";
    4 TIMEOUT "timeout";
    5 UNSUPPORTED "unsupported request";
    6 INVALID_COMM_ID "invalid communication id";
    7 INVALID_COMM_INSTANCE "invalid communication instance";
    8 INVALID_SERVICE_ID "invalid service id";
    9 INVALID_TRANSPORT "invalid transport";
    10 STALE_CONNECTION "stale connection";
    11 RDC_NOT_EXIST "no reliable datagram channel";
    12 INVALID_GID "invalid GID";
    13 INVALID_LID "invalid LID";
    14 INVALID_SL "invalid service level";
    15 INVALID_TRAFFIC_CLASS "invalid traffic class";
    16 INVALID_HOP_LIMIT "invalid hop limit";
    17 INVALID_PACKET_RATE "invalid packet rate";
    18 INVALID_ALT_GID "invalid alternate GID";
    19 INVALID_ALT_LID "invalid alternate LID";
    20 INVALID_ALT_SL "invalid alternate service level";
    21 INVALID_ALT_TRAFFIC_CLASS "invalid alternate traffic class";
    22 INVALID_ALT_HOP_LIMIT "invalid alternate hop limit";
    23 INVALID_ALT_PACKET_RATE "invalid alternate packet rate";
    24 CM_REDIRECT "connection manager redirect";
    25 PORT_REDIRECT "port redirect";
    26 INVALID_MTU "invalid path MTU";
    27 INSUFFICIENT_RESPONDER_RESOURCES "insufficient responder resources";
    28 CONSUMER "refused by the consumer";
    29 INVALID_RNR_RETRY "invalid RNR retry count";
    30 DUPLICATE_COMM_ID "duplicate communication id";
    31 INVALID_CLASS_VERSION "invalid class version";
    32 INVALID_FLOW_LABEL "invalid flow label";
    33 INVALID_ALT_FLOW_LABEL "invalid alternate flow label";
    35 VENDOR_OPTION "vendor option not supported";
}

impl fmt::Debug for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

newtypes! {
    RejReason: u16, RejReason, |reason: RejReason| reason.0;
}

//= rocev2 §11
layout! {
    /// REJ: rejects a connection request, or abandons a connection that is being established.
    Rej, RejRepr, 232 bytes {
        /// 0 when the rejecting side assigned none.
        local_comm_id: CommId = Be32<0>;
        /// 0 when the abandoning side knows none.
        remote_comm_id: CommId = Be32<4>;
        /// IBTA: "message REJected".
        message_rejected: RespondedMessage = Bits<8, 7, 6>;
        /// Valid bytes of `information`, up to 72.
        information_len: u8 = Bits<9, 7, 1>;
        reason: RejReason = Be16<10>;
        /// Additional rejection information: the CA GUID for a timeout; for an invalid MTU one byte with the
        /// acceptable code in bits 7-4, as in a REQ.
        information: [u8; 72] = Bytes<12, 72>;
        private_data: [u8; 148] = Bytes<84, 148>;
    }
}

impl Rej<'_> {
    /// Bytes of private data available to the consumer.
    pub const CONSUMER_DATA: usize = 148;
}
