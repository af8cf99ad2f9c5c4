// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `frames`: one frame of any bytes.

use std::time::Duration;

use roce::{DropReason, RecvRequest, Sge, Verdict};
use roce_wire::cm::CmMessage;
use roce_wire::icrc::Crc;
use roce_wire::{
    Bth, BthRepr, Eth, EthRepr, Ext, ExtHeaders, Ip, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Mad, MadHeaderRepr,
    Packet, Udp, UdpRepr,
};

use crate::arena::Zone;
use crate::endpoint::{Endpoint, Link, base};
use crate::forge;

/// Bits of an input's first byte: the fields to correct in the frame that follows.
pub mod repairs {
    /// Lengths, IPv4 checksum, ICRC.
    pub const SUMS: u8 = 1 << 0;
    /// Addresses of peer and endpoint. Only with [`SUMS`].
    pub const ADDRESSES: u8 = 1 << 1;
    /// Destination QPN of the connected queue pair. Only with [`ADDRESSES`].
    pub const QPN: u8 = 1 << 2;
    /// The expected PSN (ePSN). Only with [`QPN`].
    pub const PSN: u8 = 1 << 3;
}

/// Parses the frame and encodes it again; then delivers it to one of two equal endpoints, which must stay equal if the frame
/// is dropped.
pub fn run(input: &[u8]) {
    let Some((&mode, frame)) = input.split_first() else { return };
    let (mut alice, link) = connected();
    let mut frame = frame.to_vec();
    if mode & repairs::SUMS != 0 {
        correct_destination(&mut frame, mode, link);
        forge::repair(&mut frame);
    }
    if let Ok(packet) = Packet::parse(&frame) {
        assert_reencodes(&frame, &packet);
        assert_eq!(
            packet.icrc_valid(Crc::table()),
            packet.icrc_valid(Crc::detect()),
            "the CRC implementations disagree"
        );
    }

    let before = alice.counters();
    let verdict = alice.handle(&frame);
    let after = alice.counters();
    let increase = |name: &str| after[name] - before[name];
    let drops: u64 = after.keys().filter(|name| name.starts_with("drop_")).map(|name| increase(name)).sum();
    let (consumed, dropped) = match verdict {
        Verdict::Consumed => (1, 0),
        Verdict::NotOurs => (0, 0),
        Verdict::Dropped(_) => (0, 1),
    };
    assert_eq!((increase("rx_frames"), drops), (consumed, dropped), "{verdict:?} and the counters");

    let (mut bob, _) = connected();
    // A request packet with a later PSN is dropped but may cause a NAK.
    if matches!(verdict, Verdict::NotOurs | Verdict::Dropped(_))
        && verdict != Verdict::Dropped(DropReason::Sequence)
    {
        assert_eq!(
            outputs_until_end(&mut alice),
            outputs_until_end(&mut bob),
            "{verdict:?}, but with an effect"
        );
    } else {
        outputs_until_end(&mut alice);
    }
    alice.arena.check();
}

/// Returns a connected endpoint with a posted receive.
fn connected() -> (Endpoint, Link) {
    let mut endpoint = Endpoint::new();
    endpoint.register(Zone::Sink);
    endpoint.register(Zone::Shared);
    let qp = endpoint.qp();
    let link = endpoint.connect(&qp);
    let key = endpoint.regions[Zone::Sink as usize].as_ref().expect("registered").key();
    let sge = Sge { address: base(Zone::Sink), length: 512, key };
    endpoint.engine.post_recv(&qp, &RecvRequest { context: 1, sges: &[sge] }).expect("room for a receive");
    endpoint.arena.allow(Zone::Sink, 0, 512);
    (endpoint, link)
}

/// Returns all outputs of an endpoint until its connection ends.
fn outputs_until_end(endpoint: &mut Endpoint) -> Vec<crate::endpoint::Output> {
    endpoint.drive(usize::MAX);
    endpoint.pass(Duration::from_secs(2));
    std::mem::take(&mut endpoint.outputs)
}

