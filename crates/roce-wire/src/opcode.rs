// SPDX-License-Identifier: MIT OR Apache-2.0

//! BTH opcodes (IBTA Vol 1 §9.2): one table with the headers and the payload of each.

use core::fmt;

use crate::{
    aeth::Aeth,
    atomic::{AtomicAckEth, AtomicEth},
    deth::Deth,
    ieth::Ieth,
    immdt::ImmDt,
    reth::Reth,
    value::newtypes,
};

/// Length of the reserved bytes behind the BTH of a congestion notification packet (CNP).
pub(crate) const CNP_RESERVED_LEN: usize = 16;

/// A BTH opcode. Unknown values are kept; [`Opcode::info`] describes the known ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// The half of a queue pair that handles a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// From the requester to the responder; the PSN is of the request direction.
    Request,
    /// From the responder to the requester: READ responses and acknowledgements.
    Response,
    /// From the requester to the responder of an unreliable connection (UC), which does not answer.
    Unreliable,
    /// Unreliable datagram (queue pair 1: connection management).
    Datagram,
    /// Congestion notification packet (CNP).
    Congestion,
}

/// The operation that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Send,
    Write,
    Read,
    Acknowledge,
    Atomic,
    Congestion,
}

/// The payload lengths that an opcode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// Exactly the path MTU.
    Full,
    /// At least one byte, at most the path MTU.
    Some,
    /// From no byte to the path MTU.
    Any,
}

impl PayloadRule {
    /// Returns whether a packet may have `len` payload bytes at a path MTU of `mtu` bytes.
    #[must_use]
    #[inline]
    pub const fn admits(self, len: usize, mtu: usize) -> bool {
        match self {
            Self::None => len == 0,
            Self::Full => len == mtu,
            Self::Some => len >= 1 && len <= mtu,
            Self::Any => len <= mtu,
        }
    }
}

bitflags::bitflags! {
    /// The headers between BTH and payload. A packet has them in the order of the bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExtHeaders: u8 {
        const DETH = 1 << 0;
        const RETH = 1 << 1;
        const AETH = 1 << 2;
        const ATOMIC_ETH = 1 << 3;
        const ATOMIC_ACK_ETH = 1 << 4;
        const IMM_DT = 1 << 5;
        const IETH = 1 << 6;
        /// The 16 reserved bytes of a congestion notification.
        const CNP_RESERVED = 1 << 7;
    }
}

impl ExtHeaders {
    /// Returns the total length of these headers in bytes.
    #[must_use]
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "the index of one of eight bits")]
    pub const fn byte_len(self) -> usize {
        const LENGTHS: [usize; 8] = [
            Deth::LEN,
            Reth::LEN,
            Aeth::LEN,
            AtomicEth::LEN,
            AtomicAckEth::LEN,
            ImmDt::LEN,
            Ieth::LEN,
            CNP_RESERVED_LEN,
        ];
        let (mut bits, mut len) = (self.bits(), 0);
        while bits != 0 {
            len += LENGTHS[bits.trailing_zeros() as usize];
            bits &= bits - 1;
        }
        len
    }
}

/// The properties of an opcode.
#[derive(Clone, Copy, Debug)]
pub struct OpcodeInfo {
    pub opcode: Opcode,
    /// The name in the specification.
    pub name: &'static str,
    pub class: Class,
    pub operation: Operation,
    /// The first or only packet of its message.
    pub first: bool,
    /// The last or only packet of its message.
    pub last: bool,
    pub ext: ExtHeaders,
    /// Length of `ext` in bytes.
    pub ext_len: u8,
    pub payload: PayloadRule,
    /// Whether the solicited event bit is meaningful.
    pub solicited: bool,
}

