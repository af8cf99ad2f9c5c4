// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of a demo: a table for people, JSON for programs. Both show the same counts.

use std::{fmt::Write as _, time::Duration};

use console::style;
use serde_json::{Value, json};

use super::{Options, explain};
use crate::copy::{End, Operation, Outcome};

/// Returns the summary that is printed at the end.
pub fn table(outcome: &Outcome, options: &Options) -> String {
    let mut out = String::new();
    let clock = if outcome.is_virtual {
        format!("virtual time, seed {}", outcome.seed)
    } else {
        format!("real time, seed {}", outcome.seed)
    };
    line(&mut out, &heading(outcome));
    let what = match options.file {
        Some(_) => format!("{}, {}", outcome.name, size(outcome.bytes)),
        None => format!("{} {}", size(outcome.bytes), outcome.name),
    };
    line(&mut out, &format!("{what} ({clock})"));
    line(&mut out, "");
    let names = if options.smb {
        ["SMB2 WRITE, to the peer", "SMB2 READ, back again"]
    } else {
        ["RDMA Write, to the peer", "RDMA Read, back again"]
    };
    for (name, time) in names.into_iter().zip([outcome.write, outcome.read]) {
        let figure = time.map_or("not finished".into(), |time| goodput(outcome.bytes, time));
        row(&mut out, name, &figure);
    }
    line(&mut out, "");
    line(
        &mut out,
        &format!(
            "{:<16}{:>9}{:>11}{:>9}{:>9}{:>12}{:>12}",
            "requests", "posted", "succeeded", "failed", "flushed", "p50", "p99"
        ),
    );
    for (name, operation) in &outcome.operations {
        let Operation { posted, succeeded, failed, flushed, p50, p99, .. } = operation;
        let (p50, p99) = (p50.map_or("-".into(), short), p99.map_or("-".into(), short));
        line(
            &mut out,
            &format!("  {name:<14}{posted:>9}{succeeded:>11}{failed:>9}{flushed:>9}{p50:>12}{p99:>12}"),
        );
    }
    line(&mut out, "");
    let wire = &outcome.wire;
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or(0);
    let mut faults = Vec::new();
    for (count, name) in [
        (wire.lost, "lost"),
        (wire.delayed, "delayed"),
        (wire.duplicated, "duplicated"),
        (wire.corrupted, "corrupted"),
    ] {
        if count > 0 {
            faults.push(format!("{count} {name}"));
        }
    }
    let faults = if faults.is_empty() { "none lost".into() } else { faults.join(", ") };
    row(&mut out, "frames on the wire", &format!("{} ({}), {faults}", wire.frames, size(wire.bytes)));
    row(&mut out, "acknowledgements", &counter("tx_acks").to_string());
    let recovery = format!("{}, {} timeouts", counter("retransmissions"), counter("timeouts"));
    row(&mut out, "retransmissions", &recovery);
    let dropped: Vec<String> = outcome
        .counters
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("drop_")?, count)))
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")))
        .collect();
    if !dropped.is_empty() {
        row(&mut out, "dropped on arrival", &dropped.join(", "));
    }
    line(&mut out, "");
    let names = ["SHA-256 sent", "SHA-256 at the peer", "SHA-256 read back"];
    for (name, hash) in names.into_iter().zip(outcome.hashes) {
        row(&mut out, name, &hash.map_or("-".into(), hex));
    }
    for event in &outcome.events {
        row(&mut out, "event log", event);
    }
    let verifier = match outcome.violations.as_slice() {
        [] => style("passed: no leak, no rule violated").green().to_string(),
        found => style(found.join("\n")).red().to_string(),
    };
    row(&mut out, "verifier", &verifier);
    let capture = match &outcome.capture {
        Some(capture) => capture.display().to_string(),
        None => "none; --pcap FILE writes one".into(),
    };
    row(&mut out, "capture", &capture);
    for (name, path) in [("results", &options.json), ("report", &options.report), ("trace", &options.events)]
    {
        if let Some(path) = path {
            row(&mut out, name, &path.display().to_string());
        }
    }
    let notes = explain::notes(outcome);
    if !notes.is_empty() {
        line(&mut out, "");
    }
    for note in notes {
        paragraph(&mut out, &note);
    }
    out
}

