// SPDX-License-Identifier: MIT OR Apache-2.0

//! Base transport header (IBTA Vol 1 §9.2).

use crate::{
    layout::layout,
    opcode::Opcode,
    place::{Be16, Be24, Bits, Byte, Flag},
    psn::Psn,
    qpn::Qpn,
};

/// The default partition key, with full membership.
pub const PKEY_DEFAULT: u16 = 0xFFFF;

//= rocev2 §2
//= rocev2 §3
layout! {
    /// A base transport header (BTH).
    Bth, BthRepr, 12 bytes {
        opcode: Opcode = Byte<0>;
        /// Solicited event.
        solicited: bool = Flag<1, 7>;
        /// Path migration state; ignored on receive.
        mig_req: bool = Flag<1, 6>;
        /// Pad bytes between payload and ICRC, 0 to 3.
        pad_count: u8 = Bits<1, 5, 4>;
        p_key: u16 = Be16<2>;
        /// Forward explicit congestion notification.
        fecn: bool = Flag<4, 7>, variant;
        /// Backward explicit congestion notification; set in a CNP.
        becn: bool = Flag<4, 6>, variant;
        dest_qp: Qpn = Be24<5>;
        /// The requester asks for an acknowledgement.
        ack_req: bool = Flag<8, 7>;
        psn: Psn = Be24<9>;
    }
    constant {
        /// Transport header version. Only 0 exists.
        version: u8 = Bits<1, 3, 0>, 0;
        /// Reserved, but not covered by the ICRC.
        reserved: u8 = Bits<4, 5, 0>, 0, variant;
    }
}

/// Bits of the gap hint in the byte that the ICRC does not cover, above those in the byte of AckReq.
const HINT_LOW: u32 = 7;

/// The longest distance that a gap hint can have.
pub const MOST_HINTED: u16 = (1 << 13) - 1;

impl Bth<'_> {
    /// Returns the gap hint, which is in the reserved bits; 0 for none.
    #[must_use]
    #[inline]
    pub const fn gap_hint(&self) -> u16 {
        let low = Bits::<8, 6, 0>::get(self.as_bytes()) as u16;
        low | (Bits::<4, 5, 0>::get(self.as_bytes()) as u16) << HINT_LOW
    }

    /// Sets the gap hint of a header that has been emitted; at most [`MOST_HINTED`].
    pub fn set_gap_hint(header: &mut [u8; Bth::LEN], hint: u16) {
        Bits::<8, 6, 0>::put(header, hint as u8);
        Bits::<4, 5, 0>::put(header, (hint >> HINT_LOW) as u8);
    }
}

/// Sets the fields of an existing header that differ from packet to packet.
#[inline(always)]
#[allow(clippy::inline_always, reason = "on the way of every frame; the opcode is often known there")]
pub(crate) fn set_variable(
    header: &mut [u8; Bth::LEN],
    opcode: Opcode,
    solicited: bool,
    pad_count: u8,
    ack_req: bool,
    psn: Psn,
) {
    Byte::<0>::put(header, opcode.0);
    Flag::<1, 7>::put(header, solicited);
    Bits::<1, 5, 4>::put(header, pad_count);
    //= rocev2 §14
    Flag::<4, 6>::put(header, opcode.0 == Opcode::CNP.0);
    Flag::<8, 7>::put(header, ack_req);
    Be24::<9>::put(header, psn.value());
}
