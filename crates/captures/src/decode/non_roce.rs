// SPDX-License-Identifier: MIT OR Apache-2.0

//! Short descriptions of frames that are not RoCEv2.

use std::net::{Ipv4Addr, Ipv6Addr};

use roce_wire::{Eth, EtherType};

/// Returns source and destination address: of IP if the frame has an IP header, else of Ethernet.
pub fn addresses(bytes: &[u8]) -> (String, String) {
    let Ok((eth, rest)) = Eth::split(bytes) else { return ("?".into(), "?".into()) };
    match eth.ethertype() {
        EtherType::IPV4 => {
            if let (Some(&source), Some(&destination)) = (chunk::<4>(rest, 12), chunk::<4>(rest, 16)) {
                return (Ipv4Addr::from(source).to_string(), Ipv4Addr::from(destination).to_string());
            }
        }
        EtherType::IPV6 => {
            if let (Some(&source), Some(&destination)) = (chunk::<16>(rest, 8), chunk::<16>(rest, 24)) {
                return (Ipv6Addr::from(source).to_string(), Ipv6Addr::from(destination).to_string());
            }
        }
        _ => {}
    }
    (eth.source().to_string(), eth.destination().to_string())
}

/// Describes the frame by its protocol.
pub fn describe(bytes: &[u8]) -> String {
    let Ok((eth, rest)) = Eth::split(bytes) else { return "no Ethernet header".into() };
    let name = match eth.ethertype() {
        EtherType::IPV4 => protocol("IPv4", rest.get(9), rest.get(20..)),
        EtherType::IPV6 => protocol("IPv6", rest.get(6), rest.get(40..)),
        EtherType(0x0806) => "ARP".into(),
        EtherType(0x8915) => "RoCEv1".into(),
        EtherType(other) => format!("ethertype {other:#06x}"),
    };
    format!("{name}, {} bytes", bytes.len())
}

fn protocol(family: &str, number: Option<&u8>, body: Option<&[u8]>) -> String {
    let port = |at| {
        let port = body.and_then(|body| chunk::<2>(body, at));
        port.map_or("?".into(), |&port| u16::from_be_bytes(port).to_string())
    };
    match number {
        None => format!("{family}, truncated"),
        Some(1 | 58) => format!("{family} ICMP"),
        Some(6) => format!("{family} TCP to port {}", port(2)),
        Some(17) => format!("{family} UDP to port {}", port(2)),
        Some(number) => format!("{family} protocol {number}"),
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_are_described() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(describe(&frame), "ARP, 60 bytes");
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[23] = 6;
        frame[36..38].copy_from_slice(&[1, 189]);
        assert_eq!(describe(&frame), "IPv4 TCP to port 445, 60 bytes");
        for len in 0..frame.len() {
            describe(&frame[..len]);
            addresses(&frame[..len]);
        }
    }
}
