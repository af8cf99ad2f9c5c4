// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packet fields: which are ignored, which are checked, and which counter counts packets with invalid ones.

use roce::{DropReason, QpState, Verdict};
use roce_wire::{Ext, Opcode, PathMtu};

use crate::responder::{INVALID, Script, acknowledge, reth};
use crate::two_hosts::Options;

/// Recomputes the ICRC of an IPv4 frame with an independent implementation.
pub fn reseal(frame: &mut [u8]) {
    const IP: usize = 14;
    let end = frame.len() - 4;
    let mut covered = frame[IP..end].to_vec();
    for at in [1, 8, 10, 11, 26, 27, 32] {
        covered[at] = 0xFF;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xFF; 8]);
    hasher.update(&covered);
    frame[end..].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// Migration, FECN, the reserved bits, time to live, traffic class and identification may have any value.
//= rocev2 §3
//= rocev2 §16
#[test]
fn ignored_fields_may_have_any_value() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, Change); 7] = [
        ("migration", |frame| frame[43] |= 0x40),
        ("FECN", |frame| frame[46] |= 0x80),
        ("reserved bits", |frame| frame[46] |= 0x3F),
        ("reserved bits beside AckReq", |frame| frame[50] |= 0x7F),
        ("time to live", |frame| frame[22] = 1),
        ("DSCP", |frame| frame[15] = 0xB8),
        ("identification", |frame| frame[18..20].copy_from_slice(&[0x12, 0x34])),
    ];
    for (what, change) in cases {
        let mut script = Script::new(Options::default());
        let target = script.shared(&[0; 3]);
        let mut frame =
            script.frame(script.psn, Opcode::WRITE_ONLY, true, Ext::Reth(reth(&target, 0, 3)), b"any");
        change(&mut frame);
        // The checksum of the IPv4 header, and the ICRC.
        frame[24..26].fill(0);
        let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        reseal(&mut frame);
        assert_eq!(script.give(&frame), Verdict::Consumed, "{what}");
        assert_eq!(target.read(), b"any", "{what}");
    }
}

//= rocev2 §3
#[test]
fn pad_bytes_are_counted_and_their_content_is_ignored() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&[0; 8]);
    let ext = Ext::Reth(reth(&target, 0, 5));
    let good = script.frame(script.psn, Opcode::WRITE_ONLY, true, ext, b"five!");
    let mut odd = good.clone();
    let end = odd.len();
    odd[end - 7..end - 4].copy_from_slice(b"pad");
    reseal(&mut odd);
    // With a smaller pad count the payload is longer than the WRITE.
    let mut longer = good.clone();
    longer[43] = longer[43] & !0x30 | 0x10;
    reseal(&mut longer);
    // The pad count exceeds the payload.
    let mut empty = script.frame(script.psn, Opcode::SEND_ONLY, true, Ext::None, b"");
    empty[43] |= 0x30;
    reseal(&mut empty);
    let malformed = Verdict::Dropped(DropReason::Malformed(roce_wire::DropReason::Pad));
    assert_eq!(script.give(&empty), malformed);
    assert_eq!(script.give(&odd), Verdict::Consumed);
    assert_eq!(target.read(), b"five!\0\0\0");
    script.psn = script.psn.next();
    let again = script.frame(script.psn, Opcode::WRITE_ONLY, true, ext, b"five!");
    let mut longer = again;
    longer[43] = longer[43] & !0x30 | 0x10;
    reseal(&mut longer);
    assert_eq!(script.give(&longer), Verdict::Consumed);
    let answers = script.answers();
    assert_eq!(answers.last().and_then(|answer| answer.aeth), Some((INVALID, 2)));
}

//= rocev2 §13
#[test]
fn a_limited_member_of_the_default_partition_is_accepted() {
    for (p_key, verdict) in [
        (0xFFFFu16, Verdict::Consumed),
        (0x7FFF, Verdict::Consumed),
        (0xFFFE, Verdict::Dropped(DropReason::PKey)),
        (0, Verdict::Dropped(DropReason::PKey)),
    ] {
        let mut script = Script::new(Options::default());
        let target = script.shared(&[0; 4]);
        let ext = Ext::Reth(reth(&target, 0, 4));
        let mut frame = script.frame(script.psn, Opcode::WRITE_ONLY, true, ext, b"part");
        frame[44..46].copy_from_slice(&p_key.to_be_bytes());
        reseal(&mut frame);
        assert_eq!(script.give(&frame), verdict, "{p_key:#x}");
        assert_eq!(script.stat("drop_pkey"), u64::from(verdict != Verdict::Consumed));
    }
}

