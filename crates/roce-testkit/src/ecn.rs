// SPDX-License-Identifier: MIT OR Apache-2.0

//! ECN marks in frames.

/// Marks an ECN-capable frame CE, as a congested switch does (RFC 3168). Returns whether it is marked.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    const ETHERNET: usize = 14;
    const NOT_CAPABLE: u8 = 0;
    const EXPERIENCED: u8 = 0b11;
    match (frame.get(12..ETHERNET), frame.get(ETHERNET + 1).copied()) {
        (Some([0x08, 0x00]), Some(class)) if class & EXPERIENCED != NOT_CAPABLE => {
            frame[ETHERNET + 1] |= EXPERIENCED;
            // The IPv4 header checksum covers the mark: subtract the difference in ones' complement.
            let added = u16::from(frame[ETHERNET + 1] - class);
            let Some(Ok(sum)) = frame.get(ETHERNET + 10..ETHERNET + 12).map(<[u8; 2]>::try_from) else {
                return false;
            };
            let (less, borrow) = u16::from_be_bytes(sum).overflowing_sub(added);
            frame[ETHERNET + 10..ETHERNET + 12]
                .copy_from_slice(&(less.wrapping_sub(u16::from(borrow))).to_be_bytes());
            true
        }
        // Bits 5-4 of the second byte are the low bits of the traffic class.
        (Some([0x86, 0xDD]), Some(byte)) if byte >> 4 & EXPERIENCED != NOT_CAPABLE => {
            frame[ETHERNET + 1] |= EXPERIENCED << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::{Ext, Headers, MacAddr, Opcode, Packet, Path, Psn, Qpn, Template};
    use std::net::IpAddr;

    fn frame(local: IpAddr, remote: IpAddr, traffic_class: u8) -> Vec<u8> {
        let path = Path { traffic_class, ..Path::new(MacAddr([2; 6]), MacAddr([4; 6]), local, remote) };
        let headers = Headers {
            opcode: Opcode::SEND_ONLY,
            solicited: false,
            ack_req: true,
            psn: Psn::new(7),
            ext: Ext::None,
        };
        let template = Template::new(&path, Qpn::new(0x1234)).unwrap();
        let mut slot = vec![0; 200];
        let mut frame = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 4).unwrap();
        frame.write(b"data");
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    //= rocev2 §14
    #[test]
    fn a_ce_mark_keeps_the_frame_valid_and_only_ecn_capable_frames_are_marked() {
        let v4 = |n| IpAddr::from([10, 0, 0, n]);
        let v6 = |n| IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, n]);
        for (local, remote) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            for class in [0x68, 0x69, 0x6A, 0xFE] {
                let mut frame = frame(local, remote, class);
                assert_eq!(mark(&mut frame), class & 3 != 0);
                let packet = Packet::parse(&frame).unwrap();
                assert!(packet.icrc_valid(roce_wire::icrc::Crc::table()));
                assert_eq!(packet.congestion_experienced(), class & 3 != 0, "{class:#x}");
            }
        }
    }
}
