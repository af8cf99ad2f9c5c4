// SPDX-License-Identifier: MIT OR Apache-2.0

//! How often the driver is interrupted under load, in virtual time.

use lab::miniport::load::{self, Direction, Load};

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
