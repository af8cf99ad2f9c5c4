//! What the demo found out, for a person and for a program.

use std::{fmt::Write as _, time::Duration};

use crate::copy::{End, Operation, Outcome};
use console::style;
use serde_json::{Value, json};

use super::Options;

/// The summary that ends a run.
pub fn table(outcome: &Outcome, options: &Options) -> String {
    let mut out = String::new();
    let clock = if outcome.is_virtual { "virtual time" } else { "real time" };
    line(&mut out, &heading(outcome));
    let what = match options.file {
        Some(_) => format!("{}, {}", outcome.name, size(outcome.bytes)),
        None => format!("{} {}", size(outcome.bytes), outcome.name),
    };
    line(&mut out, &format!("{what} ({clock})"));
    line(&mut out, "");
    for (name, time) in [("RDMA Write, to the peer", outcome.write), ("RDMA Read, back again", outcome.read)]
    {
        let figure = time.map_or("not finished".into(), |time| goodput(outcome.bytes, time));
        row(&mut out, name, &figure);
    }
    line(&mut out, "");
    line(
        &mut out,
        &format!(
            "{:<16}{:>9}{:>11}{:>9}{:>11}{:>11}",
            "requests", "posted", "completed", "flushed", "p50", "p99"
        ),
    );
    for (name, operation) in &outcome.operations {
        let Operation { posted, succeeded, failed, flushed, p50, p99 } = operation;
        let (p50, p99) = (p50.map_or("-".into(), short), p99.map_or("-".into(), short));
        line(
            &mut out,
            &format!("  {name:<14}{posted:>9}{:>11}{flushed:>9}{p50:>11}{p99:>11}", succeeded + failed),
        );
    }
    line(&mut out, "");
    let wire = &outcome.wire;
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or(0);
    let mut faults = Vec::new();
    for (count, name) in [
        (wire.lost, "lost"),
        (wire.delayed, "late"),
        (wire.duplicated, "doubled"),
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
        [] => style("clean: nothing leaked, no rule broken").green().to_string(),
        found => style(found.join("\n")).red().to_string(),
    };
    row(&mut out, "verifier", &verifier);
    if let Some(capture) = &outcome.capture {
        row(&mut out, "capture", &capture.display().to_string());
    }
    if let Some(json) = &options.json {
        row(&mut out, "figures", &json.display().to_string());
    }
    out
}

fn heading(outcome: &Outcome) -> String {
    match &outcome.end {
        End::Complete if outcome.hashes_match() => {
            style("✔ copied, read back, and identical").green().bold().to_string()
        }
        End::Complete => style("✘ what came back differs").red().bold().to_string(),
        End::PeerLost { .. } => style("✘ the peer was lost").yellow().bold().to_string(),
        End::Failed(_) => style("✘ the copy failed").red().bold().to_string(),
    }
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "  {text}");
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

/// The same for `--json`. Times in seconds, latencies in microseconds.
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
    let (end, noticed) = match &outcome.end {
        End::Complete => ("complete", None),
        End::PeerLost { noticed_after } => ("peer lost", Some(noticed_after.as_secs_f64())),
        End::Failed(reason) => (reason.as_str(), None),
    };
    json!({
        "end": end,
        "noticed_after_s": noticed,
        "name": outcome.name,
        "bytes": outcome.bytes,
        "virtual_time": outcome.is_virtual,
        "seed": options.seed,
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
        "capture": outcome.capture,
        "elapsed_s": outcome.elapsed.as_secs_f64(),
        "real_s": outcome.real.as_secs_f64(),
    })
}