macro_rules! opcodes {
    ($($code:literal $konst:ident $name:literal $class:ident $operation:ident
        $position:ident [$($ext:ident)*] $payload:ident $($se:ident)?;)*) => {
        impl Opcode {
            $(#[doc = $name] pub const $konst: Self = Self($code);)*
        }

        /// All known opcodes, in ascending order.
        static TABLE: &[OpcodeInfo] = &[$({
            let ext = ExtHeaders::empty()$(.union(ExtHeaders::$ext))*;
            OpcodeInfo {
                opcode: Opcode::$konst,
                name: $name,
                class: Class::$class,
                operation: Operation::$operation,
                first: matches!(Position::$position, Position::First | Position::Only),
                last: matches!(Position::$position, Position::Last | Position::Only),
                ext,
                ext_len: ext.byte_len() as u8,
                payload: PayloadRule::$payload,
                solicited: false $(|| stringify!($se).len() != 0)?,
            }
        }),*];
    };
}

#[allow(dead_code, reason = "each name is used by the table only")]
enum Position {
    First,
    Middle,
    Last,
    Only,
}

//= rocev2 §4
opcodes! {
    0x00 SEND_FIRST             "SEND First"                     Request Send First [] Full;
    0x01 SEND_MIDDLE            "SEND Middle"                    Request Send Middle [] Full;
    0x02 SEND_LAST              "SEND Last"                      Request Send Last [] Some se;
    0x03 SEND_LAST_IMM          "SEND Last with Immediate"       Request Send Last [IMM_DT] Some se;
    0x04 SEND_ONLY              "SEND Only"                      Request Send Only [] Any se;
    0x05 SEND_ONLY_IMM          "SEND Only with Immediate"       Request Send Only [IMM_DT] Any se;
    0x06 WRITE_FIRST            "RDMA WRITE First"               Request Write First [RETH] Full;
    0x07 WRITE_MIDDLE           "RDMA WRITE Middle"              Request Write Middle [] Full;
    0x08 WRITE_LAST             "RDMA WRITE Last"                Request Write Last [] Some;
    0x09 WRITE_LAST_IMM         "RDMA WRITE Last with Immediate" Request Write Last [IMM_DT] Some se;
    0x0A WRITE_ONLY             "RDMA WRITE Only"                Request Write Only [RETH] Any;
    0x0B WRITE_ONLY_IMM         "RDMA WRITE Only with Immediate" Request Write Only [RETH IMM_DT] Any se;
    0x0C READ_REQUEST           "RDMA READ Request"              Request Read Only [RETH] None;
    0x0D READ_RESPONSE_FIRST    "RDMA READ Response First"       Response Read First [AETH] Full;
    0x0E READ_RESPONSE_MIDDLE   "RDMA READ Response Middle"      Response Read Middle [] Full;
    0x0F READ_RESPONSE_LAST     "RDMA READ Response Last"        Response Read Last [AETH] Some;
    0x10 READ_RESPONSE_ONLY     "RDMA READ Response Only"        Response Read Only [AETH] Any;
    0x11 ACKNOWLEDGE            "Acknowledge"                    Response Acknowledge Only [AETH] None;
    0x12 ATOMIC_ACKNOWLEDGE     "ATOMIC Acknowledge"             Response Atomic Only [AETH ATOMIC_ACK_ETH] None;
    0x13 COMPARE_SWAP           "CmpSwap"                        Request Atomic Only [ATOMIC_ETH] None;
    0x14 FETCH_ADD              "FetchAdd"                       Request Atomic Only [ATOMIC_ETH] None;
    0x16 SEND_LAST_INVALIDATE   "SEND Last with Invalidate"      Request Send Last [IETH] Some se;
    0x17 SEND_ONLY_INVALIDATE   "SEND Only with Invalidate"      Request Send Only [IETH] Any se;
    0x20 UC_SEND_FIRST          "UC SEND First"                  Unreliable Send First [] Full;
    0x21 UC_SEND_MIDDLE         "UC SEND Middle"                 Unreliable Send Middle [] Full;
    0x22 UC_SEND_LAST           "UC SEND Last"                   Unreliable Send Last [] Some se;
    0x23 UC_SEND_LAST_IMM       "UC SEND Last with Immediate"    Unreliable Send Last [IMM_DT] Some se;
    0x24 UC_SEND_ONLY           "UC SEND Only"                   Unreliable Send Only [] Any se;
    0x25 UC_SEND_ONLY_IMM       "UC SEND Only with Immediate"    Unreliable Send Only [IMM_DT] Any se;
    0x26 UC_WRITE_FIRST         "UC RDMA WRITE First"            Unreliable Write First [RETH] Full;
    0x27 UC_WRITE_MIDDLE        "UC RDMA WRITE Middle"           Unreliable Write Middle [] Full;
    0x28 UC_WRITE_LAST          "UC RDMA WRITE Last"             Unreliable Write Last [] Some;
    0x29 UC_WRITE_LAST_IMM      "UC RDMA WRITE Last with Immediate" Unreliable Write Last [IMM_DT] Some se;
    0x2A UC_WRITE_ONLY          "UC RDMA WRITE Only"             Unreliable Write Only [RETH] Any;
    0x2B UC_WRITE_ONLY_IMM      "UC RDMA WRITE Only with Immediate" Unreliable Write Only [RETH IMM_DT] Any se;
    0x64 UD_SEND_ONLY           "UD SEND Only"                   Datagram Send Only [DETH] Any se;
    0x65 UD_SEND_ONLY_IMM       "UD SEND Only with Immediate"    Datagram Send Only [DETH IMM_DT] Any se;
    0x81 CNP                    "CNP"                            Congestion Congestion Only [CNP_RESERVED] None;
}

/// The entries of [`TABLE`] by opcode; `None` for unknown opcodes.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static BY_OPCODE: [Option<&OpcodeInfo>; 256] = {
    let mut infos = [None; 256];
    let mut i = 0;
    while i < TABLE.len() {
        infos[TABLE[i].opcode.0 as usize] = Some(&TABLE[i]);
        i += 1;
    }
    infos
};

