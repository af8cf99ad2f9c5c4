// SPDX-License-Identifier: MIT OR Apache-2.0

//! The report of all captures, as text and as a page of the documentation.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    path::Path,
};

use anyhow::Result;

use super::{
    difference::Difference,
    reasons::{REASONS, Reason},
    setup::SETUPS,
    side::{SideResult, play},
};

/// The results of all captures.
pub struct Report {
    results: Vec<[SideResult; 2]>,
    /// Whether the text lists each difference, or only their number by reason.
    pub detailed: bool,
}

impl Report {
    /// Replays the captures in `directory` whose name contains `only`.
    ///
    /// # Errors
    /// As [`play`].
    pub fn of(directory: &Path, only: &str) -> Result<Self> {
        let setups = SETUPS.iter().filter(|setup| setup.capture.contains(only));
        let results = setups.map(|setup| play(directory, setup)).collect::<Result<_>>()?;
        Ok(Self { results, detailed: false })
    }

    /// Returns the number of captures.
    #[must_use]
    pub fn captures(&self) -> usize {
        self.results.len()
    }

    fn sides(&self) -> impl Iterator<Item = &SideResult> {
        self.results.iter().flatten()
    }

    /// Returns the differences that no reason covers.
    #[must_use]
    pub fn unexplained(&self) -> Vec<(&SideResult, &Difference)> {
        let all = self.sides().flat_map(|side| side.differences.iter().map(move |found| (side, found)));
        all.filter(|(side, found)| Reason::of(side.capture, side.side, found).is_none()).collect()
    }

    /// Returns the places that a reason names and where it covers no difference.
    #[must_use]
    pub fn unused_reasons(&self) -> Vec<String> {
        let mut unused = Vec::new();
        for reason in REASONS {
            for &(capture, number) in reason.places {
                let mut sides = self.sides().filter(|side| (side.capture, side.side) == (capture, number));
                if !sides.any(|side| side.reasons().contains_key(&Some(reason.name))) {
                    unused.push(format!("{} {capture} {}", reason.name, LETTERS[number]));
                }
            }
        }
        unused
    }

    /// Returns docs/replay.md.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut page = INTRODUCTION.to_owned();
        // Writing to a string does not fail.
        let _ = self.write_reasons(&mut page).and_then(|()| self.write_table(&mut page));
        page
    }

    fn write_reasons(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "\n## Differences and their reasons\n")?;
        for Reason { name, why, .. } in REASONS {
            let count = |side: &SideResult| side.reasons().get(&Some(*name)).copied();
            let places = self.sides().filter_map(|side| Some((side, count(side)?)));
            let places =
                places.map(|(side, count)| format!("`{}` {} ({count})", side.capture, side.letter()));
            let places = places.collect::<Vec<_>>().join(", ");
            writeln!(page, "* **The engine {name}.** {why}\n  In {places}.")?;
        }
        Ok(())
    }

    fn write_table(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "\n## Equal frames\n")?;
        writeln!(
            page,
            "Frames of the host that the engine sent equally, and the completions of the engine's consumer.\n"
        )?;
        writeln!(page, "| capture | a | b | consumer at a | consumer at b |")?;
        writeln!(page, "| --- | --- | --- | --- | --- |")?;
        for [a, b] in &self.results {
            let equal = |side: &SideResult| format!("{} of {}", side.equal, side.frames);
            let none =
                |side: &SideResult| if side.outcomes.is_empty() { "-".into() } else { side.outcomes.clone() };
            writeln!(page, "| `{}` | {} | {} | {} | {} |", a.capture, equal(a), equal(b), none(a), none(b))?;
        }
        Ok(())
    }
}

/// The names of the sides in the README of the captures.
const LETTERS: [&str; 2] = ["a", "b"];

const INTRODUCTION: &str = "\
# Replay

The captures in `crates/roce-wire/tests/vectors` were taken between two Linux hosts, a and b. `cargo xtask replay` puts the
engine in place of either host. The engine receives the frames that the host received, at the same times, and its consumer
makes the requests that the host's program made. The frames that the engine sends are compared with those of the host, in
the order of each connection: opcode, PSN, acknowledge request, solicited event, syndrome, MSN, address, key, length,
immediate data, payload; in CM messages identifiers, queue pair, starting PSN, MTU, READ limits, retry counts, private data
and reasons. The data of READs, of receives, and of the peer's WRITEs in memory is compared with the capture, too.

Identifiers that each side chooses are translated: queue pair numbers, starting PSNs, keys, communication and transaction
identifiers. Fields that no peer depends on are not compared: IPv4 identification, UDP source port, CM timeouts, and the
time at which a frame was sent. The engine has the settings of the host: ACK timeout, RNR timer and retry counts are those
of the capture. For programs that exchanged their queue pair numbers over TCP, the replay first connects by CM.

This page is written by `cargo xtask replay --markdown`. A test compares it with the replay, and fails if a difference has
no reason.
";

impl SideResult {
    fn letter(&self) -> &'static str {
        LETTERS[self.side]
    }

    /// Returns the number of differences by reason; `None` for those without one.
    fn reasons(&self) -> BTreeMap<Option<&'static str>, usize> {
        let mut reasons = BTreeMap::new();
        for found in &self.differences {
            let reason = Reason::of(self.capture, self.side, found).map(|reason| reason.name);
            *reasons.entry(reason).or_default() += 1;
        }
        reasons
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for side in self.sides() {
            let SideResult { capture, frames, equal, .. } = side;
            write!(f, "{capture:<26} {}  {equal:>3} of {frames:>3} equal", side.letter())?;
            for (reason, count) in side.reasons() {
                write!(f, "; {count} {}", reason.unwrap_or("UNEXPLAINED"))?;
            }
            writeln!(f)?;
            for found in &side.differences {
                let unexplained = Reason::of(side.capture, side.side, found).is_none();
                if self.detailed || unexplained {
                    writeln!(f, "    {found}{}", if unexplained { "  UNEXPLAINED" } else { "" })?;
                }
            }
        }
        let (frames, equal) = self.sides().fold((0, 0), |(f, a), side| (f + side.frames, a + side.equal));
        let differences: usize = self.sides().map(|side| side.differences.len()).sum();
        let unexplained = self.unexplained().len();
        writeln!(
            f,
            "{} captures, {frames} frames: {equal} equal, {differences} differences, {unexplained} without a reason",
            self.results.len()
        )
    }
}
