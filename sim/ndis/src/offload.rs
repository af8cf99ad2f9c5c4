// SPDX-License-Identifier: MIT OR Apache-2.0

//! Task offloads: what a miniport offers and what is in force, requests of the stack, and what the miniport reports of received
//! packets. A checksum that is reported as right is computed here.

use device_sim::checksum::{self, Protocol, Transport};
use ndk_abi::ndis::{
    NDIS_ENCAPSULATION_IEEE_802_3, NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_OFFLOAD,
    NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION, NDIS_OFFLOAD, NDIS_OFFLOAD_ENCAPSULATION_REVISION_1,
    NDIS_OFFLOAD_REVISION_6, NDIS_OFFLOAD_SET_OFF, NDIS_OFFLOAD_SET_ON,
    NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_1,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_2, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_3,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_4, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_5,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6, NDIS_SIZEOF_OFFLOAD_ENCAPSULATION_REVISION_1,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend,
    NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO as UdpSegmentation, NDIS_USO_IPV4,
};
use nt_sim::guest::Guest;

use crate::rules::{self, broken, require};

/// Revisions of `NDIS_OFFLOAD`, from 1: the minor version of NDIS 6 from which drivers may state it, and its size in bytes.
const REVISIONS: [(u8, u16); NDIS_OFFLOAD_REVISION_6 as usize] = [
    (0, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_1),
    (1, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_2),
    (30, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_3),
    (50, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_4),
    (70, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_5),
    (83, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6),
];

/// Nanoseconds for which checksums may still be reported after they were switched off: the miniport has processed these frames, and
/// is about to indicate them. Our choice.
const GRACE: u64 = 10_000_000;

/// Task offloads of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    pub send: Checksums,
    pub receive: Checksums,
    /// Segmentation of TCP over IPv4 and IPv6: the longest payload in bytes, and the fewest segments.
    pub large_send: [Option<(u32, u32)>; 2],
    /// The same, of UDP.
    pub udp_segmentation: [Option<(u32, u32)>; 2],
    /// Coalescing of received TCP segments over IPv4 and IPv6.
    pub coalescing: [bool; 2],
}

/// The task offloads of an adapter as NDIS knows them.
#[derive(Clone, Copy, Default)]
pub(crate) struct AdapterOffloads {
    pub possible: Offloads,
    pub current: Offloads,
    /// `OID_OFFLOAD_ENCAPSULATION` has started them, for IPv4 and IPv6.
    started: [bool; 2],
    /// `started` before the last request, to which one that fails returns.
    started_before: [bool; 2],
    /// The offloads of received packets that were in force before the last change, which the miniport may still report until this time.
    before: (Receives, u64),
    /// A request is in progress that changes them.
    is_changing: bool,
}

/// Offloads of received packets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Receives {
    pub checksums: Checksums,
    /// Over IPv4 and IPv6.
    pub coalescing: [bool; 2],
}

/// Checksums that an adapter computes or verifies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Checksums {
    pub ipv4: bool,
    pub tcp4: bool,
    pub udp4: bool,
    pub tcp6: bool,
    pub udp6: bool,
}

/// The stack's request for a frame to send: the low 32 bits of slots of a list's information, and how it describes the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendRequest {
    /// `TcpIpChecksumNetBufferListInfo`.
    pub checksum: u32,
    /// `TcpLargeSendNetBufferListInfo`.
    pub large_send: u32,
    /// `UdpSegmentationOffloadInfo`.
    pub udp_segmentation: u32,
    /// `Ieee8021QNetBufferListInfo`.
    pub priority_vlan: u32,
    /// `NetBufferListHashValue`; 0 for none.
    pub hash: u32,
    /// Bytes of the frame that each MDL describes; 0 for a single MDL.
    pub mdl_len: usize,
    /// Bytes by which `DataLength` exceeds what the MDLs describe.
    pub missing: usize,
    /// The list has no NET_BUFFER, and the frame is not sent.
    pub is_empty: bool,
}

/// A frame that an adapter has received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedFrame {
    pub bytes: Vec<u8>,
    /// The low 32 bits of `TcpIpChecksumNetBufferListInfo`.
    pub checksum: u32,
    /// The low 32 bits of `Ieee8021QNetBufferListInfo`.
    pub priority_vlan: u32,
    /// The low 32 bits of `TcpRecvSegCoalesceInfo`.
    pub coalesced: u32,
}