impl Opcode {
    /// Returns the properties of this opcode; `None` if it is unknown.
    #[must_use]
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        BY_OPCODE.get(usize::from(self.0)).copied().flatten()
    }

    /// Returns whether the opcode belongs to the reliable connection (RC) service.
    #[must_use]
    #[inline]
    pub const fn is_rc(self) -> bool {
        self.0 >> 5 == 0
    }

    /// Returns the opcode of the same packet over an unreliable connection (UC); of a SEND or WRITE of a reliable one.
    #[must_use]
    #[inline]
    pub const fn unreliable(self) -> Self {
        Self(self.0 | 1 << 5)
    }

    /// Returns the whole table, in ascending order of opcode.
    #[must_use]
    pub fn table() -> &'static [OpcodeInfo] {
        TABLE
    }
}

newtypes! {
    Opcode: u8, Opcode, |opcode: Opcode| opcode.0;
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §4
    #[test]
    fn every_opcode_of_the_table_is_found() {
        for info in Opcode::table() {
            assert_eq!(info.opcode.info().unwrap().name, info.name);
        }
        let known = (0..=255).filter(|&code| Opcode(code).info().is_some()).count();
        assert_eq!(known, Opcode::table().len());
        assert!(Opcode(0x15).info().is_none());
        assert_eq!(format!("{:?}", Opcode(0x15)), "opcode 0x15");
    }

    //= rocev2 §4
    #[test]
    fn write_only_with_immediate_has_reth_and_immediate() {
        let info = Opcode::WRITE_ONLY_IMM.info().unwrap();
        assert_eq!(info.ext_len, 20);
        assert!(info.first && info.last && info.solicited);
        assert!(!Opcode::WRITE_ONLY.info().unwrap().solicited);
    }

    //= rocev2 §4
    #[test]
    fn an_unreliable_connection_has_the_sends_and_writes_of_a_reliable_one() {
        let reliable = Opcode::table().iter().filter(|info| {
            info.opcode.is_rc() && matches!(info.operation, Operation::Send | Operation::Write)
        });
        let mut counterparts = std::vec::Vec::new();
        for info in reliable.filter(|info| !info.ext.contains(ExtHeaders::IETH)) {
            let other = info.opcode.unreliable().info().unwrap();
            assert_eq!(other.name, std::format!("UC {}", info.name));
            assert_eq!(other.class, Class::Unreliable);
            let form = |info: &OpcodeInfo| {
                (info.operation, info.first, info.last, info.ext, info.payload, info.solicited)
            };
            assert_eq!(form(other), form(info), "{}", info.name);
            counterparts.push(other.opcode);
        }
        let all = Opcode::table().iter().filter(|info| info.class == Class::Unreliable);
        assert!(all.map(|info| info.opcode).eq(counterparts));
    }

    //= rocev2 §4
    #[test]
    fn payload_rules_admit_the_lengths_of_the_table() {
        assert!(PayloadRule::Full.admits(1024, 1024) && !PayloadRule::Full.admits(1023, 1024));
        assert!(PayloadRule::Some.admits(1, 1024) && !PayloadRule::Some.admits(0, 1024));
        assert!(PayloadRule::Any.admits(0, 1024) && !PayloadRule::Any.admits(1025, 1024));
        assert!(PayloadRule::None.admits(0, 1024) && !PayloadRule::None.admits(4, 1024));
    }
}
