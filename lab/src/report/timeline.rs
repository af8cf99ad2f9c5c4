// SPDX-License-Identifier: MIT OR Apache-2.0

//! The timeline of a captured copy: goodput, packets sent again, lost frames, and the frames worth drawing.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    time::Duration,
};

use anyhow::Result;
use captures::{
    decode::{Content, Decoder},
    file::{self, Captured},
};

/// Frames drawn from the start of the capture and from its end, frames that were lost, and packets that were sent again.
const FIRST: usize = 14;
const LAST: usize = 8;
const LOST: usize = 4;
const RESENT: usize = 10;

/// Ethernet, IPv4 and UDP headers. The demo's hosts use nothing else.
const BTH: usize = 14 + 20 + 8;
/// Headers and ICRC around the payload of a packet without extension headers.
const OVERHEAD: usize = BTH + 12 + 4;
const RETH: usize = 16;
const AETH: usize = 4;

/// A packet's header fields, as far as the report needs them.
struct Header {
    source: [u8; 4],
    opcode: u8,
    dest_qp: u32,
    psn: u32,
}

/// Something that happened at a time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub time: Duration,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// So many payload bytes of WRITEs or READ responses were sent for the first time.
    Payload(usize),
    /// A packet was sent again.
    Resent,
    /// A frame was lost on the wire.
    Lost,
}

/// A frame of the packet ladder.
#[derive(Clone, Debug)]
pub struct Row {
    /// Number of the frame in the capture, from 1.
    pub number: usize,
    pub time: Duration,
    /// From the first host to the second.
    pub to_peer: bool,
    pub label: String,
    pub is_resent: bool,
    pub is_lost: bool,
}

/// Everything that the report takes from a capture.
#[derive(Debug, Default)]
pub struct Timeline {
    pub samples: Vec<Sample>,
    pub rows: Vec<Row>,
    pub end: Duration,
}

/// Reads a capture of two IPv4 hosts.
pub fn read(capture: &Path) -> Result<Timeline> {
    let mut timeline = Timeline::default();
    let mut highest = HashMap::<([u8; 4], u32, bool), u32>::new();
    let mut start = None;
    let mut first_host = None;
    let (mut resent_rows, mut lost_rows) = (0, 0);
    let mut last = VecDeque::new();
    for (number, captured) in (1..).zip(file::open(capture)?) {
        let captured = captured?;
        let time = captured.time.saturating_sub(*start.get_or_insert(captured.time));
        timeline.end = time;
        let Some(header) = header(&captured.data) else { continue };
        let to_peer = *first_host.get_or_insert(header.source) == header.source;
        let is_response = (0x0d..=0x10).contains(&header.opcode);
        let is_request = header.opcode <= 0x0c || (0x16..=0x17).contains(&header.opcode);
        let mut is_resent = false;
        if is_request || is_response {
            let known = highest.entry((header.source, header.dest_qp, is_response)).or_insert(u32::MAX);
            // PSNs are 24 bits wide and wrap.
            is_resent = *known != u32::MAX && known.wrapping_sub(header.psn) & 0xff_ffff < 0x80_0000;
            if !is_resent {
                *known = header.psn;
            }
        }
        let is_lost = captured.comment.as_deref().is_some_and(|comment| comment.contains("lost"));
        if is_lost {
            timeline.samples.push(Sample { time, kind: Kind::Lost });
        }
        if is_resent {
            timeline.samples.push(Sample { time, kind: Kind::Resent });
        } else if let Some(bytes) = payload(&header, captured.length) {
            timeline.samples.push(Sample { time, kind: Kind::Payload(bytes) });
        }
        let row =
            |captured: &Captured| Row { number, time, to_peer, label: label(captured), is_resent, is_lost };
        let is_management = header.opcode == 0x64;
        resent_rows += usize::from(is_resent);
        lost_rows += usize::from(is_lost);
        let is_drawn = (is_resent && resent_rows <= RESENT) || (is_lost && lost_rows <= LOST);
        if number <= FIRST || is_management || is_drawn {
            timeline.rows.push(row(&captured));
        } else {
            if last.len() == LAST {
                last.pop_front();
            }
            // Decoding is costly: the frame is decoded when it turns out to be one of the last.
            last.push_back((number, time, to_peer, captured, is_resent, is_lost));
        }
    }
    for (number, time, to_peer, captured, is_resent, is_lost) in last {
        timeline.rows.push(Row { number, time, to_peer, label: label(&captured), is_resent, is_lost });
    }
    timeline.rows.sort_by_key(|row| row.number);
    Ok(timeline)
}

fn header(frame: &[u8]) -> Option<Header> {
    let is_roce =
        frame.get(12..14)? == [8, 0] && frame.get(23)? == &17 && frame.get(36..38)? == 4791_u16.to_be_bytes();
    let bth = frame.get(BTH..BTH + 12)?;
    let number = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
    is_roce.then_some(Header {
        source: frame.get(26..30)?.try_into().ok()?,
        opcode: bth[0],
        dest_qp: number(5),
        psn: number(9),
    })
}

/// Payload bytes of a WRITE or READ response; `None` for other packets.
fn payload(header: &Header, length: usize) -> Option<usize> {
    let extension = match header.opcode {
        0x06 | 0x0a => RETH,
        0x07 | 0x08 | 0x0e => 0,
        0x0d | 0x0f | 0x10 => AETH,
        _ => return None,
    };
    Some(length.saturating_sub(OVERHEAD + extension))
}

fn label(captured: &Captured) -> String {
    let frame = Decoder::new().frame(captured);
    match &frame.content {
        // Connection management: the text after the addresses begins with the message's name.
        Content::Roce(roce) if roce.cm.is_some() => frame
            .to_string()
            .split("CM ")
            .nth(1)
            .map_or_else(|| "CM".into(), |text| format!("CM {}", text.split(' ').next().unwrap_or_default())),
        Content::Roce(roce) => {
            let ack = roce.aeth.as_ref().map_or(String::new(), |aeth| format!(", {}", aeth.meaning));
            let payload = if roce.payload == 0 { String::new() } else { format!(", {} B", roce.payload) };
            format!("{} PSN {:#08x}{ack}{payload}", roce.name, roce.psn)
        }
        _ => "other".into(),
    }
}
