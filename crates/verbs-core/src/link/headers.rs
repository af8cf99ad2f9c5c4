// SPDX-License-Identifier: MIT OR Apache-2.0

//! The headers between a frame of the engine and the datagram of a socket, which has none.

use core::net::{IpAddr, SocketAddr};

use roce_wire::{
    Eth, EthRepr, EtherType, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, MacAddr, Path, UDP_PORT, Udp, UdpRepr,
};

/// The MAC address of every host on a link of datagrams, where frames have none.
pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// Returns the bytes before the BTH.
pub const fn prefix_len(is_ipv4: bool) -> usize {
    Eth::LEN + if is_ipv4 { Ipv4::LEN } else { Ipv6::LEN } + Udp::LEN
}

/// Where a frame goes, and its datagram.
pub struct Outgoing<'a> {
    pub destination: IpAddr,
    pub source_port: u16,
    /// From the BTH to the ICRC.
    pub datagram: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// Takes a frame apart that the engine has built for a path of this link, or one of the same form. `None` if it is too short.
    pub fn of(frame: &'a [u8]) -> Option<Self> {
        let rest = frame.get(Eth::LEN..)?;
        let first = *rest.first()?;
        let (destination, rest) = if first >> 4 == 4 {
            let (ip, rest) = rest.split_first_chunk()?;
            let ip = Ipv4::new(ip);
            (IpAddr::V4(ip.destination()), rest)
        } else {
            let (ip, rest) = rest.split_first_chunk()?;
            let ip = Ipv6::new(ip);
            (IpAddr::V6(ip.destination()), rest)
        };
        let (udp, datagram) = rest.split_first_chunk()?;
        Some(Self { destination, source_port: Udp::new(udp).source_port(), datagram })
    }
}

/// Removes the UDP checksum of a frame, which a datagram of RoCEv2 need not have.
pub fn clear_checksum(frame: &mut [u8]) {
    let is_ipv4 = frame.get(Eth::LEN).is_some_and(|first| first >> 4 == 4);
    // The last field of the header.
    let end = prefix_len(is_ipv4);
    if let Some(checksum) = frame.get_mut(end - 2..end) {
        checksum.fill(0);
    }
}

/// Writes the headers of a received datagram of `len` bytes in front of it: what the sender has built, as far as the ICRC covers it.
/// The fields that it does not cover have usual values. Does nothing if the families differ.
pub fn rebuild(frame: &mut [u8], len: usize, source: SocketAddr, local: IpAddr, traffic_class: u8) {
    let ethertype = if local.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    let Ok(rest) = (EthRepr { destination: MAC, source: MAC, vlan: None, ethertype }).emit(frame) else {
        return;
    };
    let udp_len = (len + Udp::LEN) as u16;
    let rest = match (source.ip(), local) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let Some((header, rest)) = rest.split_first_chunk_mut() else { return };
            Ipv4Repr {
                traffic_class,
                identification: 0,
                dont_fragment: true,
                ttl: Path::HOP_LIMIT,
                source,
                destination,
                total_length: udp_len + Ipv4::LEN as u16,
            }
            .emit(header);
            rest
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let Some((header, rest)) = rest.split_first_chunk_mut() else { return };
            Ipv6Repr {
                traffic_class,
                flow_label: 0,
                hop_limit: Path::HOP_LIMIT,
                source,
                destination,
                payload_length: udp_len,
            }
            .emit(header);
            rest
        }
        _ => return,
    };
    if let Some(header) = rest.first_chunk_mut() {
        let udp =
            UdpRepr { source_port: source.port(), destination_port: UDP_PORT, length: udp_len, checksum: 0 };
        udp.emit(header);
    }
}
