//! What the ICRC covers of the headers: fields that routers may change count as ones.
//!
//! A received packet lies in one piece from its IP header on, so that ones are mixed into its first bytes
//! and the rest is summed where it lies ([`of_packet`]). Packets that a queue pair sends differ before their
//! BTH in two lengths only, so that the sum up to there is known but for those ([`Prefix`]).

use super::{Crc, CrcState, table};
use crate::{Bth, Ipv4, Ipv6, Udp, mask_bth, mask_ipv4, mask_ipv6, mask_udp};

/// Bytes that the ones are mixed into at once; not less than the longest headers have.
const MIXED: usize = 64;

/// The ones of a packet over IPv4, from its IP header on.
const ONES_V4: [u8; MIXED] = {
    let mut ip = [0; Ipv4::LEN];
    mask_ipv4(&mut ip);
    ones(&ip)
};

/// The ones of a packet over IPv6, from its IP header on.
const ONES_V6: [u8; MIXED] = {
    let mut ip = [0; Ipv6::LEN];
    mask_ipv6(&mut ip);
    ones(&ip)
};

/// The ones of UDP and BTH headers behind those of an IP header.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
const fn ones(ip: &[u8]) -> [u8; MIXED] {
    let (mut udp, mut bth) = ([0; Udp::LEN], [0; Bth::LEN]);
    mask_udp(&mut udp);
    mask_bth(&mut bth);
    let mut ones = [0; MIXED];
    let mut at = 0;
    while at < ip.len() + Udp::LEN + Bth::LEN {
        ones[at] = if at < ip.len() {
            ip[at]
        } else if at < ip.len() + Udp::LEN {
            udp[at - ip.len()]
        } else {
            bth[at - ip.len() - Udp::LEN]
        };
        at += 1;
    }
    ones
}

/// The ICRC's state at the end of `packet`, which lies there from its IP header, of 20 bytes or of version
/// 6, to its last pad byte.
pub(crate) fn of_packet(crc: Crc, is_v4: bool, packet: &[u8]) -> CrcState {
    let ones = if is_v4 { &ONES_V4 } else { &ONES_V6 };
    if let Some((head, rest)) = packet.split_first_chunk() {
        return crc.update_headed(CrcState::ICRC_START, &mix(head, ones), rest);
    }
    let mut head = [0; MIXED];
    if let Some(head) = head.get_mut(..packet.len()) {
        head.copy_from_slice(packet);
    }
    crc.update(CrcState::ICRC_START, mix(&head, ones).get(..packet.len()).unwrap_or_default())
}

/// `head` with `ones` mixed in.
#[inline]
#[allow(clippy::indexing_slicing, reason = "both have as many bytes as are made")]
fn mix(head: &[u8; MIXED], ones: &[u8; MIXED]) -> [u8; MIXED] {
    core::array::from_fn(|i| head[i] | ones[i])
}

/// The ICRC's state behind the UDP header, of packets that are equal up to there except in length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    /// With lengths of zero.
    zero: u32,
    is_v4: bool,
}

impl Prefix {
    /// For packets with these headers, which agree about the length.
    pub(crate) fn new(ip: &[u8], udp: Udp<'_>) -> Self {
        let is_v4 = ip.len() == Ipv4::LEN;
        let ones = if is_v4 { &ONES_V4 } else { &ONES_V6 };
        let mut mixed = *ones;
        for (byte, header) in mixed.iter_mut().zip(ip.iter().chain(udp.as_bytes())) {
            *byte |= header;
        }
        let headers = mixed.get(..ip.len().saturating_add(Udp::LEN)).unwrap_or_default();
        let whole = Self { zero: Crc::table().update(CrcState::ICRC_START, headers).0, is_v4 };
        // What the length added is taken away by adding it again.
        Self { zero: whole.with_length(udp.length()).0, is_v4 }
    }

    /// The state for packets of `udp_len` bytes from their UDP header on.
    #[inline]
    pub(crate) fn with_length(self, udp_len: u16) -> CrcState {
        // The register is linear in each of its input bytes: what the lengths' bytes add to it does not
        // depend on the others.
        let in_udp = UDP_LENGTH.of(udp_len);
        let in_ip = if self.is_v4 {
            let total = udp_len.wrapping_add(Ipv4::LEN as u16);
            V4_LENGTH.of(total)
        } else {
            V6_LENGTH.of(udp_len)
        };
        CrcState(self.zero ^ in_udp ^ in_ip)
    }

    /// [`Prefix::with_length`], continued over a BTH, which is given as its words in host order.
    #[inline]
    pub(crate) fn with_bth(self, udp_len: u16, bth: [u32; 3]) -> CrcState {
        let [first, second, third] = bth;
        //= rocev2 §2
        let bytes = [first, second | 0xFF00_0000, third].map(u32::swap_bytes);
        CrcState(table::three_words(self.with_length(udp_len).0, bytes))
    }
}

/// What the bytes of a 16-bit field add to the register at the end of the UDP header.
struct Field {
    high: [u32; 256],
    low: [u32; 256],
}

/// Both length fields stand at the offset 4 of the UDP header, and 2 (IPv4) or 4 (IPv6) of the IP header.
static UDP_LENGTH: Field = Field::before(Udp::LEN - 4 - 2);
static V4_LENGTH: Field = Field::before(Ipv4::LEN + Udp::LEN - 2 - 2);
static V6_LENGTH: Field = Field::before(Ipv6::LEN + Udp::LEN - 4 - 2);

impl Field {
    /// Of a field behind which `follow` bytes come.
    #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
    const fn before(follow: usize) -> Self {
        let mut field = Self { high: [0; 256], low: [0; 256] };
        let mut byte = 0;
        while byte < 256 {
            field.high[byte] = table::contribution(byte as u8, follow + 1);
            field.low[byte] = table::contribution(byte as u8, follow);
            byte += 1;
        }
        field
    }

    #[inline]
    #[allow(clippy::indexing_slicing, reason = "a byte is an index into 256 entries")]
    fn of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}
