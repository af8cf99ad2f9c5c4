// SPDX-License-Identifier: MIT OR Apache-2.0

//! The extended transport headers of a packet, as one summary.

use crate::{
    aeth::{Aeth, AethRepr},
    atomic::{AtomicAckEth, AtomicAckEthRepr, AtomicEth, AtomicEthRepr},
    deth::{Deth, DethRepr},
    ieth::{Ieth, IethRepr},
    immdt::{ImmDt, ImmDtRepr},
    opcode::{CNP_RESERVED_LEN, ExtHeaders},
    reth::{Reth, RethRepr},
};

/// The headers between BTH and payload. Each opcode has exactly one of these combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    None,
    Deth(DethRepr),
    DethImm(DethRepr, ImmDtRepr),
    Reth(RethRepr),
    RethImm(RethRepr, ImmDtRepr),
    Aeth(AethRepr),
    AtomicAck(AethRepr, AtomicAckEthRepr),
    Atomic(AtomicEthRepr),
    Imm(ImmDtRepr),
    Ieth(IethRepr),
    /// The reserved bytes of a CNP.
    Cnp,
}

impl Ext {
    /// Length of the longest combination in bytes.
    pub const MAX_LEN: usize = AtomicEth::LEN;

    /// Returns which headers these are.
    #[must_use]
    #[inline]
    pub const fn headers(&self) -> ExtHeaders {
        match self {
            Self::None => ExtHeaders::empty(),
            Self::Deth(_) => ExtHeaders::DETH,
            Self::DethImm(..) => ExtHeaders::DETH.union(ExtHeaders::IMM_DT),
            Self::Reth(_) => ExtHeaders::RETH,
            Self::RethImm(..) => ExtHeaders::RETH.union(ExtHeaders::IMM_DT),
            Self::Aeth(_) => ExtHeaders::AETH,
            Self::AtomicAck(..) => ExtHeaders::AETH.union(ExtHeaders::ATOMIC_ACK_ETH),
            Self::Atomic(_) => ExtHeaders::ATOMIC_ETH,
            Self::Imm(_) => ExtHeaders::IMM_DT,
            Self::Ieth(_) => ExtHeaders::IETH,
            Self::Cnp => ExtHeaders::CNP_RESERVED,
        }
    }

    /// Reads `headers` from the start of `bytes`; `None` if `bytes` is too short or no opcode has this combination.
    #[must_use]
    pub fn parse(headers: ExtHeaders, bytes: &[u8]) -> Option<Self> {
        const DETH_IMM: ExtHeaders = ExtHeaders::DETH.union(ExtHeaders::IMM_DT);
        const RETH_IMM: ExtHeaders = ExtHeaders::RETH.union(ExtHeaders::IMM_DT);
        const ATOMIC_ACK: ExtHeaders = ExtHeaders::AETH.union(ExtHeaders::ATOMIC_ACK_ETH);

        let bytes = bytes.get(..headers.byte_len())?;
        let reth = || Some(RethRepr::parse(&Reth::new_checked(bytes).ok()?));
        let aeth = || Some(AethRepr::parse(&Aeth::new_checked(bytes).ok()?));
        let deth = || Some(DethRepr::parse(&Deth::new_checked(bytes).ok()?));
        // These are always the last header.
        let last = |len: usize| bytes.get(bytes.len().checked_sub(len)?..);
        let imm = || Some(ImmDtRepr::parse(&ImmDt::new_checked(last(ImmDt::LEN)?).ok()?));
        let original =
            || Some(AtomicAckEthRepr::parse(&AtomicAckEth::new_checked(last(AtomicAckEth::LEN)?).ok()?));

        Some(match headers {
            ExtHeaders::DETH => Self::Deth(deth()?),
            DETH_IMM => Self::DethImm(deth()?, imm()?),
            ExtHeaders::RETH => Self::Reth(reth()?),
            RETH_IMM => Self::RethImm(reth()?, imm()?),
            ExtHeaders::AETH => Self::Aeth(aeth()?),
            ATOMIC_ACK => Self::AtomicAck(aeth()?, original()?),
            ExtHeaders::ATOMIC_ETH => {
                Self::Atomic(AtomicEthRepr::parse(&AtomicEth::new_checked(bytes).ok()?))
            }
            ExtHeaders::IMM_DT => Self::Imm(imm()?),
            ExtHeaders::IETH => Self::Ieth(IethRepr::parse(&Ieth::new_checked(bytes).ok()?)),
            ExtHeaders::CNP_RESERVED => Self::Cnp,
            headers if headers.is_empty() => Self::None,
            _ => return None,
        })
    }

