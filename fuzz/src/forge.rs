// SPDX-License-Identifier: MIT OR Apache-2.0

//! Forged frames: from the peer, or from a sender that pretends to be the peer.

use std::net::{IpAddr, Ipv4Addr};

use roce_wire::cm::{CmMessage, CommId, SidrReq};
use roce_wire::icrc::{Crc, CrcState};
use roce_wire::{
    Attribute, Bth, DethRepr, Eth, EthRepr, Ext, Headers, ICRC_LEN, Ip, Ipv4, Ipv6, MacAddr, Mad, Opcode,
    Packet, Path, Psn, Qpn, Template, Udp,
};

/// The address of the endpoint under test.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// Returns address number `number` of the network; 1 is the endpoint's, 2 the peer's.
pub fn address(number: u8) -> (IpAddr, MacAddr) {
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), MacAddr([2, 0, 0, 0, 0, number]))
}

/// Returns the path from address `from` to the endpoint.
pub fn path(from: u8) -> Path {
    let (ip, mac) = address(from);
    Path::new(mac, HOST_MAC, ip, IpAddr::V4(HOST))
}

/// Returns the path from the endpoint to address `to`.
pub fn path_to(to: u8) -> Path {
    path_between(1, to)
}

/// Returns the path from address `from` to address `to`.
pub fn path_between(from: u8, to: u8) -> Path {
    let ((local, source), (remote, destination)) = (address(from), address(to));
    Path::new(source, destination, local, remote)
}

/// Returns a frame with a valid ICRC.
pub fn frame(path: &Path, to: Qpn, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let template = Template::new(path, to).expect("addresses of one family");
    let mut slot = vec![0; Template::MIN_SLOT + payload.len() + 8];
    let mut frame =
        template.begin(Crc::detect(), &mut slot, headers, payload.len()).expect("headers of the opcode");
    frame.write(payload);
    let len = frame.finish();
    slot.truncate(len);
    slot
}

/// Returns the frame of a connection management message.
pub fn datagram(path: &Path, message: &CmMessage, transaction: u64) -> Vec<u8> {
    let mut mad = [0; Mad::LEN];
    message.emit(transaction, &mut mad);
    datagram_of(path, &mad)
}

/// Returns the frame of a management datagram with any content.
pub fn datagram_of(path: &Path, mad: &[u8; Mad::LEN]) -> Vec<u8> {
    let headers = Headers {
        opcode: Opcode::UD_SEND_ONLY,
        solicited: false,
        ack_req: false,
        psn: Psn::new(0),
        ext: Ext::Deth(DethRepr::GSI),
    };
    frame(path, Qpn::GSI, &headers, mad)
}

/// Corrects the fields that are checked before the queue pair, after bytes were changed: lengths and checksum of IP, UDP
/// length, ICRC. Returns `false` if the frame is too short.
pub fn repair(frame: &mut [u8]) -> bool {
    let Some((header_len, is_v4)) = Eth::split(frame).ok().and_then(|(eth, rest)| {
        let is_v4 = rest.first()? >> 4 == 4;
        Some((EthRepr::parse(&eth).header_len(), is_v4))
    }) else {
        return false;
    };
    let ip_len = if is_v4 { Ipv4::LEN } else { Ipv6::LEN };
    let Some(datagram) = frame.get_mut(header_len..) else { return false };
    let whole = datagram.len();
    let Some(udp_len) = whole.checked_sub(ip_len).filter(|&len| len >= Udp::LEN + Bth::LEN + ICRC_LEN) else {
        return false;
    };
    let (Ok(total), Ok(udp_len16)) = (u16::try_from(whole), u16::try_from(udp_len)) else { return false };
    let (ip, udp) = datagram.split_at_mut(ip_len);
    if is_v4 {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[6] &= 0x40;
        ip[7] = 0;
        ip[9] = Ipv4::UDP;
        ip[10..12].fill(0);
        let sum: u32 = ip.as_chunks::<2>().0.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let folded = (folded & 0xFFFF) + (folded >> 16);
        ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    } else {
        ip[4..6].copy_from_slice(&udp_len16.to_be_bytes());
        ip[6] = Ipv4::UDP;
    }
    udp[2..4].copy_from_slice(&roce_wire::UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len16.to_be_bytes());
    udp[Udp::LEN + 1] &= 0xF0;
    let covered = datagram.len() - ICRC_LEN;
    let crc = icrc(&datagram[..covered], is_v4);
    datagram[covered..].copy_from_slice(&crc);
    true
}

/// Returns the ICRC of `covered`, from the IP header on, computed as rocev2 §2 describes it.
fn icrc(covered: &[u8], is_v4: bool) -> [u8; ICRC_LEN] {
    let mut masked = covered.to_vec();
    let ip_len = if is_v4 {
        for at in [1, 8, 10, 11] {
            masked[at] = 0xFF;
        }
        Ipv4::LEN
    } else {
        masked[0] |= 0x0F;
        for at in [1, 2, 3, 7] {
            masked[at] = 0xFF;
        }
        Ipv6::LEN
    };
    masked[ip_len + 6..ip_len + 8].fill(0xFF);
    masked[ip_len + Udp::LEN + 4] = 0xFF;
    Crc::table().update(CrcState::ICRC_START, &masked).to_wire()
}

/// Returns the connection management message in a frame, with its transaction ID.
pub fn cm_message(packet: &Packet<'_>) -> Option<(CmMessage, u64)> {
    packet.deth()?;
    let mad = Mad::new_checked(packet.payload()).ok()?;
    Some((CmMessage::parse(&mad)?, mad.header().transaction_id()))
}

/// Returns the number of the request in a SIDR_REQ, with its transaction ID.
pub fn sidr_request(packet: &Packet<'_>) -> Option<(CommId, u64)> {
    packet.deth()?;
    let mad = Mad::new_checked(packet.payload()).ok()?;
    let is_request = mad.header().attribute() == Attribute::CM_SIDR_REQ;
    is_request.then(|| (SidrReq::new(mad.body()).request_id(), mad.header().transaction_id()))
}

/// Returns whether a frame goes back to the sender of another one.
pub fn is_reply_to(reply: &Packet<'_>, request: &Packet<'_>) -> bool {
    reply.source() == request.destination()
        && reply.destination() == request.source()
        && reply.eth().destination() == request.eth().source()
        && matches!((reply.ip(), request.ip()), (Ip::V4(_), Ip::V4(_)) | (Ip::V6(_), Ip::V6(_)))
}
