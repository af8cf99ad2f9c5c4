// SPDX-License-Identifier: MIT OR Apache-2.0

//! How often the driver is interrupted under load, in virtual time.

use std::time::Duration;

use device_sim::{
    Quirks,
    virtio_net::{Features, RECEIVE, interrupt_coalescing::Parameters},
};
use lab::{
    measure::{self, Transfers, Work},
    miniport::load::{self, Direction, Load},
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::try_copy,
    flows::udp,
};

/// Interrupts per 1000 received frames of 1514 bytes.
fn interrupts(chain: usize, outstanding: usize) -> Option<u64> {
    let path = lab::image()?;
    let load = Load { direction: Direction::Receive, count: 1000, chain, outstanding };
    let counted = load::run(&path, &path, load).expect("every frame arrives");
    Some(1000 * counted.interrupts / counted.frames)
}

/// The bounds are twice the figures of `lab/baseline/miniport.toml`, which depend on when frames arrive between polls; there is none for the
/// last load. Before the queue was polled for a moment after the last frame, there were 930 interrupts and more.
#[test]
fn frames_that_follow_each_other_closely_rarely_interrupt() {
    for (chain, outstanding, most) in [(1, 1, 48), (16, 64, 50), (64, 256, 200)] {
        let Some(interrupts) = interrupts(chain, outstanding) else { return };
        assert!(interrupts <= most, "{interrupts} interrupts per 1000 frames, in chains of {chain}");
    }
}

/// Interrupts of the target per 1000 frames of WRITEs of 1 MiB.
fn interrupts_of_writes(options: &Options) -> Option<u64> {
    let path = lab::image()?;
    let work = |count| Work::Writes(Transfers { count, size: 1 << 20, outstanding: 8, buffers: 1 });
    let [short, long] = [4, 12].map(|count| {
        measure::run_on(&path, work(count), options).expect("the writes complete").hosts[1].counters
    });
    let frames = (long.received_frames + long.sent_frames) - (short.received_frames + short.sent_frames);
    Some(1000 * (long.interrupts - short.interrupts) / frames)
}

/// A frame of 4 KiB arrives every 3.4 us at 10 Gbit/s. Before the time between frames was measured, the target of WRITEs had 962
/// interrupts per 1000 frames. There are some, so that threads run.
#[test]
fn frames_of_writes_rarely_interrupt_their_target() {
    for (gigabits, path_mtu) in [(10, 1024), (10, 4096), (25, 1024), (25, 4096)] {
        let rate = gigabits * 1_000_000_000;
        let options = Options { rate, path_mtu, verifier: false, ..Options::default() };
        let Some(interrupts) = interrupts_of_writes(&options) else { return };
        assert!(
            (1..=60).contains(&interrupts),
            "{interrupts} interrupts per 1000 frames at {gigabits} Gbit/s, path MTU {path_mtu}"
        );
    }
}

#[test]
fn each_frame_may_interrupt_where_moderation_is_off() {
    let keywords = vec![("*InterruptModeration", Keyword::Text("0".into()))];
    let Some(interrupts) = interrupts_of_writes(&Options { keywords, verifier: false, ..Options::default() })
    else {
        return;
    };
    assert!(interrupts > 900, "{interrupts} interrupts per 1000 frames");
}

/// Copies for so long that the frames are a stream.
fn copy_for_long(bed: &Testbed) {
    for end in try_copy(bed, 8 << 20, |_| {}) {
        end.expect("the copy completes");
    }
}

/// The device coalesces the interrupts of a queue while a stream arrives on it; those of frames that are farther apart come at once.
//= virtio §12
#[test]
fn device_that_can_coalesces_the_interrupts_of_a_stream() {
    for (feature, command) in [(Features::VQ_NOTF_COAL, [6, 2]), (Features::NOTF_COAL, [6, 1])] {
        let features = Features::DEFAULT | feature;
        let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
        let [sender, target] = bed.machines();
        let parameters = || target.nic().interrupt_parameters(RECEIVE);
        let commands = || target.nic().sent_commands(command);
        assert_eq!((parameters(), commands()), (Parameters::default(), 0), "as after a reset");
        copy_for_long(&bed);
        assert!(commands() > 0, "the target of the copy has asked for it");
        let [from, to] = [sender, target].map(miniport);
        exchange(&bed, &from, &to, &[udp(1, 0)]);
        for number in 0..20 {
            let _ = from.send_chain(&[udp(1, number)], 0);
            let _ = bed.event().wait(Duration::from_micros(100));
        }
        let _ = bed.event().wait(Duration::from_millis(1));
        assert_eq!(parameters(), Parameters::default(), "{} commands", commands());
        finish(bed);
    }
}

/// An interrupt that is late is not lost, and the frames of a stream do not wait for it.
#[test]
fn stream_is_as_fast_on_a_device_that_coalesces_interrupts() {
    let rate = |features| {
        let options = Options { features, verifier: false, ..Options::default() };
        let work = Work::Writes(Transfers { count: 12, size: 1 << 20, outstanding: 2, buffers: 1 });
        let run = measure::run_on(&lab::image()?, work, &options).expect("the writes complete");
        Some(run.result.bytes_per_second())
    };
    let Some(before) = rate(Features::DEFAULT) else { return };
    let coalesced = rate(Features::DEFAULT | Features::VQ_NOTF_COAL).unwrap();
    assert!(coalesced > 0.99 * before, "{coalesced} bytes per second, {before} without");
}

/// Whether and when the device answers is of no consequence for the stream.
#[test]
fn device_that_refuses_or_answers_late_interrupts_as_before() {
    let features = Features::DEFAULT | Features::VQ_NOTF_COAL;
    for quirks in [
        Quirks { refuses_class: Some(6), ..Quirks::default() },
        Quirks { leaves_command: Some([6, 2]), ..Quirks::default() },
    ] {
        let options = Options { features, quirks, peer_quirks: quirks, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        copy_for_long(&bed);
        for machine in bed.machines() {
            assert!(machine.nic().sent_commands([6, 2]) > 0);
            assert_eq!(machine.nic().interrupt_parameters(RECEIVE), Parameters::default());
        }
        assert_eq!(bed.events(), [""; 0], "nothing to report");
        finish(bed);
    }
}
