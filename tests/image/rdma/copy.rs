// SPDX-License-Identifier: MIT OR Apache-2.0

//! File transfer between two hosts: with and without faults of the link, with every path MTU, with a lost peer.

use std::{fs, path::Path, time::Duration};

use lab::copy::{End, Faults, Plan, Source};
use ndis_sim::Keyword;
use support::{
    captures,
    plans::{copied, run},
};

#[test]
fn file_is_written_and_read_back() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a file.txt");
    fs::write(&path, "to the peer, and back\n".repeat(50_000)).unwrap();
    let Some(outcome) = copied(&Plan { source: Source::File(path), ..Plan::of(0) }) else { return };
    assert_eq!(outcome.name, "a file.txt");
    assert_eq!(outcome.bytes, 22 * 50_000);
}

#[test]
fn empty_file_is_written_and_read_back() {
    let Some(outcome) = copied(&Plan::of(0)) else { return };
    assert_eq!(outcome.bytes, 0);
}

#[test]
fn lengths_that_are_no_multiple_of_the_mtu_arrive_complete() {
    for bytes in [1, 3, 4095, 4097, (1 << 20) + 1] {
        if copied(&Plan::of(bytes)).is_none() {
            return;
        }
    }
}

#[test]
fn transfer_works_with_every_path_mtu() {
    let mut frames = Vec::new();
    for path_mtu in [256, 512, 1024, 2048, 4096] {
        let Some(outcome) = copied(&Plan { path_mtu, ..Plan::of(1 << 20) }) else { return };
        frames.push(outcome.wire.frames);
    }
    assert!(frames.is_sorted_by(|small, large| small > large), "larger frames, fewer of them: {frames:?}");
}

#[test]
fn transfer_works_with_pending_create_calls() {
    let keywords = vec![("NdkCreateCompletion", Keyword::Text("2".into()))];
    copied(&Plan { keywords, ..Plan::of(1 << 20) });
}

#[test]
fn no_data_is_lost_with_five_percent_frame_loss() {
    let faults = Faults { loss: 0.05, ..Faults::NONE };
    let Some(outcome) = copied(&Plan { faults, ..Plan::of(4 << 20) }) else { return };
    assert!(outcome.wire.lost > 0, "the link lost frames");
}

#[test]
fn no_data_is_lost_with_reordered_and_duplicated_frames() {
    let faults = Faults { reordering: 0.02, duplication: 0.02, ..Faults::NONE };
    let Some(outcome) = copied(&Plan { faults, ..Plan::of(4 << 20) }) else { return };
    assert!(outcome.wire.delayed > 0 && outcome.wire.duplicated > 0);
}

#[test]
fn corrupted_frames_are_dropped_and_counted() {
    let faults = Faults { corruption: 0.02, ..Faults::NONE };
    let Some(outcome) = copied(&Plan { faults, ..Plan::of(4 << 20) }) else { return };
    assert!(outcome.wire.corrupted > 0);
    let counted: u64 =
        outcome.counters.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum();
    assert!(counted > 0, "drops are counted by reason: {:?}", outcome.counters);
}

#[test]
fn no_data_is_lost_with_all_faults_at_once() {
    for seed in 1..=5 {
        let faults =
            Faults { loss: 0.01, reordering: 0.01, duplication: 0.01, corruption: 0.01, ..Faults::NONE };
        if copied(&Plan { faults, seed, ..Plan::of(1 << 20) }).is_none() {
            return;
        }
    }
}

#[test]
fn both_consumers_detect_a_connection_loss_during_transfer() {
    let plan = Plan { kill_peer_at: Some(0.5), ..Plan::of(8 << 20) };
    let Some(outcome) = run(&plan) else { return };
    let End::PeerLost { moved, noticed_after } = outcome.end else { panic!("{:?}", outcome.end) };
    assert!((8 << 20..10 << 20).contains(&moved), "cut off after {moved} of {} bytes", 16 << 20);
    assert!(noticed_after < Duration::from_secs(10), "detected after {noticed_after:?}");
    let flushed: u64 = outcome.operations.values().map(|operation| operation.flushed).sum();
    assert!(flushed > 0, "pending requests are flushed");
}

#[test]
fn the_same_seed_gives_the_same_capture() {
    let capture = |name: &str, seed| {
        let path = captures::path(name);
        let faults = Faults { loss: 0.01, ..Faults::NONE };
        copied(&Plan { faults, seed, capture: Some(path.clone()), ..Plan::of(1 << 20) })?;
        Some(fs::read(path).unwrap())
    };
    let Some(first) = capture("copy seed 7", 7) else { return };
    assert!(Some(&first) == capture("copy seed 7 again", 7).as_ref(), "the same seed");
    assert!(Some(&first) != capture("copy seed 8", 8).as_ref(), "another seed");
}

#[test]
fn transfer_works_with_racing_threads() {
    copied(&Plan { real_time: true, ..Plan::of(16 << 20) });
}
