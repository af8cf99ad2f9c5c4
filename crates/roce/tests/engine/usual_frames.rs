// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames of the usual form are received and sent in fewer instructions, with the same effects. Others are frames with a VLAN tag,
//! on which nothing depends, and SENDs with inline data.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use roce::{
    Access, Arm, Completion, QpState, RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Trace,
    TraceRecord,
};
use roce_wire::{Packet, ParseError, PathMtu, Qpn};

use crate::fields::reseal;
use crate::two_hosts::{Options, TwoHosts, pattern};

/// Call of a consumer, or time that passes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Receive { side: usize, length: usize },
    Send { side: usize, length: usize },
    Write { side: usize, length: usize },
    Read { side: usize, length: usize },
    Wait { micros: u64 },
    Arm { side: usize },
    Flush { side: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let length = || prop_oneof![3 => 0usize..100, 2 => 200usize..300, 1 => 900usize..5000];
    prop_oneof![
        60 => (0usize..2, length()).prop_map(|(side, length)| Step::Receive { side, length }),
        60 => (0usize..2, length()).prop_map(|(side, length)| Step::Send { side, length }),
        30 => (0usize..2, length()).prop_map(|(side, length)| Step::Write { side, length }),
        20 => (0usize..2, length()).prop_map(|(side, length)| Step::Read { side, length }),
        60 => prop_oneof![0u64..5, 5u64..300, 300u64..20_000].prop_map(|micros| Step::Wait { micros }),
        10 => (0usize..2).prop_map(|side| Step::Arm { side }),
        1 => (0usize..2).prop_map(|side| Step::Flush { side }),
    ]
}

/// Change of a frame on its way.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    /// Bits of a byte behind the Ethernet header change.
    Damage(usize, u8),
    /// Damage, see [`Change::Damage`], with the right ICRC and header checksum.
    Forgery(usize, u8),
    /// The PSN is another one, with the right ICRC.
    Psn(i8),
    /// A switch marks it as congestion experienced.
    Mark,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        40 => Just(Change::None),
        3 => (14usize..70, 1u8..).prop_map(|(at, bits)| Change::Damage(at, bits)),
        // Of the BTH and behind it; rarely of the headers before.
        2 => (42usize..70, 1u8..).prop_map(|(at, bits)| Change::Forgery(at, bits)),
        1 => (14usize..42, 1u8..).prop_map(|(at, bits)| Change::Forgery(at, bits)),
        2 => (-8i8..9).prop_map(Change::Psn),
        1 => Just(Change::Mark),
    ]
}

impl Change {
    fn apply(self, frame: &mut [u8]) {
        match self {
            Self::Damage(at, bits) => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= bits;
                }
            }
            // Not the address in a RETH, which differs from run to run.
            Self::Forgery(at, bits) if at + 4 < frame.len() && !(has_reth(frame) && RETH.contains(&at)) => {
                frame[at] ^= bits;
                set_checksum(frame);
                reseal(frame);
            }
            Self::Psn(distance) => {
                let psn = u32::from_be_bytes([0, frame[51], frame[52], frame[53]]);
                let other = psn.wrapping_add_signed(distance.into()).to_be_bytes();
                frame[51..54].copy_from_slice(&other[1..]);
                reseal(frame);
            }
            Self::Mark => {
                frame[15] |= 3;
                set_checksum(frame);
            }
            Self::None | Self::Forgery(..) => {}
        }
    }
}

/// Where the address in a RETH is.
const RETH: Range<usize> = 54..62;

fn has_reth(frame: &[u8]) -> bool {
    Packet::parse(frame).is_ok_and(|packet| packet.reth().is_some())
}

/// Different flags for requests in a row.
fn send_flags(context: u64) -> SendFlags {
    match context % 7 {
        0 => SendFlags::SOLICITED,
        1 => SendFlags::SILENT,
        2 => SendFlags::FENCE,
        3 => SendFlags::SOLICITED | SendFlags::SILENT,
        _ => SendFlags::empty(),
    }
}