/// Corrects the fields that select the queue pair.
fn correct_destination(frame: &mut [u8], mode: u8, link: Link) {
    let Some(ip) = Eth::split(frame).ok().map(|(eth, _)| EthRepr::parse(&eth).header_len()) else { return };
    let Some(version) = frame.get(ip).map(|byte| byte >> 4) else { return };
    if mode & repairs::ADDRESSES == 0 || version != 4 {
        return;
    }
    let path = forge::path(crate::endpoint::PEER);
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (path.local_ip, path.remote_ip) else {
        return;
    };
    let Some(addresses) = frame.get_mut(ip + 12..ip + 20) else { return };
    addresses[..4].copy_from_slice(&from.octets());
    addresses[4..].copy_from_slice(&to.octets());
    let bth = ip + Ipv4::LEN + Udp::LEN;
    let Some(bth) = frame.get_mut(bth..bth + Bth::LEN) else { return };
    if mode & repairs::QPN != 0 {
        bth[2..4].fill(0xFF);
        bth[5..8].copy_from_slice(&link.qpn.value().to_be_bytes()[1..]);
        if mode & repairs::PSN != 0 {
            bth[9..12].copy_from_slice(&link.psn.value().to_be_bytes()[1..]);
        }
    }
}

/// Checks that a parsed frame encodes to the same bytes, except for reserved bits.
fn assert_reencodes(frame: &[u8], packet: &Packet<'_>) {
    let (again, mask) = encode(packet);
    assert!(again.len() <= frame.len());
    for (at, ((&was, &is), &mask)) in frame.iter().zip(&again).zip(&mask).enumerate() {
        assert_eq!(was & mask, is & mask, "byte {at}");
    }
    let second = Packet::parse(&again).expect("the encoded frame parses");
    assert_eq!(encode(&second).0, again, "encoded twice");
    if let Ok(mad) = Mad::new_checked(packet.payload())
        && let Some(message) = CmMessage::parse(&mad)
    {
        let header = MadHeaderRepr::parse(&mad.header());
        let mut bytes = [0; Mad::LEN];
        message.emit(header.transaction_id, &mut bytes);
        let mad = Mad::new_checked(&bytes).expect("a whole datagram");
        assert_eq!(CmMessage::parse(&mad), Some(message), "the message changed");
        assert_eq!(mad.header().transaction_id(), header.transaction_id);
    }
}

/// Encodes a packet from its header summaries. Returns the frame and the mask of bits that are not reserved.
fn encode(packet: &Packet<'_>) -> (Vec<u8>, Vec<u8>) {
    const CNP: [(usize, u8); 16] = {
        let mut all = [(0, 0xFF); 16];
        let mut at = 0;
        while at < all.len() {
            all[at].0 = at;
            at += 1;
        }
        all
    };
    let (mut bytes, mut mask) = (Vec::new(), Vec::new());
    let mut put = |piece: &[u8], reserved: &[(usize, u8)]| {
        let start = bytes.len();
        bytes.extend_from_slice(piece);
        mask.resize(bytes.len(), 0xFF);
        for &(at, bits) in reserved {
            mask[start + at] &= !bits;
        }
    };
    let eth = EthRepr::parse(&packet.eth());
    let mut header = [0; Eth::LEN + Eth::TAG_LEN];
    eth.emit(&mut header).expect("room for a tag");
    put(&header[..eth.header_len()], &[]);
    match packet.ip() {
        Ip::V4(ip) => {
            let mut header = [0; Ipv4::LEN];
            Ipv4Repr::parse(&ip).emit(&mut header);
            // The first flag is reserved and covered by the checksum, which also has two representations of zero.
            put(&header, &[(6, 0x80), (10, 0xFF), (11, 0xFF)]);
        }
        Ip::V6(ip) => {
            let mut header = [0; Ipv6::LEN];
            Ipv6Repr::parse(&ip).emit(&mut header);
            put(&header, &[]);
        }
    }
    let mut header = [0; Udp::LEN];
    UdpRepr::parse(&packet.udp()).emit(&mut header);
    put(&header, &[]);
    let mut header = [0; Bth::LEN];
    BthRepr::parse(&packet.bth()).emit(&mut header);
    put(&header, &[(4, 0x3F), (8, 0x7F)]);
    let mut header = [0; Ext::MAX_LEN];
    let len = packet.ext().emit(&mut header);
    let reserved: &[(usize, u8)] = match packet.ext().headers() {
        ext if ext.contains(ExtHeaders::DETH) => &[(4, 0xFF)],
        ext if ext.contains(ExtHeaders::CNP_RESERVED) => &CNP,
        _ => &[],
    };
    put(&header[..len], reserved);
    put(packet.payload(), &[]);
    put(packet.pad(), &[]);
    put(&packet.icrc(), &[]);
    (bytes, mask)
}