fn heading(outcome: &Outcome) -> String {
    match &outcome.end {
        End::Complete if outcome.hashes_match() => {
            style("✔ copied, read back, and identical").green().bold().to_string()
        }
        End::Complete => style("✘ the data that was read back differs").red().bold().to_string(),
        End::PeerLost { moved, .. } => {
            let share = 100.0 * *moved as f64 / (2.0 * outcome.bytes as f64);
            let text = format!(
                "✘ the peer was disconnected after {} of {}, {share:.1} % of the transfer there and back",
                size(*moved),
                size(2 * outcome.bytes)
            );
            style(text).yellow().bold().to_string()
        }
        End::Failed(_) => style("✘ the copy failed").red().bold().to_string(),
    }
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "  {text}");
}

/// Appends a list item, wrapped.
fn paragraph(out: &mut String, text: &str) {
    const WIDTH: usize = 96;
    let mut current = String::from("-");
    for word in text.split_whitespace() {
        if current.chars().count() + 1 + word.chars().count() > WIDTH {
            line(out, &current);
            current = String::from(" ");
        }
        current = current + " " + word;
    }
    line(out, &current);
}

fn row(out: &mut String, name: &str, value: &str) {
    line(out, &format!("{name:<26}{value}"));
}

fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

fn goodput(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    let rate = bytes as f64 / seconds;
    format!("{:>8.0} MiB/s  {:>6.2} Gbit/s  in {seconds:.3} s", rate / f64::from(1 << 20), rate * 8.0 / 1e9)
}

fn short(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1000.0) }
}

fn hex(hash: [u8; 32]) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the content of the `--json` file. Times are in seconds, latencies in microseconds.
pub fn json(outcome: &Outcome, options: &Options) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let micros = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e6);
    let rate = |time: Option<Duration>| time.map(|time| outcome.bytes as f64 / time.as_secs_f64().max(1e-9));
    let operations: serde_json::Map<String, Value> = outcome
        .operations
        .iter()
        .map(|(name, operation)| {
            let figures = json!({
                "posted": operation.posted,
                "succeeded": operation.succeeded,
                "flushed": operation.flushed,
                "failed": operation.failed,
                "p50_us": micros(operation.p50),
                "p99_us": micros(operation.p99),
            });
            (name.clone(), figures)
        })
        .collect();
    let (end, moved, noticed) = match &outcome.end {
        End::Complete => ("complete", 2 * outcome.bytes, None),
        End::PeerLost { moved, noticed_after } => ("peer lost", *moved, Some(noticed_after.as_secs_f64())),
        End::Failed(reason) => (reason.as_str(), 0, None),
    };
    json!({
        "end": end,
        "moved_bytes": moved,
        "noticed_after_s": noticed,
        "name": outcome.name,
        "bytes": outcome.bytes,
        "virtual_time": outcome.is_virtual,
        "seed": outcome.seed,
        "smb": options.smb,
        "path_mtu": options.path_mtu(),
        "loss": options.loss.0,
        "reorder": options.reorder.0,
        "write_s": seconds(outcome.write),
        "read_s": seconds(outcome.read),
        "write_bytes_per_s": rate(outcome.write),
        "read_bytes_per_s": rate(outcome.read),
        "sha256": outcome.hashes.map(|hash| hash.map(hex)),
        "operations": operations,
        "wire": {
            "frames": outcome.wire.frames,
            "bytes": outcome.wire.bytes,
            "lost": outcome.wire.lost,
            "delayed": outcome.wire.delayed,
            "duplicated": outcome.wire.duplicated,
            "corrupted": outcome.wire.corrupted,
        },
        "counters": outcome.counters,
        "events": outcome.events,
        "violations": outcome.violations,
        "notes": explain::notes(outcome),
        "capture": outcome.capture,
        "elapsed_s": outcome.elapsed.as_secs_f64(),
        "real_s": outcome.real.as_secs_f64(),
    })
}
