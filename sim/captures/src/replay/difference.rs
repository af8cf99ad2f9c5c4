//! Where two sequences of frames differ.

use std::fmt;

use super::said::Said;

/// Something in which the engine differs from the host of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The host said this, the engine did not.
    Missing(Said),
    /// The engine said this, the host did not.
    Extra(Said),
    /// Both said this, but for some fields.
    Changed { host: Said, engine: Said, fields: Vec<&'static str> },
    /// Something about the engine's consumer: a request that could not be posted, data that came out wrong.
    Consumer(String),
}

/// Compares what a host said with what the engine said in its place, in order.
///
/// Returns how many frames agree, and the differences in their order.
pub fn compare(host: &[Said], engine: &[Said]) -> (usize, Vec<Difference>) {
    let matched = longest_common(host, engine);
    let (mut at_host, mut at_engine) = (0, 0);
    let mut differences = Vec::new();
    let ends = [(host.len(), engine.len())];
    for (next_host, next_engine) in matched.iter().copied().chain(ends) {
        between(&host[at_host..next_host], &engine[at_engine..next_engine], &mut differences);
        (at_host, at_engine) = (next_host + 1, next_engine + 1);
    }
    (matched.len(), differences)
}

/// Pairs of places of a longest common subsequence.
fn longest_common(host: &[Said], engine: &[Said]) -> Vec<(usize, usize)> {
    // `longest[i][j]`: of what is left from there on.
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

/// Differences between two stretches without anything in common: frames of one kind about the same are taken for
/// changed ones, in order.
fn between(host: &[Said], engine: &[Said], differences: &mut Vec<Difference>) {
    let mut left: Vec<Option<&Said>> = engine.iter().map(Some).collect();
    for host in host {
        let twin = left.iter_mut().find(|engine| engine.is_some_and(|engine| is_twin(host, engine)));
        differences.push(match twin.and_then(Option::take) {
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

fn is_twin(host: &Said, engine: &Said) -> bool {
    let same_kind = host.class == engine.class && (host.psn.is_some() || host.name == engine.name);
    same_kind && host.conn == engine.conn && host.psn == engine.psn
}

fn changed(host: &Said, engine: &Said) -> Vec<&'static str> {
    let value =
        |said: &Said, name: &str| said.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
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
                let value = |said: &Said, name: &str| {
                    let field = said.fields.iter().find(|(n, _)| *n == name);
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

    fn said(psn: u32, msn: u32) -> Said {
        let fields = vec![("msn", msn.to_string())];
        let (name, class) = ("Acknowledge", Class::Response);
        Said { conn: Some(0), name, class, psn: Some(psn), fields, payload: Vec::new() }
    }

    #[test]
    fn what_is_alike_is_counted_around_what_is_not() {
        let host = [said(0, 1), said(1, 2), said(2, 3)];
        assert_eq!(compare(&host, &host), (3, vec![]));
        let (alike, found) = compare(&host, &[said(0, 1), said(2, 3)]);
        assert_eq!((alike, found), (2, vec![Difference::Missing(said(1, 2))]));
        let (alike, found) = compare(&host, &[said(0, 1), said(1, 2), said(1, 2), said(2, 3)]);
        assert_eq!((alike, found), (3, vec![Difference::Extra(said(1, 2))]));
    }

    #[test]
    fn the_same_frame_with_another_field_is_a_changed_one() {
        let (alike, found) = compare(&[said(0, 1), said(1, 2)], &[said(0, 1), said(1, 9)]);
        let changed = Difference::Changed { host: said(1, 2), engine: said(1, 9), fields: vec!["msn"] };
        assert_eq!((alike, found), (1, vec![changed]));
    }

    #[test]
    fn order_matters() {
        let (alike, found) = compare(&[said(0, 1), said(1, 2)], &[said(1, 2), said(0, 1)]);
        assert_eq!((alike, found.len()), (1, 2), "{found:?}");
    }
}
