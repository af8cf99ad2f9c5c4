// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `frames`: one frame of any bytes.

use std::time::Duration;

use roce::{Access, DatagramSpec, DropReason, PeerSpec, QpChange, RecvRequest, Sge, UnreliableSpec, Verdict};
use roce_wire::cm::CmMessage;
use roce_wire::icrc::Crc;
use roce_wire::{
    Bth, BthRepr, Eth, EthRepr, Ext, ExtHeaders, Ip, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Mad, MadHeaderRepr,
    Packet, Psn, Qpn, Udp, UdpRepr,
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
    /// With [`QPN`], the queue pair is one for datagrams (UD) instead, and the packet one of these, with its Q_Key.
    pub const DATAGRAMS: u8 = 1 << 4;
    /// The same of an unreliable connection (UC). With both bits, of a connection whose peer may request atomic operations.
    pub const UNRELIABLE: u8 = 1 << 5;
}

/// Q_Key of the queue pair for datagrams.
const Q_KEY: u32 = 0x1111_2222;
/// The expected PSN of queue pairs without connection management.
const FIRST_PSN: Psn = Psn::new(0x00FF_FFFF);

/// The queue pairs that packets can be corrected for.
#[derive(Clone, Copy)]
struct Targets {
    connection: Link,
    datagrams: Qpn,
    unreliable: Qpn,
    atomics: Qpn,
}

/// Parses the frame and encodes it again; then delivers it to one of two equal endpoints, which must stay equal if the frame
/// is dropped.
pub fn run(input: &[u8]) {
    let Some((&mode, frame)) = input.split_first() else { return };
    let (mut alice, targets) = connected();
    let mut frame = frame.to_vec();
    if mode & repairs::SUMS != 0 {
        correct_destination(&mut frame, mode, targets);
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

/// Returns an endpoint with queue pairs of all services, each with a posted receive.
fn connected() -> (Endpoint, Targets) {
    let mut endpoint = Endpoint::new();
    endpoint.register(Zone::Sink);
    endpoint.register(Zone::Shared);
    let qp = endpoint.qp();
    let connection = endpoint.connect(&qp);
    let [datagrams, unreliable, atomics] = [(); 3].map(|()| endpoint.qp());
    let mtu = crate::endpoint::MTU;
    let path = forge::path_to(crate::endpoint::PEER);
    let qpn = crate::endpoint::PEER_QPN;
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let opened = QpChange::OpenDatagrams(DatagramSpec { q_key: Q_KEY, mtu });
    endpoint.engine.modify_qp(&datagrams, &opened).expect("opened");
    let opened = QpChange::OpenUnreliable(UnreliableSpec { path, qpn, mtu, receive_psn: FIRST_PSN, access });
    endpoint.engine.modify_qp(&unreliable, &opened).expect("opened");
    let ready = PeerSpec { path, qpn, mtu, receive_psn: FIRST_PSN, inbound_reads: 4, rnr_timer: 12, access };
    endpoint.engine.modify_qp(&atomics, &QpChange::ReadyToReceive(ready)).expect("ready");
    let key = endpoint.regions[Zone::Sink as usize].as_ref().expect("registered").key();
    let sge = Sge { address: base(Zone::Sink), length: 512, key };
    for qp in [&qp, &datagrams, &unreliable, &atomics] {
        endpoint.engine.post_recv(qp, &RecvRequest { context: 1, sges: &[sge] }).expect("room for a receive");
    }
    endpoint.arena.allow(Zone::Sink, 0, 512);
    let [datagrams, unreliable, atomics] = [datagrams, unreliable, atomics].map(|qp| qp.qpn());
    (endpoint, Targets { connection, datagrams, unreliable, atomics })
}

/// Returns all outputs of an endpoint until its connection ends.
fn outputs_until_end(endpoint: &mut Endpoint) -> Vec<crate::endpoint::Output> {
    endpoint.drive(usize::MAX);
    endpoint.pass(Duration::from_secs(2));
    std::mem::take(&mut endpoint.outputs)
}

/// Corrects the fields that select the queue pair.
fn correct_destination(frame: &mut [u8], mode: u8, targets: Targets) {
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
    let Some((bth, rest)) = frame.get_mut(bth..).and_then(|bth| bth.split_at_mut_checked(Bth::LEN)) else {
        return;
    };
    if mode & repairs::QPN == 0 {
        return;
    }
    // The upper bits of an opcode are the service.
    let (qpn, psn, service) = match (mode & repairs::DATAGRAMS != 0, mode & repairs::UNRELIABLE != 0) {
        (false, false) => (targets.connection.qpn, targets.connection.psn, None),
        (true, false) => (targets.datagrams, FIRST_PSN, Some(0x60)),
        (false, true) => (targets.unreliable, FIRST_PSN, Some(0x20)),
        (true, true) => (targets.atomics, FIRST_PSN, None),
    };
    if let Some(service) = service {
        bth[0] = bth[0] & 0x1F | service;
    }
    if service == Some(0x60)
        && let Some(q_key) = rest.first_chunk_mut()
    {
        *q_key = Q_KEY.to_be_bytes();
    }
    bth[2..4].fill(0xFF);
    bth[5..8].copy_from_slice(&qpn.value().to_be_bytes()[1..]);
    if mode & repairs::PSN != 0 {
        bth[9..12].copy_from_slice(&psn.value().to_be_bytes()[1..]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Output, PEER, PEER_QPN};
    use roce_wire::{AtomicEthRepr, DethRepr, Headers, Opcode};

    /// Returns what the endpoint reports about a corrected packet.
    fn handled(mode: u8, opcode: Opcode, ext: impl FnOnce(&Endpoint) -> Ext, payload: &[u8]) -> (usize, u64) {
        let (mut endpoint, targets) = connected();
        let ext = ext(&endpoint);
        let headers = Headers { opcode, solicited: false, ack_req: true, psn: Psn::new(9), ext };
        let mut frame = forge::frame(&forge::path(PEER), Qpn::new(2), &headers, payload);
        let mode = mode | repairs::SUMS | repairs::ADDRESSES | repairs::QPN | repairs::PSN;
        correct_destination(&mut frame, mode, targets);
        assert!(forge::repair(&mut frame));
        assert_eq!(endpoint.handle(&frame), Verdict::Consumed, "{opcode:?}");
        endpoint.drive(usize::MAX);
        let received = endpoint.outputs.iter().filter(|output| matches!(output, Output::Completion(_)));
        (received.count(), endpoint.counters()["rx_atomics"])
    }

    #[test]
    fn corrected_packets_reach_the_queue_pairs_of_all_services() {
        let deth = DethRepr { q_key: 1, source_qp: PEER_QPN };
        let datagram = handled(repairs::DATAGRAMS, Opcode::UD_SEND_ONLY, |_| Ext::Deth(deth), b"data");
        assert_eq!(datagram, (1, 0));
        assert_eq!(handled(0, Opcode::SEND_ONLY, |_| Ext::None, b"data"), (1, 0));
        assert_eq!(handled(repairs::UNRELIABLE, Opcode::SEND_ONLY, |_| Ext::None, b"data"), (1, 0));
        let add = |endpoint: &Endpoint| {
            let region = endpoint.regions[Zone::Shared as usize].as_ref().expect("registered");
            let address = base(Zone::Shared).next_multiple_of(8);
            Ext::Atomic(AtomicEthRepr { address, r_key: region.key(), swap_or_add: 1, compare: 0 })
        };
        let atomics = repairs::DATAGRAMS | repairs::UNRELIABLE;
        assert_eq!(handled(atomics, Opcode::FETCH_ADD, add, b""), (0, 1));
    }
}
