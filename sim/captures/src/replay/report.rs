//! What came of all captures, for people and for the book.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    path::Path,
};

use anyhow::Result;

use super::{Difference, Played, REASONS, Reason, SCRIPTS, play};

/// How the engine did in the place of the hosts of all captures.
pub struct Report {
    played: Vec<[Played; 2]>,
    /// List each difference, not only how many there are of a kind.
    pub detailed: bool,
}

impl Report {
    /// Plays the captures in `directory` whose name contains `only`.
    ///
    /// # Errors
    /// As [`play`].
    pub fn of(directory: &Path, only: &str) -> Result<Self> {
        let scripts = SCRIPTS.iter().filter(|script| script.capture.contains(only));
        let played = scripts.map(|script| play(directory, script)).collect::<Result<_>>()?;
        Ok(Self { played, detailed: false })
    }

    /// How many captures were played.
    pub fn captures(&self) -> usize {
        self.played.len()
    }

    fn sides(&self) -> impl Iterator<Item = &Played> {
        self.played.iter().flatten()
    }

    /// Differences that no reason covers.
    pub fn unexplained(&self) -> Vec<(&Played, &Difference)> {
        let all = self.sides().flat_map(|side| side.differences.iter().map(move |found| (side, found)));
        all.filter(|(side, found)| Reason::of(side.capture, side.side, found).is_none()).collect()
    }

    /// Places where a reason is said to apply and covers nothing.
    pub fn idle_reasons(&self) -> Vec<String> {
        let mut idle = Vec::new();
        for reason in REASONS {
            for &(capture, number) in reason.places {
                let mut sides = self.sides().filter(|side| (side.capture, side.side) == (capture, number));
                if !sides.any(|side| side.reasons().contains_key(&Some(reason.name))) {
                    idle.push(format!("{} {capture} {}", reason.name, LETTERS[number]));
                }
            }
        }
        idle
    }

    /// The page of the book.
    pub fn markdown(&self) -> String {
        let mut page = INTRODUCTION.to_owned();
        // Writing to a string does not fail.
        let _ = self.write_reasons(&mut page).and_then(|()| self.write_table(&mut page));
        page
    }

    fn write_reasons(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "\n## Differences and their reasons\n")?;
        for Reason { name, why, .. } in REASONS {
            let count = |side: &Played| side.reasons().get(&Some(*name)).copied();
            let places = self.sides().filter_map(|side| Some((side, count(side)?)));
            let places =
                places.map(|(side, count)| format!("`{}` {} ({count})", side.capture, side.letter()));
            let places = places.collect::<Vec<_>>().join(", ");
            writeln!(page, "* **The engine {name}.** {why}\n  In {places}.")?;
        }
        Ok(())
    }

    fn write_table(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "\n## Frames alike\n")?;
        writeln!(page, "Of those that the host said; and how the engine's consumer fared.\n")?;
        writeln!(page, "| capture | a | b | consumer at a | consumer at b |")?;
        writeln!(page, "| --- | --- | --- | --- | --- |")?;
        for [a, b] in &self.played {
            let alike = |side: &Played| format!("{} of {}", side.alike, side.frames);
            let none =
                |side: &Played| if side.outcomes.is_empty() { "-".into() } else { side.outcomes.clone() };
            writeln!(page, "| `{}` | {} | {} | {} | {} |", a.capture, alike(a), alike(b), none(a), none(b))?;
        }
        Ok(())
    }
}

/// What the README of the captures calls the sides.
const LETTERS: [&str; 2] = ["a", "b"];

const INTRODUCTION: &str = "\
# Replay

The captures in `crates/roce-wire/tests/vectors` were taken between two Linux hosts, a and b. `cargo xtask replay` puts the
engine in the place of either: it hears what that host heard, when the host heard it, and its consumer asks for what the
host's program asked for. Everything that the engine says is compared with what the host said, frame by frame in the
order of each connection: opcode, PSN, acknowledgement request, solicited event, syndrome, MSN, address, key, length,
immediate data, payload; of connection management identifiers, queue pair, first PSN, MTU, limits on READs, retries,
private data, reasons. What READs bring, what receives hold and what the peer's WRITEs leave in memory is compared with
the captures, too.

Numbers that each side chooses for itself are translated: queue pair numbers, first PSNs, keys, communication and
transaction identifiers. Not compared is what no peer goes by: IPv4 identification, UDP source port, time limits of
connection management, and when a frame was said. The engine is set up as the host was: ACK timeout, RNR timer and
retries are those of the capture. Connections of programs that exchanged their numbers over TCP are made by connection
management first.

This page is written by `cargo xtask replay --markdown`; a test holds it to what the replay finds, and fails when a
difference has no reason.
";

impl Played {
    fn letter(&self) -> &'static str {
        LETTERS[self.side]
    }

    /// How many differences have which reason.
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
            let Played { capture, frames, alike, .. } = side;
            write!(f, "{capture:<26} {}  {alike:>3} of {frames:>3} alike", side.letter())?;
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
        let (frames, alike) = self.sides().fold((0, 0), |(f, a), side| (f + side.frames, a + side.alike));
        let differences: usize = self.sides().map(|side| side.differences.len()).sum();
        let unexplained = self.unexplained().len();
        writeln!(
            f,
            "{} captures, {frames} frames: {alike} alike, {differences} differences, {unexplained} without a reason",
            self.played.len()
        )
    }
}
