// SPDX-License-Identifier: MIT OR Apache-2.0

//! How often the driver is interrupted under load, in virtual time.

use lab::{
    measure::{self, Transfers, Work},
    miniport::load::{self, Direction, Load},
    testbed::Options,
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
    for (chain, outstanding, most) in [(1, 1, 86), (16, 64, 64), (64, 256, 200)] {
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
