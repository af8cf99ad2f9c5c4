// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checksums of TCP and UDP packets in Ethernet frames. (RFC 1071, RFC 768, RFC 8200, RFC 9293)

use std::ops::Range;

const ETHERNET_HEADER: usize = 14;
/// The ethertype of an 802.1Q tag, and its length with that.
const TAG: [u8; 2] = [0x81, 0x00];
const TAG_LEN: usize = 4;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER: usize = 40;
/// IPv6 extension headers that have a length in their second byte: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// Protocols whose checksum covers their payload and a pseudo-header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Returns the number in an IP header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Returns the offset of the checksum in the header.
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    /// Returns the length of the shortest header, in bytes.
    #[must_use]
    pub const fn min_header(self) -> usize {
        match self {
            Self::Tcp => 20,
            Self::Udp => 8,
        }
    }
}

/// A TCP segment or UDP datagram in an Ethernet frame. It is not a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transport {
    pub protocol: Protocol,
    pub is_ipv6: bool,
    /// Offset of the IP header in the frame.
    pub ip: usize,
    /// Where it is in the frame, from its header on, without padding of the frame.
    pub range: Range<usize>,
    /// Source and destination address in the frame.
    addresses: Range<usize>,
}

/// Returns the ethertype of a frame and the offset of what is behind it, behind its 802.1Q tag if it has one.
#[must_use]
pub fn ethertype(frame: &[u8]) -> Option<([u8; 2], usize)> {
    let at = |start: usize| frame.get(start..start + 2)?.try_into().ok();
    match at(ETHERNET_HEADER - 2)? {
        TAG => Some((at(ETHERNET_HEADER + TAG_LEN - 2)?, ETHERNET_HEADER + TAG_LEN)),
        ethertype => Some((ethertype, ETHERNET_HEADER)),
    }
}

/// Returns the VLAN ID in the 802.1Q tag of a frame; `None` if it has no tag.
#[must_use]
pub fn vlan_id(frame: &[u8]) -> Option<u16> {
    let tag = frame.get(ETHERNET_HEADER - 2..)?.first_chunk::<TAG_LEN>().filter(|tag| tag[..2] == TAG)?;
    Some(u16::from_be_bytes([tag[2] & 0xf, tag[3]]))
}

impl Transport {
    /// Returns the offset of the IP header in a frame without a tag.
    pub const IP: usize = ETHERNET_HEADER;

    /// Finds the segment or datagram in a frame.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let (ether_type, ip) = ethertype(frame)?;
        let packet = frame.get(ip..)?;
        let (number, header, len, addresses) = match ether_type {
            IPV4 => {
                let header = usize::from(packet.first()? & 0xf) * 4;
                let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff;
                if header < 20 || fragment != 0 {
                    return None;
                }
                (*packet.get(9)?, header, word(packet, 2)?, 12..20)
            }
            IPV6 => {
                let (mut number, mut header) = (*packet.get(6)?, IPV6_HEADER);
                while EXTENSIONS.contains(&number) {
                    let extension = packet.get(header..header + 2)?;
                    (number, header) = (extension[0], header + 8 * (1 + usize::from(extension[1])));
                }
                (number, header, IPV6_HEADER + word(packet, 4)?, 8..40)
            }
            _ => return None,
        };
        let protocol = [Protocol::Tcp, Protocol::Udp].into_iter().find(|of| of.number() == number)?;
        let in_frame = |of: Range<usize>| ip + of.start..ip + of.end;
        let is_whole = len <= packet.len() && header + protocol.min_header() <= len;
        is_whole.then(|| Self {
            protocol,
            is_ipv6: ether_type == IPV6,
            ip,
            range: in_frame(header..len),
            addresses: in_frame(addresses),
        })
    }

    /// Returns where the checksum is in the frame.
    #[must_use]
    pub fn checksum(&self) -> Range<usize> {
        let start = self.range.start + self.protocol.checksum_offset();
        start..start + 2
    }

    /// Returns the sum of the pseudo-header of a segment or datagram of `len` bytes; 0 leaves the length out.
    ///
    /// # Panics
    /// With a frame shorter than that in which this was found.
    #[must_use]
    pub fn pseudo_header(&self, frame: &[u8], len: usize) -> u16 {
        let rest = u32::from(self.protocol.number()) + (len >> 16) as u32 + (len & 0xffff) as u32;
        sum(&frame[self.addresses.clone()], rest)
    }

    /// Whether the checksum is right, or there is none.
    ///
    /// # Panics
    /// As [`Transport::pseudo_header`].
    #[must_use]
    pub fn is_valid(&self, frame: &[u8]) -> bool {
        let is_absent = self.protocol == Protocol::Udp && !self.is_ipv6 && frame[self.checksum()] == [0, 0];
        let pseudo_header = self.pseudo_header(frame, self.range.len());
        is_absent || sum(&frame[self.range.clone()], pseudo_header.into()) == 0xffff
    }

    /// Writes a checksum.
    ///
    /// # Panics
    /// As [`Transport::pseudo_header`].
    pub fn write(&self, frame: &mut [u8], checksum: u16) {
        frame[self.checksum()].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

/// Returns the one's complement sum of 16-bit words and `initial`, not inverted.
#[must_use]
pub fn sum(bytes: &[u8], initial: u32) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let words = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>();
    let odd = odd.first().map_or(0, |&byte| u64::from(byte) << 8);
    let mut total = words + odd + u64::from(initial);
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}