impl ReceivedFrame {
    /// Returns whether a stack takes the frame: the miniport reports no wrong checksum, and those that it has not verified are right.
    #[must_use]
    pub fn has_valid_checksums(&self) -> bool {
        let has = |bit: u32| self.checksum & bit != 0;
        let is_header_valid = !has(Checksum::RECEIVE_IP_FAILED)
            && (has(Checksum::RECEIVE_IP_SUCCEEDED)
                || checksum::ipv4_header_is_valid(&self.bytes) != Some(false));
        is_header_valid
            && (has(Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_UDP_SUCCEEDED)
                || Transport::find(&self.bytes).is_none_or(|found| found.is_valid(&self.bytes)))
    }
}

/// Returns whether the bits that a miniport reports for the checksums of a received frame can be true together. Coalesced frames alone may
/// have checksums that were verified, and not computed anew for the whole. (WDK: Indicating Coalesced Segments; ndis.h)
fn is_consistent(reported: u32, coalesced: bool) -> bool {
    let has = |bit: u32| reported & bit != 0;
    let contradicts = |failed: u32, succeeded: u32| has(failed) && has(succeeded);
    let known = Checksum::RECEIVE_TCP_FAILED
        | Checksum::RECEIVE_UDP_FAILED
        | Checksum::RECEIVE_IP_FAILED
        | Checksum::RECEIVE_TCP_SUCCEEDED
        | Checksum::RECEIVE_UDP_SUCCEEDED
        | Checksum::RECEIVE_IP_SUCCEEDED
        | if coalesced {
            Checksum::RECEIVE_TCP_VALUE_INVALID | Checksum::RECEIVE_IP_VALUE_INVALID
        } else {
            0
        };
    reported & !known == 0
        && !contradicts(Checksum::RECEIVE_TCP_FAILED, Checksum::RECEIVE_TCP_SUCCEEDED)
        && !contradicts(Checksum::RECEIVE_UDP_FAILED, Checksum::RECEIVE_UDP_SUCCEEDED)
        && !contradicts(Checksum::RECEIVE_IP_FAILED, Checksum::RECEIVE_IP_SUCCEEDED)
        && (!has(Checksum::RECEIVE_TCP_VALUE_INVALID) || has(Checksum::RECEIVE_TCP_SUCCEEDED))
        && (!has(Checksum::RECEIVE_IP_VALUE_INVALID) || has(Checksum::RECEIVE_IP_SUCCEEDED))
}

/// Length of an Ethernet header in bytes.
const ETHERNET_HEADER: u32 = 14;