fn set_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// Everything that is seen of two hosts.
#[derive(Debug, PartialEq)]
struct Seen {
    frames: Vec<(usize, Vec<u8>)>,
    trace: Vec<(u64, TraceRecord)>,
    completions: [Vec<Completion>; 2],
    notifications: [Vec<u64>; 2],
    states: [QpState; 2],
    memory: [Vec<u8>; 2],
    stats: [Vec<(&'static str, u64)>; 2],
    next_timeouts: [Option<roce::Instant>; 2],
}

/// Replaces the address in a RETH by the offset in the memory that begins at `base`, which differs from run to run.
fn relative(mut frame: Vec<u8>, base: u64) -> Vec<u8> {
    let address = Packet::parse(&frame).ok().and_then(|packet| packet.reth()).map(|reth| reth.address());
    if let Some(address) = address {
        frame[RETH].copy_from_slice(&address.wrapping_sub(base).to_be_bytes());
        let end = frame.len() - 4;
        frame[end..].fill(0);
    }
    frame
}

static TRACE: Mutex<Vec<(u64, TraceRecord)>> = Mutex::new(Vec::new());

/// Runs a script. If `unusual`, each frame to one of the two queue pairs has a VLAN tag when it arrives, and SENDs that may have
/// inline data do.
fn run(options: &Options, steps: &[Step], changes: &[Change], unusual: bool) -> Seen {
    const MEMORY: usize = 16_384;
    // Where SENDs read from: behind all that is written.
    const SOURCE: usize = 8192;
    const MOST_INLINE: usize = 64;
    const MOST_FRAMES: usize = 1_000_000;
    TRACE.lock().unwrap().clear();
    let mut hosts = TwoHosts::connected(options.clone());
    let changes = changes.to_vec();
    let mut number = 0;
    hosts.filter = Some(Box::new(move |_, frame| {
        if !changes.is_empty() {
            changes[number % changes.len()].apply(frame);
        }
        number += 1;
        assert!(number < MOST_FRAMES, "the exchange of frames does not end");
        let to_queue_pair = match Packet::parse(frame) {
            Ok(packet) => packet.bth().dest_qp() > Qpn::GSI,
            // It is for the network stack, which is not here.
            Err(ParseError::NotRoce) => return false,
            Err(ParseError::Malformed(_)) => false,
        };
        if unusual && to_queue_pair {
            frame.splice(12..12, [0x81, 0, 0, 0]);
        }
        true
    }));
    hosts.capture = Some(Vec::new());
    let memories = [0, 1].map(|side: usize| {
        let memory = hosts.sides[side].memory(MEMORY, Access::all());
        memory.write(&pattern(MEMORY, side as u64));
        memory
    });
    for (context, step) in steps.iter().enumerate() {
        let context = context as u64;
        // A full queue, or one in error, refuses the post: in both runs.
        match *step {
            Step::Receive { side, length } => {
                let sges = [memories[side].sge(0, length)];
                let request = RecvRequest { context, sges: &sges };
                let _ = hosts.sides[side].engine.post_recv(&hosts.sides[side].qp, &request);
            }
            Step::Send { side, length } => {
                let sges = [memories[side].sge(SOURCE, length)];
                let bytes = &pattern(MEMORY, side as u64)[SOURCE..][..length];
                let data = if unusual && length <= MOST_INLINE {
                    SendData::Inline(&[bytes])
                } else {
                    SendData::Sges(&sges)
                };
                let (operation, flags) = (SendOperation::Send, send_flags(context));
                let request = SendRequest { context, operation, flags, data };
                let _ = hosts.sides[side].engine.post_send(&hosts.sides[side].qp, &request);
            }
            Step::Write { side, length } | Step::Read { side, length } => {
                let sges = [memories[side].sge(300, length)];
                let (address, key) = (memories[1 - side].address(1000), memories[1 - side].key());
                let operation = if matches!(step, Step::Read { .. }) {
                    SendOperation::Read { address, key }
                } else {
                    SendOperation::Write { address, key }
                };
                let _ = hosts.sides[side].post(context, operation, SendFlags::empty(), &sges);
            }
            Step::Wait { micros } => hosts.run_for(Duration::from_micros(micros)),
            Step::Arm { side } => hosts.sides[side].engine.arm_cq(&hosts.sides[side].cq, Arm::Any),
            Step::Flush { side } => hosts.sides[side].engine.flush(&hosts.sides[side].qp),
        }
    }
    hosts.run_for(Duration::from_secs(1));
    let stats = hosts.sides.each_ref().map(|side| {
        let mut stats = Vec::new();
        side.engine.stats().each(|name, value| stats.push((name, value)));
        stats
    });
    let frames = hosts.capture.take().unwrap().into_iter();
    let frames = frames.map(|(from, frame)| (from, relative(frame, memories[1 - from].address(0))));
    Seen {
        frames: frames.collect(),
        trace: TRACE.lock().unwrap().clone(),
        completions: hosts.sides.each_ref().map(crate::two_hosts::Side::completions),
        notifications: hosts.sides.each_ref().map(|side| side.cq_notifications.clone()),
        states: hosts.sides.each_ref().map(|side| side.qp.state()),
        memory: memories.each_ref().map(crate::two_hosts::Memory::read),
        stats,
        next_timeouts: hosts.sides.each_ref().map(|side| side.engine.first_shard().poll_timeout()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_the_usual_form_have_the_same_effects_as_others(
        seed: u64,
        (loss, duplication, reordering) in (prop_oneof![Just(0u32), 0u32..50], 0u32..20, 0u32..50),
        keeps_packets: [bool; 2],
        small_mtu: bool,
        steps in proptest::collection::vec(step(), 1..80),
        changes in prop_oneof![Just(Vec::new()), proptest::collection::vec(change(), 1..60)],
    ) {
        let options = Options {
            seed,
            mtu: if small_mtu { PathMtu::Bytes256 } else { PathMtu::Bytes1024 },
            loss,
            duplication,
            reordering,
            keeps_packets,
            send_depth: 16,
            recv_depth: 16,
            config: |config| {
                let sink = |side, record: &TraceRecord| TRACE.lock().unwrap().push((side, *record));
                config.trace = Some(Trace { sink, context: config.ca_guid & 0xFF });
            },
            ..Options::default()
        };
        let usual = run(&options, &steps, &changes, false);
        let other = run(&options, &steps, &changes, true);
        for (at, (a, b)) in usual.frames.iter().zip(&other.frames).enumerate() {
            prop_assert_eq!(a, b, "frame {}", at);
        }
        prop_assert_eq!(&usual.stats, &other.stats);
        prop_assert_eq!(&usual.trace, &other.trace);
        prop_assert_eq!(&usual.completions, &other.completions);
        prop_assert_eq!(usual.frames.len(), other.frames.len());
        prop_assert_eq!(usual, other);
    }
}
