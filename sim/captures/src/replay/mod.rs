//! Captures of Linux peers, played again with the engine in the place of either side.
//!
//! For each capture and each side, an engine hears what that side heard, when it heard it, and its consumer asks for
//! what that side's consumer asked for. What the engine says is compared with what the host said: frame by frame, in
//! the order of each connection. So is what its consumer finds in memory. A difference is a bug, or stands in a
//! table with its reason.
//!
//! | module | what it does |
//! | --- | --- |
//! | `story` | finds out from the frames who talked, and what the consumers asked for |
//! | `script` | what the frames do not tell: losses behind the place of capture, how consumers were set up |
//! | `player` | drives the engine, and translates the numbers that each side chooses |
//! | `said` | a frame without what each side may choose |
//! | `difference`, `reasons` | where two sequences differ, and why they may |

mod difference;
mod memory;
mod player;
mod reasons;
mod report;
mod said;
mod script;
mod story;

use std::path::Path;

use anyhow::{Context as _, Result};

pub use self::{
    difference::Difference,
    reasons::{REASONS, Reason},
    report::Report,
    said::Said,
    script::{SCRIPTS, Script},
};
use self::{player::Player, story::Story};
use crate::file::{self, Captured};

type Lock = parking_lot::RawMutex;

/// How one side of one capture went.
#[derive(Debug)]
pub struct Played {
    pub capture: &'static str,
    /// 0 for the side that the capture was taken at.
    pub side: usize,
    /// Frames of the host.
    pub frames: usize,
    /// Frames that the engine said alike.
    pub alike: usize,
    pub differences: Vec<Difference>,
    /// How the requests and receives of the engine's consumer ended.
    pub outcomes: String,
}

/// Plays both sides of a capture in `directory`.
///
/// # Errors
/// When the capture cannot be read or understood, or the engine refuses what it must not refuse.
pub fn play(directory: &Path, script: &Script) -> Result<[Played; 2]> {
    let path = directory.join(script.capture).with_extension("pcap");
    play_frames(&file::read(&path)?, script).with_context(|| format!("{}", path.display()))
}

/// Plays both sides of a capture whose frames these are.
///
/// # Errors
/// As [`play`].
pub fn play_frames(capture: &[Captured], script: &Script) -> Result<[Played; 2]> {
    let story = Story::of(capture)?;
    let mut sides = Vec::new();
    for side in 0..2 {
        let player = Player::new(&story, script, side);
        let performance = player.and_then(Player::play)?;
        let of_host = story.frames.iter().filter(|spoken| spoken.from == side);
        let host: Vec<Said> = of_host
            .map(|spoken| {
                let conn = spoken.conn.map(|at| (at, &story.conns[at]));
                Said::of(&spoken.packet(), side, conn, None)
            })
            .collect();
        // Connections have nothing to do with each other, and neither has their order.
        let (mut alike, mut differences) = (0, Vec::new());
        for conn in (0..story.conns.len()).map(Some).chain([None]) {
            let about = |said: &&Said| said.conn == conn;
            let of_host: Vec<Said> = host.iter().filter(about).cloned().collect();
            let of_engine: Vec<Said> = performance.said.iter().filter(about).cloned().collect();
            let (same, found) = difference::compare(&of_host, &of_engine);
            alike += same;
            differences.extend(found);
        }
        differences.extend(performance.complaints.into_iter().map(Difference::Consumer));
        let outcomes = performance.outcomes.iter().map(|(what, count)| format!("{count} {what}"));
        let outcomes = outcomes.collect::<Vec<_>>().join(", ");
        let (capture, frames) = (script.capture, host.len());
        sides.push(Played { capture, side, frames, alike, differences, outcomes });
    }
    sides.try_into().ok().context("two sides")
}
