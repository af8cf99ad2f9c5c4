//! Base transport header.

use core::fmt;

use super::{Opcode, Psn, Truncated, field};

mod at {
    pub const OPCODE: usize = 0;
    /// SE, `MigReq`, `PadCnt`, `TVer`.
    pub const FLAGS: usize = 1;
    pub const P_KEY: usize = 2;
    /// FECN, BECN, reserved.
    pub const CONGESTION: usize = 4;
    pub const DEST_QP: usize = 5;
    /// `AckReq`, reserved.
    pub const ACK_REQ: usize = 8;
    pub const PSN: usize = 9;
}

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

/// The default partition key, with full membership.
pub const PKEY_DEFAULT: u16 = 0xFFFF;

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The queue pair of connection management.
    pub const GSI: Self = Self(1);

    /// The low 24 bits of `value`.
    #[must_use]
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00FF_FFFF)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A base transport header.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct Bth<'a>(&'a [u8; Bth::LEN]);

impl<'a> Bth<'a> {
    pub const LEN: usize = 12;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn new(bytes: &'a [u8; Bth::LEN]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn as_bytes(&self) -> &'a [u8; Bth::LEN] {
        self.0
    }

    #[inline]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.0[at::OPCODE])
    }

    /// Solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.0[at::FLAGS] & SOLICITED != 0
    }

    /// Path migration state; to be ignored.
    #[inline]
    pub fn mig_req(&self) -> bool {
        self.0[at::FLAGS] & MIG_REQ != 0
    }

    /// Pad bytes between payload and ICRC, 0 to 3.
    #[inline]
    pub fn pad_count(&self) -> usize {
        usize::from(self.0[at::FLAGS] >> 4 & 3)
    }

    /// Transport version; 0 is the only one there is.
    #[inline]
    pub fn version(&self) -> u8 {
        self.0[at::FLAGS] & 0x0F
    }

    #[inline]
    pub fn p_key(&self) -> u16 {
        field::be16::<{ at::P_KEY }, _>(self.0)
    }

    #[inline]
    pub fn fecn(&self) -> bool {
        self.0[at::CONGESTION] & FECN != 0
    }

    #[inline]
    pub fn becn(&self) -> bool {
        self.0[at::CONGESTION] & BECN != 0
    }

    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn(field::be24::<{ at::DEST_QP }, _>(self.0))
    }

    /// Whether the requester asks for an acknowledgement.
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.0[at::ACK_REQ] & ACK_REQ != 0
    }

    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(field::be24::<{ at::PSN }, _>(self.0))
    }
}

/// Summary of a base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "they are the header's bits")]
pub struct BthRepr {
    pub opcode: Opcode,
    pub solicited: bool,
    pub mig_req: bool,
    /// 0 to 3.
    pub pad_count: u8,
    pub p_key: u16,
    pub fecn: bool,
    pub becn: bool,
    pub dest_qp: Qpn,
    pub ack_req: bool,
    pub psn: Psn,
}

impl BthRepr {
    pub fn parse(view: &Bth<'_>) -> Self {
        Self {
            opcode: view.opcode(),
            solicited: view.solicited(),
            mig_req: view.mig_req(),
            pad_count: view.pad_count() as u8,
            p_key: view.p_key(),
            fecn: view.fecn(),
            becn: view.becn(),
            dest_qp: view.dest_qp(),
            ack_req: view.ack_req(),
            psn: view.psn(),
        }
    }

    #[inline]
    pub fn emit(&self, header: &mut [u8; Bth::LEN]) {
        let [first, second, third] = self.words();
        field::put32::<{ at::OPCODE }, _>(header, first);
        field::put32::<{ at::CONGESTION }, _>(header, second);
        field::put32::<{ at::ACK_REQ }, _>(header, third);
    }

    /// The header as three big-endian words, in host order.
    #[inline]
    pub(super) fn words(&self) -> [u32; 3] {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        let flags = bit(self.solicited, SOLICITED) | bit(self.mig_req, MIG_REQ) | (self.pad_count & 3) << 4;
        let congestion = bit(self.fecn, FECN) | bit(self.becn, BECN);
        let ack_req = bit(self.ack_req, ACK_REQ);
        [
            u32::from(self.opcode.0) << 24 | u32::from(flags) << 16 | u32::from(self.p_key),
            u32::from(congestion) << 24 | self.dest_qp.0,
            u32::from(ack_req) << 24 | self.psn.value(),
        ]
    }
}

/// Sets the byte that the ICRC does not cover to ones.
#[inline]
pub(crate) const fn mask_variable(header: &mut [u8; Bth::LEN]) {
    //= rocev2 §2
    header[at::CONGESTION] = 0xFF;
}