/// Whether the checksum of an IPv4 header is right; `None` without one.
#[must_use]
pub fn ipv4_header_is_valid(frame: &[u8]) -> Option<bool> {
    let (ethertype, ip) = ethertype(frame)?;
    let packet = frame.get(ip..).filter(|_| ethertype == IPV4)?;
    let header = packet.get(..usize::from(packet.first()? & 0xf) * 4)?;
    Some(header.len() >= 20 && sum(header, 0) == 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DNS query over IPv4 with a right checksum, and a TCP segment over IPv6 with options.
    fn udp() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 31, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x30, 0x39, 0, 53, 0, 11, 0, 0, b'a', b'b', b'c']);
        frame
    }

    #[test]
    fn sum_folds_carries_and_pads_an_odd_byte() {
        // RFC 1071 §3
        assert_eq!(sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(sum(&[1], 0), 0x0100);
        assert_eq!(sum(&[0xff, 0xff, 0xff, 0xff], 0xffff_ffff), 0xffff);
    }

    #[test]
    fn checksum_is_valid_only_if_every_byte_is_the_one_sent() {
        let mut frame = udp();
        let found = Transport::find(&frame).unwrap();
        assert_eq!((found.protocol, found.is_ipv6, found.range.clone()), (Protocol::Udp, false, 34..45));
        assert!(found.is_valid(&frame), "there is none");
        let seed = found.pseudo_header(&frame, 11);
        found.write(&mut frame, 0);
        // 10.0.0.1 + 10.0.0.2 + 17 + 11 + ports, length, data
        assert_eq!(seed, 0x0a00 + 1 + 0x0a00 + 2 + 17 + 11);
        let checksum = !sum(&frame[34..], seed.into());
        found.write(&mut frame, checksum);
        assert!(found.is_valid(&frame));
        for at in (26..45).filter(|at| !(40..42).contains(at)) {
            frame[at] ^= 1;
            assert!(!Transport::find(&frame).is_some_and(|found| found.is_valid(&frame)), "{at}");
            frame[at] ^= 1;
        }
        // Padding of the frame is not part of the datagram.
        frame.extend([7; 20]);
        assert!(Transport::find(&frame).unwrap().is_valid(&frame));
    }

    #[test]
    fn packets_behind_a_tag_are_found() {
        let (mut tagged, untagged) = (udp(), Transport::find(&udp()).unwrap());
        tagged.splice(12..12, [0x81, 0, 0x60, 5]);
        let found = Transport::find(&tagged).unwrap();
        assert_eq!((found.ip, found.range.clone()), (18, 38..49));
        assert_eq!(found.pseudo_header(&tagged, 11), untagged.pseudo_header(&udp(), 11));
        assert_eq!(ipv4_header_is_valid(&tagged), ipv4_header_is_valid(&udp()));
        for len in 0..tagged.len() {
            assert_eq!(Transport::find(&tagged[..len]), None);
        }
    }

    #[test]
    fn fragments_and_truncated_packets_have_no_transport_header() {
        let frame = udp();
        for len in 0..frame.len() {
            assert_eq!(Transport::find(&frame[..len]), None);
        }
        for (at, value) in [(20, 0x20), (21, 1), (14, 0x44), (23, 1), (17, 27)] {
            let mut frame = udp();
            frame[at] = value;
            assert_eq!(Transport::find(&frame), None, "{at}");
        }
    }

    #[test]
    fn extension_headers_of_ipv6_are_skipped() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 0, 64]);
        frame.extend([1; 32]);
        // Hop-by-hop options of 8, destination options of 8 bytes.
        frame.extend([60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend([0; 20]);
        let found = Transport::find(&frame).unwrap();
        assert_eq!((found.protocol, found.is_ipv6, found.range.clone()), (Protocol::Tcp, true, 70..90));
        assert_eq!(found.pseudo_header(&frame, 20), 0x0101 * 16 + 6 + 20);
        assert_eq!(found.checksum(), 86..88);
    }
}
