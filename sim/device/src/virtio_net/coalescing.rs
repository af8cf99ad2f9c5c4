// SPDX-License-Identifier: MIT OR Apache-2.0

//! Coalescing of received TCP segments, as by the GRO of Linux: segments of a flow that follow each other are delivered as one frame,
//! whose header says how long each was. (virtio §9)

use super::{
    features::Features,
    offload::{GSO_TCPV4, GSO_TCPV6, Header, NEEDS_CSUM},
    quirks::LargeQuirk,
};
use crate::{
    checksum::{self, Protocol, Transport},
    link::wire::Frame,
};

/// Time that the first segment of a frame waits for others, in nanoseconds.
pub const HOLD: u64 = 60_000;
/// Longest IP packet.
const MAX_PACKET: usize = 65_535;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Segments that are delivered as one frame.
pub struct Unit {
    segments: Vec<Frame>,
    first: Segment,
    payload: usize,
    /// No other segment can follow.
    pub is_closed: bool,
}

/// A TCP segment that can be coalesced.
struct Segment {
    found: Transport,
    /// Length of all headers.
    headers: usize,
    payload: usize,
    sequence: u32,
    flags: u8,
}

impl Segment {
    /// Returns the segment in a frame: not one with IP options, without payload, with a wrong checksum, or with a flag other than
    /// ACK and PSH.
    fn find(frame: &[u8]) -> Option<Self> {
        let found = Transport::find(frame).filter(|found| found.protocol == Protocol::Tcp)?;
        let plain = found.ip + if found.is_ipv6 { 40 } else { 20 };
        let segment = &frame[found.range.clone()];
        let headers = found.range.start + usize::from(segment[12] >> 4) * 4;
        let payload = frame.len().checked_sub(headers).filter(|&payload| payload > 0)?;
        let flags = segment[13];
        let sequence = u32::from_be_bytes(segment[4..8].try_into().ok()?);
        (found.range == (plain..frame.len())
            && flags & !PSH == ACK
            && found.is_valid(frame)
            && checksum::ipv4_header_is_valid(frame) != Some(false))
        .then_some(Self { found, headers, payload, sequence, flags })
    }
}

impl Unit {
    /// Begins a unit with a frame, to which none can be added if it is no segment of the IP versions to coalesce, 4 and 6.
    pub fn new(frame: Frame, versions: [bool; 2]) -> Result<Self, Frame> {
        match Segment::find(&frame).filter(|segment| versions[usize::from(segment.found.is_ipv6)]) {
            Some(first) => Ok(Self {
                segments: vec![frame],
                payload: first.payload,
                is_closed: first.flags & PSH != 0,
                first,
            }),
            None => Err(frame),
        }
    }

    /// Adds the next segment.
    ///
    /// # Errors
    /// The frame, if it is another.
    pub fn add(&mut self, frame: Frame) -> Result<(), Frame> {
        let Some(next) = Segment::find(&frame).filter(|next| self.is_followed_by(&frame, next)) else {
            return Err(frame);
        };
        self.payload += next.payload;
        self.is_closed = next.flags & PSH != 0 || next.payload < self.first.payload;
        self.segments.push(frame);
        Ok(())
    }

    fn is_followed_by(&self, frame: &[u8], next: &Segment) -> bool {
        let (first, start) = (&self.segments[0], self.first.found.range.start);
        // All that lengths, identification, sequence number, flags and checksums leave.
        let differs = |at: usize| match at.checked_sub(start) {
            Some(of_tcp) => matches!(of_tcp, 4..8 | 13 | 16..18),
            None => match at.checked_sub(self.first.found.ip) {
                Some(of_ip) if self.first.found.is_ipv6 => matches!(of_ip, 4 | 5),
                Some(of_ip) => matches!(of_ip, 2..6 | 10 | 11),
                None => false,
            },
        };
        !self.is_closed
            && next.headers == self.first.headers
            && (0..next.headers).all(|at| differs(at) || first[at] == frame[at])
            && next.sequence == self.first.sequence.wrapping_add(self.payload as u32)
            && next.payload <= self.first.payload
            && self.first.headers - self.first.found.ip + self.payload + next.payload <= MAX_PACKET
    }

    /// Returns the length of the frame that the segments are delivered as.
    pub fn len(&self) -> usize {
        self.first.headers + self.payload
    }

    /// Returns the segment, if it is the only one.
    pub fn into_single(mut self) -> Result<Frame, Self> {
        if self.segments.len() == 1 { Ok(self.segments.remove(0)) } else { Err(self) }
    }

    /// Returns the segments.
    pub fn into_segments(self) -> Vec<Frame> {
        self.segments
    }

    /// Returns the frame that the segments are delivered as, and its header, which `quirk` falsifies.
    pub fn finish(self, quirk: Option<LargeQuirk>) -> (Header, Frame) {
        let Self { mut segments, first: Segment { found, headers, payload, .. }, .. } = self;
        let flags = segments.iter().fold(0, |flags, segment| flags | segment[found.range.start + 13]);
        let mut frame = segments.remove(0);
        let of_first = [frame[found.checksum().start], frame[found.checksum().start + 1]];
        for segment in segments {
            frame.extend_from_slice(&segment[headers..]);
        }
        frame[found.range.start + 13] = flags;
        let (ip, len) = (found.ip, frame.len());
        let mut write =
            |at: usize, value: usize| frame[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        if found.is_ipv6 {
            write(ip + 4, len - ip - 40);
        } else {
            write(ip + 2, len - ip);
            write(ip + 10, 0);
            let sum = !checksum::sum(&frame[ip..ip + 20], 0);
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let seed = found.pseudo_header(&frame, len - found.range.start);
        found.write(&mut frame, seed);
        let header = Header {
            flags: NEEDS_CSUM,
            gso_type: if found.is_ipv6 { GSO_TCPV6 } else { GSO_TCPV4 },
            hdr_len: headers as u16,
            gso_size: payload as u16,
            csum_start: found.range.start as u16,
            csum_offset: found.protocol.checksum_offset() as u16,
            num_buffers: 0,
        };
        if let Some(LargeQuirk::Complete { flags, is_right }) = quirk {
            let right = !checksum::sum(&frame[found.range.start..], 0);
            found.write(&mut frame, if is_right { right } else { u16::from_be_bytes(of_first) });
            return (Header { flags, csum_start: 0, csum_offset: 0, ..header }, frame);
        }
        (quirk.map_or(header, |quirk| quirk.falsify(header)), frame)
    }
}

impl LargeQuirk {
    fn falsify(self, header: Header) -> Header {
        match self {
            Self::SegmentSize(gso_size) => Header { gso_size, ..header },
            Self::Type(gso_type) => Header { gso_type, ..header },
            Self::HeaderLength(hdr_len) => Header { hdr_len, ..header },
            Self::Flags(flags) => Header { flags, ..header },
            Self::Always | Self::Complete { .. } => header,
        }
    }
}

/// Returns for which IP versions, 4 and 6, a device with these features in force coalesces.
pub fn versions(features: Features) -> [bool; 2] {
    [Features::GUEST_TSO4, Features::GUEST_TSO6].map(|feature| features.contains(feature))
}