//= rocev2 §4
#[test]
fn unknown_opcodes_are_dropped_without_an_answer() {
    let mut script = Script::new(Options::default());
    let good = script.frame(script.psn, Opcode::SEND_ONLY, true, Ext::None, b"what");
    let strange = (0..=255u8).filter(|&code| Opcode(code).info().is_none());
    let mut count = 0;
    for code in strange {
        let mut frame = good.clone();
        frame[42] = code;
        reseal(&mut frame);
        let verdict = Verdict::Dropped(DropReason::Malformed(roce_wire::DropReason::Opcode));
        assert_eq!(script.give(&frame), verdict);
        count += 1;
    }
    assert_eq!(count, 256 - Opcode::table().len());
    assert_eq!(script.answers(), []);
    assert_eq!(script.state(), QpState::Rts);
}

/// Unreliable datagrams are processed at QP1 only, whatever their destination queue pair.
//= rocev2 §4
#[test]
fn opcodes_of_another_transport_are_dropped() {
    let mut script = Script::new(Options::default());
    let ext = Ext::Deth(roce_wire::DethRepr::GSI);
    let verdict = script.send(0, Opcode::UD_SEND_ONLY, ext, b"data");
    assert_eq!(verdict, Verdict::Dropped(DropReason::Opcode));
    assert_eq!(script.stat("drop_opcode"), 1);
    assert_eq!(script.answers(), []);
}

//= rocev2 §5
#[test]
fn all_packets_but_the_last_are_full_at_every_mtu() {
    for mtu in PathMtu::ALL {
        for (opcode, short) in [
            (Opcode::SEND_FIRST, mtu.bytes() - 4),
            (Opcode::SEND_FIRST, mtu.bytes() + 4),
            (Opcode::SEND_ONLY, mtu.bytes() + 4),
        ] {
            let mut script = Script::new(Options { mtu, ..Options::default() });
            let sink = script.hosts.sides[1].sink(10_000);
            script.hosts.sides[1].recv(1, &[sink.all()]);
            let broken = script.psn;
            script.next(1, opcode, Ext::None, &vec![1; short]);
            assert_eq!(script.answers(), [acknowledge(broken, INVALID, 1)], "{mtu:?}");
        }
    }
}

/// Each invalid frame is counted by exactly one drop counter.
#[test]
fn each_dropped_frame_is_counted_once_by_its_reason() {
    let mut script = Script::new(Options::default());
    let good = script.frame(script.psn, Opcode::SEND_ONLY, true, Ext::None, b"good");
    let drops = |script: &Script| {
        let mut counts = Vec::new();
        script.hosts.sides[1].engine.stats().each(|name, count| {
            if name.starts_with("drop_") {
                counts.push((name, count));
            }
        });
        counts
    };
    let mut reasons = std::collections::BTreeSet::new();
    let mut try_frame = |script: &mut Script, frame: &[u8]| {
        let before = drops(script);
        let verdict = script.give(frame);
        let counted: Vec<_> = before
            .iter()
            .zip(drops(script))
            .filter(|(old, new)| old.1 != new.1)
            .map(|(_, new)| new.0)
            .collect();
        match verdict {
            Verdict::Dropped(_) => {
                assert_eq!(counted.len(), 1, "{verdict:?}");
                reasons.extend(counted);
            }
            Verdict::Consumed | Verdict::NotOurs => assert_eq!(counted, Vec::<&str>::new(), "{verdict:?}"),
        }
    };
    for byte in 14..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[byte] ^= 1 << bit;
            try_frame(&mut script, &bad);
            // A changed opcode with a valid ICRC is an invalid request, which is not dropped.
            if byte != 42 {
                reseal(&mut bad);
                try_frame(&mut script, &bad);
            }
        }
    }
    for len in 0..good.len() {
        try_frame(&mut script, &good[..len]);
    }
    // None of these frames was accepted as the expected packet.
    assert_eq!(script.state(), QpState::Rts);
    let reasons: Vec<_> = reasons.into_iter().collect();
    assert_eq!(
        reasons,
        [
            "drop_fragment",
            "drop_header_checksum",
            "drop_icrc",
            "drop_no_qp",
            "drop_pkey",
            "drop_sequence",
            "drop_truncated",
            "drop_udp_length",
            "drop_unknown_opcode",
            "drop_version",
        ]
    );
}
