// SPDX-License-Identifier: MIT OR Apache-2.0

//! Differences between two sequences of frames.

use std::fmt;

use super::normalized::NormalizedFrame;

/// A difference between the engine and the host of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The host sent this frame, the engine did not.
    Missing(NormalizedFrame),
    /// The engine sent this frame, the host did not.
    Extra(NormalizedFrame),
    /// Both sent this frame, with different `fields`.
    Changed { host: NormalizedFrame, engine: NormalizedFrame, fields: Vec<&'static str> },
    /// An error of the engine's consumer: a request could not be posted, or data is wrong.
    Consumer(String),
}

/// Compares the frames of a host with those that the engine sent in its place.
///
/// Returns the number of equal frames, and the differences in order.
pub fn compare(host: &[NormalizedFrame], engine: &[NormalizedFrame]) -> (usize, Vec<Difference>) {
    let matched = longest_common(host, engine);
    let (mut at_host, mut at_engine) = (0, 0);
    let mut differences = Vec::new();
    let ends = [(host.len(), engine.len())];
    for (next_host, next_engine) in matched.iter().copied().chain(ends) {
        compare_gap(&host[at_host..next_host], &engine[at_engine..next_engine], &mut differences);
        (at_host, at_engine) = (next_host + 1, next_engine + 1);
    }
    (matched.len(), differences)
}

/// Returns the pairs of indices of a longest common subsequence.
fn longest_common(host: &[NormalizedFrame], engine: &[NormalizedFrame]) -> Vec<(usize, usize)> {
    // `longest[i][j]`: the length of the subsequence from there on.
    let mut longest = vec![vec![0u32; engine.len() + 1]; host.len() + 1];
    for i in (0..host.len()).rev() {
        for j in (0..engine.len()).rev() {
            longest[i][j] = if host[i] == engine[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < host.len() && j < engine.len() {
        if host[i] == engine[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Adds the differences between two sequences without a common frame. Frames of one kind with the same PSN count as
/// changed.
fn compare_gap(host: &[NormalizedFrame], engine: &[NormalizedFrame], differences: &mut Vec<Difference>) {
    let mut left: Vec<Option<&NormalizedFrame>> = engine.iter().map(Some).collect();
    for host in host {
        let counterpart =
            left.iter_mut().find(|engine| engine.is_some_and(|engine| is_counterpart(host, engine)));
        differences.push(match counterpart.and_then(Option::take) {
            Some(engine) => {
                let (host, engine) = (host.clone(), engine.clone());
                let fields = changed(&host, &engine);
                Difference::Changed { host, engine, fields }
            }
            None => Difference::Missing(host.clone()),
        });
    }
    differences.extend(left.into_iter().flatten().cloned().map(Difference::Extra));
}

fn is_counterpart(host: &NormalizedFrame, engine: &NormalizedFrame) -> bool {
    let same_kind = host.class == engine.class && (host.psn.is_some() || host.name == engine.name);
    same_kind && host.conn == engine.conn && host.psn == engine.psn
}

fn changed(host: &NormalizedFrame, engine: &NormalizedFrame) -> Vec<&'static str> {
    let value = |frame: &NormalizedFrame, name: &str| {
        frame.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    };
    let mut names: Vec<&'static str> = Vec::new();
    if host.name != engine.name {
        names.push("opcode");
    }
    for (name, _) in host.fields.iter().chain(&engine.fields) {
        if value(host, name) != value(engine, name) && !names.contains(name) {
            names.push(name);
        }
    }
    if host.payload != engine.payload {
        names.push("payload");
    }
    names
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(host) => write!(f, "- {host}"),
            Self::Extra(engine) => write!(f, "+ {engine}"),
            Self::Changed { host, engine, fields } => {
                write!(f, "~ {host}")?;
                let value = |frame: &NormalizedFrame, name: &str| {
                    let field = frame.fields.iter().find(|(n, _)| *n == name);
                    field.map_or("-".into(), |(_, value)| value.clone())
                };
                for name in fields {
                    match *name {
                        "opcode" => write!(f, "; {} for {}", engine.name, host.name)?,
                        "payload" => {
                            let (ours, theirs) = (engine.payload.len(), host.payload.len());
                            write!(f, "; payload of {ours} bytes for {theirs}")?;
                        }
                        name => write!(f, "; {name} {} for {}", value(engine, name), value(host, name))?,
                    }
                }
                Ok(())
            }
            Self::Consumer(what) => write!(f, "! {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use roce_wire::Class;

    use super::*;

    fn ack(psn: u32, msn: u32) -> NormalizedFrame {
        let fields = vec![("msn", msn.to_string())];
        let (name, class) = ("Acknowledge", Class::Response);
        NormalizedFrame { conn: Some(0), name, class, psn: Some(psn), fields, payload: Vec::new() }
    }

    #[test]
    fn equal_frames_are_counted_around_differences() {
        let host = [ack(0, 1), ack(1, 2), ack(2, 3)];
        assert_eq!(compare(&host, &host), (3, vec![]));
        let (equal, found) = compare(&host, &[ack(0, 1), ack(2, 3)]);
        assert_eq!((equal, found), (2, vec![Difference::Missing(ack(1, 2))]));
        let (equal, found) = compare(&host, &[ack(0, 1), ack(1, 2), ack(1, 2), ack(2, 3)]);
        assert_eq!((equal, found), (3, vec![Difference::Extra(ack(1, 2))]));
    }

    #[test]
    fn frame_with_another_field_is_changed() {
        let (equal, found) = compare(&[ack(0, 1), ack(1, 2)], &[ack(0, 1), ack(1, 9)]);
        let changed = Difference::Changed { host: ack(1, 2), engine: ack(1, 9), fields: vec!["msn"] };
        assert_eq!((equal, found), (1, vec![changed]));
    }

    #[test]
    fn swapped_frames_are_a_difference() {
        let (equal, found) = compare(&[ack(0, 1), ack(1, 2)], &[ack(1, 2), ack(0, 1)]);
        assert_eq!((equal, found.len()), (1, 2), "{found:?}");
    }
}
