// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decoded frames: the content as the engine reads it, and the faults.

mod cm;
mod hex;
mod non_roce;

use std::{fmt, time::Duration};

use roce_wire::icrc::Crc;
use roce_wire::{
    Bth, BthRepr, EthRepr, Ext, Ip, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Mad, MadHeaderRepr, Opcode, Packet,
    ParseError, Udp, UdpRepr, cm::CmMessage,
};
use serde::Serialize;

pub use self::cm::Cm;
use crate::{
    file::Captured,
    icrc::{self, IcrcCheck},
};

/// A decoded frame of a capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frame {
    /// Number in the capture, from 1.
    pub frame: u64,
    /// Time since the first frame of the capture.
    #[serde(rename = "time", serialize_with = "seconds")]
    pub time: Duration,
    /// Length on the wire in bytes.
    pub length: usize,
    /// IP address if the frame has one, else MAC address.
    pub source: String,
    pub destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[serde(flatten)]
    pub content: Content,
    /// The faults of the frame; empty for a valid frame and for other protocols.
    pub faults: Vec<Fault>,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "protocol")]
pub enum Content {
    #[serde(rename = "RoCEv2")]
    Roce(Box<Roce>),
    /// A frame to the RoCEv2 port that is malformed.
    #[serde(rename = "RoCEv2 malformed")]
    Malformed,
    /// A frame of another protocol.
    #[serde(rename = "other")]
    Other { what: String },
}

/// A fault of a RoCEv2 frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The capture has only the first bytes of the frame.
    Truncated { captured: usize },
    /// The headers are inconsistent.
    Malformed { why: &'static str },
    /// The ICRC is wrong.
    Icrc { expected: String },
    /// The engine and the independent check disagree on the ICRC.
    Disputed,
    /// Encoding the decoded headers again gives other bytes, from this offset on.
    Reencoded { at: usize },
}

