// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replays both sides of one capture and compares the frames of the engine with those of the host.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::{
    difference::{Difference, compare},
    infer::Scenario,
    normalized::NormalizedFrame,
    player::Player,
    setup::CaptureSetup,
};
use crate::file::{self, Captured};

/// The result of replaying one side of one capture.
#[derive(Debug)]
pub struct SideResult {
    pub capture: &'static str,
    /// 0 for the side at which the capture was taken.
    pub side: usize,
    /// Number of frames that the host sent.
    pub frames: usize,
    /// Number of frames that the engine sent equally.
    pub equal: usize,
    pub differences: Vec<Difference>,
    /// Completions of the engine's consumer, counted by status.
    pub outcomes: String,
}

/// Replays both sides of a capture in `directory`.
///
/// # Errors
/// If the capture cannot be read or interpreted, or the engine rejects a valid operation.
pub fn play(directory: &Path, setup: &CaptureSetup) -> Result<[SideResult; 2]> {
    let path = directory.join(setup.capture).with_extension("pcap");
    play_frames(&file::read(&path)?, setup).with_context(|| format!("{}", path.display()))
}

/// Replays both sides of a capture, given by its frames.
///
/// # Errors
/// As [`play`].
pub fn play_frames(capture: &[Captured], setup: &CaptureSetup) -> Result<[SideResult; 2]> {
    let scenario = Scenario::infer(capture)?;
    let mut sides = Vec::new();
    for side in 0..2 {
        let player = Player::new(&scenario, setup, side);
        let outcome = player.and_then(Player::play)?;
        let of_host = scenario.frames.iter().filter(|frame| frame.from == side);
        let host: Vec<NormalizedFrame> = of_host
            .map(|frame| {
                let conn = frame.conn.map(|at| (at, &scenario.conns[at]));
                NormalizedFrame::new(&frame.packet(), side, conn, None)
            })
            .collect();
        // Frames of different connections have no order among each other.
        let (mut equal, mut differences) = (0, Vec::new());
        for conn in (0..scenario.conns.len()).map(Some).chain([None]) {
            let of_conn = |frame: &&NormalizedFrame| frame.conn == conn;
            let of_host: Vec<NormalizedFrame> = host.iter().filter(of_conn).cloned().collect();
            let of_engine: Vec<NormalizedFrame> = outcome.sent.iter().filter(of_conn).cloned().collect();
            let (same, found) = compare(&of_host, &of_engine);
            equal += same;
            differences.extend(found);
        }
        differences.extend(outcome.errors.into_iter().map(Difference::Consumer));
        let outcomes = outcome.completions.iter().map(|(what, count)| format!("{count} {what}"));
        let outcomes = outcomes.collect::<Vec<_>>().join(", ");
        let (capture, frames) = (setup.capture, host.len());
        sides.push(SideResult { capture, side, frames, equal, differences, outcomes });
    }
    sides.try_into().ok().context("two sides")
}