    /// Writes the headers to the start of `bytes`; returns their length.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "on the way of every frame, whose builder knows which headers these are"
    )]
    pub fn emit(&self, bytes: &mut [u8; Self::MAX_LEN]) -> usize {
        /// Writes one header and returns the bytes behind it.
        #[inline]
        fn put<const N: usize>(bytes: &mut [u8], emit: impl FnOnce(&mut [u8; N])) -> &mut [u8] {
            match bytes.split_first_chunk_mut() {
                Some((header, rest)) => {
                    emit(header);
                    rest
                }
                // Not reached: `MAX_LEN` bytes hold every combination, which a test checks.
                None => &mut [],
            }
        }
        let rest = match self {
            Self::None => bytes.as_mut_slice(),
            Self::Deth(deth) => put(bytes, |b| deth.emit(b)),
            Self::DethImm(deth, imm) => put(put(bytes, |b| deth.emit(b)), |b| imm.emit(b)),
            Self::Reth(reth) => put(bytes, |b| reth.emit(b)),
            Self::RethImm(reth, imm) => put(put(bytes, |b| reth.emit(b)), |b| imm.emit(b)),
            Self::Aeth(aeth) => put(bytes, |b| aeth.emit(b)),
            Self::AtomicAck(aeth, ack) => put(put(bytes, |b| aeth.emit(b)), |b| ack.emit(b)),
            Self::Atomic(atomic) => put(bytes, |b| atomic.emit(b)),
            Self::Imm(imm) => put(bytes, |b| imm.emit(b)),
            Self::Ieth(ieth) => put(bytes, |b| ieth.emit(b)),
            Self::Cnp => put(bytes, |b: &mut [u8; CNP_RESERVED_LEN]| b.fill(0)),
        };
        Self::MAX_LEN - rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Opcode, Qpn, Syndrome};

    //= rocev2 §3
    #[test]
    fn every_combination_survives_emit_and_parse() {
        let deth = DethRepr::GSI;
        let imm = ImmDtRepr { data: *b"imme" };
        let reth = RethRepr { address: 0x0102_0304_0506_0708, r_key: 0x1122_3344, length: 0x8000_0000 };
        let aeth = AethRepr { syndrome: Syndrome(0x62), msn: 0x00AB_CDEF };
        let atomic = AtomicEthRepr { address: u64::MAX - 7, r_key: 1, swap_or_add: 2, compare: 3 };
        let all = [
            Ext::None,
            Ext::Deth(DethRepr { q_key: 5, source_qp: Qpn::new(0x0012_3456) }),
            Ext::DethImm(deth, imm),
            Ext::Reth(reth),
            Ext::RethImm(reth, imm),
            Ext::Aeth(aeth),
            Ext::AtomicAck(aeth, AtomicAckEthRepr { original: 0xFEDC_BA98_7654_3210 }),
            Ext::Atomic(atomic),
            Ext::Imm(imm),
            Ext::Ieth(IethRepr { r_key: 0xDEAD_BEEF }),
            Ext::Cnp,
        ];
        for ext in all {
            let mut bytes = [0xEE; Ext::MAX_LEN];
            let len = ext.emit(&mut bytes);
            assert_eq!(len, ext.headers().byte_len());
            assert!(bytes[len..].iter().all(|&b| b == 0xEE));
            assert_eq!(Ext::parse(ext.headers(), &bytes), Some(ext));
            assert_eq!(Ext::parse(ext.headers(), &bytes[..len.saturating_sub(1)]).is_some(), len == 0);
        }
    }

    #[test]
    fn every_opcode_has_a_combination() {
        for info in Opcode::table() {
            assert!(Ext::parse(info.ext, &[0; Ext::MAX_LEN]).is_some(), "{}", info.name);
        }
    }
}