/// A RoCEv2 packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "the flags of the header")]
pub struct Roce {
    pub source_port: u16,
    pub traffic_class: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    pub opcode: u8,
    pub name: &'static str,
    pub dest_qp: u32,
    pub psn: u32,
    pub ack_req: bool,
    pub solicited: bool,
    pub mig_req: bool,
    pub fecn: bool,
    pub becn: bool,
    pub p_key: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reth: Option<Reth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aeth: Option<Aeth>,
    /// Distance of a missing packet from the expected one, of the engine's acknowledgements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_hint: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic: Option<Atomic>,
    /// The original value that an atomic operation returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<u64>,
    /// In hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalidated_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deth: Option<Deth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cm: Option<Cm>,
    /// Length in bytes, without pad bytes.
    pub payload: usize,
    /// Whether the ICRC is valid.
    pub icrc: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reth {
    pub address: u64,
    pub key: u32,
    pub length: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aeth {
    pub syndrome: u8,
    pub meaning: String,
    pub msn: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Atomic {
    pub address: u64,
    pub key: u32,
    pub swap_or_add: u64,
    pub compare: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deth {
    pub q_key: u32,
    pub source_qp: u32,
}

/// Decodes the frames of one capture in order.
#[derive(Debug, Default)]
pub struct Decoder {
    frames: u64,
    start: Option<Duration>,
}

impl Decoder {
    /// Returns a decoder for a new capture.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the next frame.
    pub fn frame(&mut self, captured: &Captured) -> Frame {
        self.frames += 1;
        let time = captured.time.saturating_sub(*self.start.get_or_insert(captured.time));
        let bytes = &captured.data;
        let (mut source, mut destination) = non_roce::addresses(bytes);
        let mut faults = Vec::new();
        let content = match Packet::parse(bytes) {
            Ok(packet) => {
                (source, destination) = (packet.source().to_string(), packet.destination().to_string());
                faults.extend(icrc_fault(bytes, &packet));
                if let Some(at) = difference(bytes, &packet) {
                    faults.push(Fault::Reencoded { at });
                }
                Content::Roce(Box::new(Roce::read(&packet)))
            }
            Err(ParseError::Malformed(_)) if bytes.len() < captured.length => {
                faults.push(Fault::Truncated { captured: bytes.len() });
                Content::Malformed
            }
            Err(ParseError::Malformed(reason)) => {
                faults.push(Fault::Malformed { why: reason.name() });
                Content::Malformed
            }
            Err(ParseError::NotRoce) => Content::Other { what: non_roce::describe(bytes) },
        };
        let (frame, length, comment) = (self.frames, captured.length, captured.comment.clone());
        Frame { frame, time, length, source, destination, comment, content, faults }
    }
}

/// Checks the ICRC by the engine and by the independent check.
fn icrc_fault(bytes: &[u8], packet: &Packet<'_>) -> Option<Fault> {
    let engine = [Crc::table(), Crc::detect()].map(|crc| packet.icrc_valid(crc));
    match icrc::check(bytes) {
        IcrcCheck::Valid if engine == [true, true] => None,
        IcrcCheck::Invalid { expected } if engine == [false, false] => {
            Some(Fault::Icrc { expected: hex::encode(&expected) })
        }
        _ => Some(Fault::Disputed),
    }
}

/// Returns the offset at which the frame differs from the packet when encoded again.
fn difference(bytes: &[u8], packet: &Packet<'_>) -> Option<usize> {
    let again = encode(packet);
    // Ethernet padding is not part of the packet.
    let same = bytes.get(..again.len()).is_some_and(|bytes| bytes == again);
    let first = || again.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(bytes.len());
    (!same).then(first)
}

/// Encodes a packet from its header summaries.
#[must_use]
pub fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let eth = EthRepr::parse(&packet.eth());
    let mut bytes = vec![0; eth.header_len()];
    // Cannot fail: the buffer has the length of the header.
    let _ = eth.emit(&mut bytes);
    match packet.ip() {
        Ip::V4(ip) => {
            let mut header = [0; Ipv4::LEN];
            Ipv4Repr::parse(&ip).emit(&mut header);
            bytes.extend_from_slice(&header);
        }
        Ip::V6(ip) => {
            let mut header = [0; Ipv6::LEN];
            Ipv6Repr::parse(&ip).emit(&mut header);
            bytes.extend_from_slice(&header);
        }
    }
    let mut header = [0; Udp::LEN];
    UdpRepr::parse(&packet.udp()).emit(&mut header);
    bytes.extend_from_slice(&header);
    let mut header = [0; Bth::LEN];
    BthRepr::parse(&packet.bth()).emit(&mut header);
    Bth::set_gap_hint(&mut header, gap_hint(packet).unwrap_or(0));
    bytes.extend_from_slice(&header);
    let mut ext = [0; Ext::MAX_LEN];
    let len = packet.ext().emit(&mut ext);
    bytes.extend_from_slice(&ext[..len]);
    match datagram(packet) {
        Some((header, message)) => {
            let mut mad = [0; Mad::LEN];
            message.emit(header.transaction_id, &mut mad);
            bytes.extend_from_slice(&mad);
            bytes.extend_from_slice(packet.payload().get(Mad::LEN..).unwrap_or_default());
        }
        None => bytes.extend_from_slice(packet.payload()),
    }
    bytes.extend_from_slice(packet.pad());
    bytes.extend_from_slice(&packet.icrc());
    bytes
}

/// Returns the gap hint of an acknowledgement. In other packets its bits are reserved.
fn gap_hint(packet: &Packet<'_>) -> Option<u16> {
    let bth = packet.bth();
    Some(bth.gap_hint()).filter(|&hint| hint != 0 && bth.opcode() == Opcode::ACKNOWLEDGE)
}

/// Returns the connection management message that the packet carries, if any.
#[must_use]
pub fn datagram(packet: &Packet<'_>) -> Option<(MadHeaderRepr, CmMessage)> {
    packet.deth()?;
    let mad = Mad::new_checked(packet.payload()).ok()?;
    Some((MadHeaderRepr::parse(&mad.header()), CmMessage::parse(&mad)?))
}

impl Roce {
    fn read(packet: &Packet<'_>) -> Self {
        let bth = packet.bth();
        let cm = match (packet.bth().opcode(), datagram(packet)) {
            (Opcode::UD_SEND_ONLY, Some((header, message))) => Some(Cm::read(&header, &message)),
            _ => None,
        };
        Self {
            source_port: packet.udp().source_port(),
            traffic_class: packet.ip().traffic_class(),
            vlan: packet.eth().vlan().map(|vlan| vlan.0),
            opcode: bth.opcode().0,
            name: packet.info().name,
            dest_qp: bth.dest_qp().value(),
            psn: bth.psn().value(),
            ack_req: bth.ack_req(),
            solicited: bth.solicited(),
            mig_req: bth.mig_req(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            p_key: bth.p_key(),
            reth: packet.reth().map(|reth| Reth {
                address: reth.address(),
                key: reth.r_key(),
                length: reth.length(),
            }),
            aeth: packet.aeth().map(|aeth| Aeth {
                syndrome: aeth.syndrome().0,
                meaning: format!("{:?}", aeth.syndrome()),
                msn: aeth.msn(),
            }),
            gap_hint: gap_hint(packet),
            atomic: packet.atomic_eth().map(|atomic| Atomic {
                address: atomic.address(),
                key: atomic.r_key(),
                swap_or_add: atomic.swap_or_add(),
                compare: atomic.compare(),
            }),
            original: packet.atomic_ack_eth().map(|ack| ack.original()),
            immediate: packet.imm_dt().map(|imm| hex::encode(&imm.data())),
            invalidated_key: packet.ieth().map(|ieth| ieth.r_key()),
            deth: packet.deth().map(|deth| Deth { q_key: deth.q_key(), source_qp: deth.source_qp().value() }),
            cm,
            payload: packet.payload().len(),
            icrc: packet.icrc_valid(Crc::detect()),
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, source, destination, content, .. } = self;
        write!(f, "{:>12.6}  {source} > {destination}  {content}", time.as_secs_f64())?;
        for fault in &self.faults {
            write!(f, "  {fault}")?;
        }
        match &self.comment {
            Some(comment) => write!(f, "  ({comment})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Roce(packet) => packet.fmt(f),
            Self::Malformed => f.write_str("RoCEv2"),
            Self::Other { what } => f.write_str(what),
        }
    }
}

impl fmt::Display for Roce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cm {
            Some(cm) => write!(f, "{cm}")?,
            None => write!(f, "{}  qp {:#x} psn {:#08x}", self.name, self.dest_qp, self.psn)?,
        }
        let flags = [
            (self.ack_req && self.cm.is_none(), "ack-req"),
            (self.solicited, "solicited"),
            (self.mig_req, "mig-req"),
            (self.fecn, "fecn"),
            (self.becn, "becn"),
            (self.traffic_class & 3 == 3, "congestion experienced"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        if let Some(Reth { address, key, length }) = &self.reth {
            write!(f, "  reth {address:#x} key {key:#x} length {length}")?;
        }
        if let Some(Aeth { meaning, msn, .. }) = &self.aeth {
            write!(f, "  aeth {meaning}, msn {msn}")?;
        }
        if let Some(hint) = self.gap_hint {
            write!(f, ", misses +{hint}")?;
        }
        if let Some(Atomic { address, key, swap_or_add, compare }) = &self.atomic {
            write!(f, "  atomic {address:#x} key {key:#x} operand {swap_or_add:#x} compare {compare:#x}")?;
        }
        if let Some(original) = self.original {
            write!(f, "  original {original:#x}")?;
        }
        if let Some(immediate) = &self.immediate {
            write!(f, "  immediate {immediate}")?;
        }
        if let Some(key) = self.invalidated_key {
            write!(f, "  invalidates key {key:#x}")?;
        }
        if self.cm.is_none() {
            write!(f, "  payload {}", self.payload)?;
        }
        write!(f, "  icrc {}", if self.icrc { "right" } else { "WRONG" })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { captured } => write!(f, "TRUNCATED by the capture to {captured} bytes"),
            Self::Malformed { why } => write!(f, "MALFORMED: {why}"),
            Self::Icrc { expected } => write!(f, "ICRC should be {expected}"),
            Self::Disputed => write!(f, "ICRC DISPUTED: two computations differ"),
            Self::Reencoded { at } => write!(f, "REENCODED frame differs from byte {at} on"),
        }
    }
}