/// Returns an `NDIS_OFFLOAD_ENCAPSULATION` for Ethernet, with offloads on or off for IPv4 and IPv6.
#[must_use]
pub fn encapsulation(on: [bool; 2]) -> Vec<u8> {
    let size = NDIS_SIZEOF_OFFLOAD_ENCAPSULATION_REVISION_1;
    let [low, high] = size.to_le_bytes();
    let mut bytes =
        vec![NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION, NDIS_OFFLOAD_ENCAPSULATION_REVISION_1, low, high];
    for on in on {
        let enabled = if on { NDIS_OFFLOAD_SET_ON } else { NDIS_OFFLOAD_SET_OFF };
        for word in [enabled, NDIS_ENCAPSULATION_IEEE_802_3, ETHERNET_HEADER] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

impl SendRequest {
    /// Requests the checksums of a frame that `offloads` allow, and prepares the frame as Windows does: the sum of the
    /// pseudo-header is in the place of the checksum of TCP or UDP.
    #[must_use]
    pub fn checksums(frame: &mut [u8], offloads: &Offloads) -> Self {
        let mut bits = 0;
        if offloads.send.ipv4 && checksum::ipv4_header_is_valid(frame).is_some() {
            frame[Transport::IP + 10..Transport::IP + 12].fill(0xa5);
            bits |= Checksum::TRANSMIT_IS_IPV4 | Checksum::TRANSMIT_IP_HEADER_CHECKSUM;
        }
        if let Some(found) = Transport::find(frame).filter(|found| offloads.send.covers(found)) {
            found.write(frame, found.pseudo_header(frame, found.range.len()));
            bits |= if found.is_ipv6 { Checksum::TRANSMIT_IS_IPV6 } else { Checksum::TRANSMIT_IS_IPV4 };
            bits |= match found.protocol {
                Protocol::Tcp => {
                    Checksum::TRANSMIT_TCP_CHECKSUM
                        | (found.range.start as u32) << Checksum::TRANSMIT_TCP_HEADER_OFFSET_SHIFT
                }
                Protocol::Udp => Checksum::TRANSMIT_UDP_CHECKSUM,
            };
        }
        Self { checksum: bits, ..Self::default() }
    }

    /// Requests that a TCP packet is divided into segments of `mss` bytes of payload, and prepares the frame as Windows does: the
    /// sum of the pseudo-header lacks the length, and so does the IPv4 header.
    ///
    /// # Panics
    /// When the frame is no TCP packet.
    #[must_use]
    pub fn large_send(frame: &mut [u8], mss: u32) -> Self {
        let found = without_length(frame);
        assert_eq!(found.protocol, Protocol::Tcp);
        let version = if found.is_ipv6 { LargeSend::V2_IPV6 } else { 0 };
        let header = (found.range.start as u32) << LargeSend::V2_TCP_HEADER_OFFSET_SHIFT;
        Self { large_send: mss | header | LargeSend::TYPE_V2 | version, ..Self::default() }
    }

    /// Returns the request of [`large_send`](Self::large_send) for a UDP packet, whose length is missing, too.
    ///
    /// # Panics
    /// When the frame is no UDP packet.
    #[must_use]
    pub fn udp_segmentation(frame: &mut [u8], mss: u32) -> Self {
        let found = without_length(frame);
        assert_eq!(found.protocol, Protocol::Udp);
        frame[found.range.start + 4..found.range.start + 6].fill(0);
        let version = if found.is_ipv6 { UdpSegmentation::IPV6 } else { 0 };
        let header = (found.range.start as u32) << UdpSegmentation::UDP_HEADER_OFFSET_SHIFT;
        Self { udp_segmentation: mss | header | version, ..Self::default() }
    }
}

/// Removes the length of a packet from the sum of its pseudo-header and from the IPv4 header.
fn without_length(frame: &mut [u8]) -> Transport {
    let found = Transport::find(frame).expect("a packet of TCP or UDP");
    found.write(frame, found.pseudo_header(frame, 0));
    if !found.is_ipv6 {
        frame[Transport::IP + 2..Transport::IP + 4].fill(0);
        frame[Transport::IP + 10..Transport::IP + 12].fill(0);
    }
    found
}

impl AdapterOffloads {
    pub fn new([possible, current]: [Offloads; 2]) -> Self {
        Self { possible, current, ..Self::default() }
    }

    /// The miniport has reported other offloads, at the time `now`.
    pub fn set_current(&mut self, current: Offloads, now: u64) {
        // Frames that were coalesced before a request are indicated before it completes.
        let until = if self.is_changing { u64::MAX } else { now + GRACE };
        self.before = (self.reported(now), until);
        self.current = current;
    }

    /// A protocol driver requests a change. What an `NDIS_OFFLOAD_ENCAPSULATION` starts may be in force at once.
    pub fn begin_request(&mut self, encapsulation: Option<&[u8]>) {
        self.is_changing = true;
        self.started_before = self.started;
        let Some(bytes) = encapsulation else { return };
        for (started, enabled) in self.started.iter_mut().zip([4, 16]) {
            *started |= bytes.get(enabled).is_some_and(|&on| u32::from(on) == NDIS_OFFLOAD_SET_ON);
        }
    }

    /// The miniport has completed the request at the time `now`. An `NDIS_OFFLOAD_ENCAPSULATION` is that of one that succeeded.
    pub fn end_request(&mut self, encapsulation: Option<&[u8]>, now: u64) {
        self.is_changing = false;
        if encapsulation.is_none() {
            self.started = self.started_before;
        }
        let before = Receives { coalescing: [false; 2], ..self.reported(now) };
        self.before = (before, now + GRACE);
        let Some(bytes) = encapsulation else { return };
        for (started, enabled) in self.started.iter_mut().zip([4, 16]) {
            *started &= bytes.get(enabled).is_none_or(|&off| u32::from(off) != NDIS_OFFLOAD_SET_OFF);
        }
    }

    /// Returns what the miniport may report of received packets at the time `now`: nothing before a protocol driver has started it.
    pub fn reported(&self, now: u64) -> Receives {
        let (before, until) = self.before;
        let current = self.receives();
        if now >= until {
            return current;
        }
        let [both4, both6] = [0, 1].map(|version| current.coalescing[version] || before.coalescing[version]);
        Receives { checksums: current.checksums.or(before.checksums), coalescing: [both4, both6] }
    }

    fn receives(&self) -> Receives {
        let [v4, v6] = self.started;
        let of = self.current.receive;
        let checksums = Checksums {
            ipv4: of.ipv4 && v4,
            tcp4: of.tcp4 && v4,
            udp4: of.udp4 && v4,
            tcp6: of.tcp6 && v6,
            udp6: of.udp6 && v6,
        };
        let [rsc4, rsc6] = self.current.coalescing;
        Receives { checksums, coalescing: [rsc4 && v4, rsc6 && v6] }
    }
}

impl Checksums {
    /// Whether the checksum of a segment or datagram is among these.
    #[must_use]
    pub const fn covers(&self, of: &Transport) -> bool {
        match (of.protocol, of.is_ipv6) {
            (Protocol::Tcp, false) => self.tcp4,
            (Protocol::Udp, false) => self.udp4,
            (Protocol::Tcp, true) => self.tcp6,
            (Protocol::Udp, true) => self.udp6,
        }
    }

    /// Checks what a miniport reports of the checksums of a received frame while these are in force.
    pub(crate) fn require_true(self, frame: &ReceivedFrame) {
        let has = |bit: u32| frame.checksum & bit != 0;
        require(is_consistent(frame.checksum, frame.coalesced != 0), rules::CHECKSUMS, || {
            format!("TcpIpChecksumNetBufferListInfo of a received frame is {:#x}", frame.checksum)
        });
        if has(Checksum::RECEIVE_IP_FAILED | Checksum::RECEIVE_IP_SUCCEEDED) {
            require(self.ipv4, rules::CHECKSUMS_IN_FORCE, || {
                "an IPv4 checksum is reported, but that offload is not in force".into()
            });
            require(
                has(Checksum::RECEIVE_IP_VALUE_INVALID)
                    || checksum::ipv4_header_is_valid(&frame.bytes)
                        == Some(has(Checksum::RECEIVE_IP_SUCCEEDED)),
                rules::CHECKSUMS,
                || {
                    format!(
                        "the checksum of an IPv4 header is reported as {:#x}, which it is not",
                        frame.checksum
                    )
                },
            );
        }
        for (protocol, failed, succeeded) in [
            (Protocol::Tcp, Checksum::RECEIVE_TCP_FAILED, Checksum::RECEIVE_TCP_SUCCEEDED),
            (Protocol::Udp, Checksum::RECEIVE_UDP_FAILED, Checksum::RECEIVE_UDP_SUCCEEDED),
        ] {
            if !has(failed | succeeded) {
                continue;
            }
            let found = Transport::find(&frame.bytes).filter(|found| found.protocol == protocol);
            require(
                found.as_ref().is_some_and(|found| self.covers(found)),
                rules::CHECKSUMS_IN_FORCE,
                || {
                    format!(
                        "a checksum of {protocol:?} is reported, but that offload is not in force, or there is none"
                    )
                },
            );
            let is_absent = protocol == Protocol::Tcp && has(Checksum::RECEIVE_TCP_VALUE_INVALID);
            require(
                is_absent || found.is_some_and(|found| found.is_valid(&frame.bytes) == has(succeeded)),
                rules::CHECKSUMS,
                || {
                    format!(
                        "the checksum of {protocol:?} is reported as {:#x}, which it is not",
                        frame.checksum
                    )
                },
            );
        }
    }

    const fn or(self, other: Self) -> Self {
        Self {
            ipv4: self.ipv4 || other.ipv4,
            tcp4: self.tcp4 || other.tcp4,
            udp4: self.udp4 || other.udp4,
            tcp6: self.tcp6 || other.tcp6,
            udp6: self.udp6 || other.udp6,
        }
    }

    const fn bits(self) -> [bool; 5] {
        [self.ipv4, self.tcp4, self.udp4, self.tcp6, self.udp6]
    }

    fn is_subset(self, of: Self) -> bool {
        self.bits().into_iter().zip(of.bits()).all(|(this, that)| !this || that)
    }
}

impl Offloads {
    /// Reads and checks NDIS's structure of a driver for NDIS 6.`minor`. It may have an earlier revision than that version's.
    pub(crate) fn read(what: &str, bytes: &[u8], minor: u8) -> Self {
        let header: Vec<u8> = bytes.iter().copied().take(size_of::<NDIS_OBJECT_HEADER>()).collect();
        let known = match header[..] {
            [NDIS_OBJECT_TYPE_OFFLOAD, revision, low, high] => REVISIONS
                .get(usize::from(revision).wrapping_sub(1))
                .filter(|(since, size)| *since <= minor && u16::from_le_bytes([low, high]) >= *size)
                .map(|(_, size)| usize::from(*size))
                .filter(|&size| bytes.len() >= size),
            _ => None,
        };
        let Some(size) = known else {
            broken(
                rules::HEADER,
                format!(
                    "{what}: an NDIS_OFFLOAD with the header {header:02x?} and {} bytes; NDIS 6.{minor}",
                    bytes.len()
                ),
            )
        };
        let mut whole = [0; size_of::<NDIS_OFFLOAD>()];
        whole[..size].copy_from_slice(&bytes[..size]);
        // SAFETY: integers only: every bit pattern is a value, and there are enough bytes.
        let offload = unsafe { whole.as_ptr().cast::<NDIS_OFFLOAD>().read_unaligned() };
        let word = |encapsulation: u32, word: u32| {
            require(
                encapsulation & NDIS_ENCAPSULATION_IEEE_802_3 != 0 || word == 0,
                rules::ENCAPSULATION,
                || format!("{what}: checksums {word:#x} with the encapsulation {encapsulation:#x}"),
            );
            move |bit: u32| word >> bit & 3 == 1
        };
        let checksum = &offload.Checksum;
        let send4 = word(checksum.IPv4Transmit.Encapsulation, checksum.IPv4Transmit.IpOptionsSupported);
        let send6 =
            word(checksum.IPv6Transmit.Encapsulation, checksum.IPv6Transmit.IpExtensionHeadersSupported);
        let receive4 = word(checksum.IPv4Receive.Encapsulation, checksum.IPv4Receive.IpOptionsSupported);
        let receive6 =
            word(checksum.IPv6Receive.Encapsulation, checksum.IPv6Receive.IpExtensionHeadersSupported);
        let of = |v4: &dyn Fn(u32) -> bool, v6: &dyn Fn(u32) -> bool| Checksums {
            ipv4: v4(8),
            tcp4: v4(4),
            udp4: v4(6),
            tcp6: v6(4),
            udp6: v6(6),
        };
        let large = |encapsulation: u32, max: u32, min: u32| {
            (encapsulation & NDIS_ENCAPSULATION_IEEE_802_3 != 0).then_some((max, min))
        };
        let (v4, v6) = (offload.LsoV2.IPv4, offload.LsoV2.IPv6);
        let (udp4, udp6) = (offload.UdpSegmentation.IPv4, offload.UdpSegmentation.IPv6);
        Self {
            send: of(&send4, &send6),
            receive: of(&receive4, &receive6),
            large_send: [
                large(v4.Encapsulation, v4.MaxOffLoadSize, v4.MinSegmentCount),
                large(v6.Encapsulation, v6.MaxOffLoadSize, v6.MinSegmentCount),
            ],
            udp_segmentation: [
                large(
                    udp4.Encapsulation,
                    udp4.MaxOffLoadSize,
                    udp4.MinSegmentCount & NDIS_USO_IPV4::MIN_SEGMENT_COUNT,
                ),
                large(
                    udp6.Encapsulation,
                    udp6.MaxOffLoadSize,
                    udp6.MinSegmentCount & NDIS_USO_IPV4::MIN_SEGMENT_COUNT,
                ),
            ],
            coalescing: [offload.Rsc.IPv4.Enabled != 0, offload.Rsc.IPv6.Enabled != 0],
        }
    }

    /// Reads and checks the offload attributes: what is possible, and what is in force.
    pub(crate) fn of_attributes(
        from: Guest<NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES>,
        minor: u8,
    ) -> [Self; 2] {
        let attributes = from.read();
        let header = attributes.Header;
        let size = NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1;
        let known = header.Revision == NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1;
        require(known && header.Size >= size, rules::HEADER, || {
            format!("the offload attributes have revision {} and size {}", header.Revision, header.Size)
        });
        let read = |what: &str, at: *mut NDIS_OFFLOAD| {
            if at.is_null() {
                return Self::default();
            }
            let stated = Guest::<NDIS_OBJECT_HEADER>::new(at.cast()).read().Size;
            let mut bytes = vec![0; usize::from(stated).min(size_of::<NDIS_OFFLOAD>())];
            Guest::<u8>::new(at.cast()).read_bytes(&mut bytes);
            Self::read(what, &bytes, minor)
        };
        let possible = read("HardwareOffloadCapabilities", attributes.HardwareOffloadCapabilities);
        let current = read("DefaultOffloadConfiguration", attributes.DefaultOffloadConfiguration);
        current.require_possible(&possible);
        [possible, current]
    }

    /// Checks that all of these are among `possible`.
    pub(crate) fn require_possible(&self, possible: &Self) {
        let divided =
            [(&self.large_send, &possible.large_send), (&self.udp_segmentation, &possible.udp_segmentation)];
        let is_subset = self.send.is_subset(possible.send)
            && self.receive.is_subset(possible.receive)
            && divided
                .into_iter()
                .flat_map(|(these, those)| these.iter().zip(those))
                .all(|(this, that)| this.is_none() || this == that)
            && self.coalescing.iter().zip(possible.coalescing).all(|(&this, that)| !this || that);
        require(is_subset, rules::OFFLOADS_IN_FORCE, || {
            format!("task offloads are in force that the hardware does not have: {self:?} of {possible:?}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKSUMS: Checksums = Checksums { ipv4: true, tcp4: true, udp4: true, tcp6: true, udp6: true };

    fn reported(offloads: &AdapterOffloads, now: u64) -> (bool, [bool; 2]) {
        let reported = offloads.reported(now);
        (reported.checksums.tcp4, reported.coalescing)
    }

    /// A miniport indicates what it has coalesced before it completes the request; frames whose checksums it has verified may be on
    /// their way to NDIS.
    #[test]
    fn checksums_of_coalesced_frames_alone_may_be_left_as_they_were() {
        let succeeded = Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_IP_SUCCEEDED;
        let left = Checksum::RECEIVE_TCP_VALUE_INVALID | Checksum::RECEIVE_IP_VALUE_INVALID;
        assert_eq!(succeeded | left, 0x1a8);
        assert!(is_consistent(succeeded, false) && is_consistent(succeeded | left, true));
        assert!(!is_consistent(succeeded | left, false));
        assert!(!is_consistent(left, true) && !is_consistent(Checksum::RECEIVE_TCP_FAILED | left, true));
    }

    #[test]
    fn what_is_switched_off_may_be_reported_until_the_request_completes_and_checksums_for_a_moment_more() {
        let on = Offloads { receive: CHECKSUMS, coalescing: [true; 2], ..Offloads::default() };
        let mut offloads = AdapterOffloads::new([on; 2]);
        assert_eq!(reported(&offloads, 0), (false, [false; 2]), "not started");
        let start = encapsulation([true; 2]);
        offloads.begin_request(Some(&start));
        offloads.end_request(Some(&start), 0);
        assert_eq!(reported(&offloads, GRACE), (true, [true; 2]));
        offloads.begin_request(None);
        offloads.set_current(Offloads::default(), 2 * GRACE);
        assert_eq!(reported(&offloads, 500 * GRACE), (true, [true; 2]), "the request is in progress");
        offloads.end_request(None, 500 * GRACE);
        assert_eq!(reported(&offloads, 500 * GRACE), (true, [false; 2]));
        assert_eq!(reported(&offloads, 501 * GRACE), (false, [false; 2]));
        offloads.set_current(on, 600 * GRACE);
        let stop = encapsulation([false, true]);
        offloads.begin_request(Some(&stop));
        assert_eq!(reported(&offloads, 700 * GRACE), (true, [true; 2]));
        offloads.end_request(Some(&stop), 700 * GRACE);
        assert_eq!(reported(&offloads, 700 * GRACE), (true, [false, true]), "over IPv6 nothing has changed");
        assert_eq!(reported(&offloads, 701 * GRACE), (false, [false, true]));
        offloads.set_current(Offloads::default(), 800 * GRACE);
        assert_eq!(reported(&offloads, 800 * GRACE), (false, [false, true]), "without a request");
        assert_eq!(reported(&offloads, 801 * GRACE), (false, [false; 2]));
    }
}
