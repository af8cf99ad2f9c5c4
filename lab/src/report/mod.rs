// SPDX-License-Identifier: MIT OR Apache-2.0

//! `--report`: one self-contained page about a demo, without scripts and without other files.

mod svg;
mod timeline;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::Result;

use self::{
    svg::{Bars, escaped},
    timeline::{Kind, Timeline},
};
use crate::{
    copy::{Operation, Outcome},
    trace::TracedEvent,
};

/// Intervals of the charts over time.
const INTERVALS: usize = 120;

/// Events that are shown of the trace: the first and the last.
const FIRST_EVENTS: usize = 40;
const LAST_EVENTS: usize = 20;

/// The page's style: both color schemes, no fonts of its own.
const STYLE: &str = "
:root { --bg:#fff; --fg:#1b1f24; --dim:#59636e; --grid:#e1e5ea; --data:#0072b2; --resent:#b34700; --lost:#b3005e; --card:#f6f8fa }
@media (prefers-color-scheme: dark) { :root { --bg:#0f1318; --fg:#e6eaef; --dim:#9aa4af; --grid:#2b323b; --data:#5ab4e8; --resent:#f09a4a; --lost:#f07ab4; --card:#171c23 } }
body { background:var(--bg); color:var(--fg); font:15px/1.5 system-ui,sans-serif; max-width:920px; margin:2rem auto; padding:0 1rem }
h1 { font-size:1.5rem; margin-bottom:.2rem } h2 { font-size:1.1rem; margin:2rem 0 .3rem } p { color:var(--dim); margin:.2rem 0 .6rem }
svg { width:100%; height:auto; background:var(--card); border-radius:6px }
table { border-collapse:collapse; width:100% } th,td { text-align:left; padding:.25rem .6rem .25rem 0; border-bottom:1px solid var(--grid) }
td.n,th.n { text-align:right; white-space:nowrap } .grid { stroke:var(--grid) } .axis { stroke:var(--dim) } .tick { fill:var(--dim); font-size:11px } .label { fill:var(--fg); font-size:12px }
.data { fill:var(--data) } .again { fill:var(--resent) } .name { font-size:11px; fill:var(--fg) }
.frame { stroke:var(--data); stroke-width:1.4 } .frame-head { fill:var(--data) } .resent { stroke:var(--resent); stroke-width:1.4 } .resent-head { fill:var(--resent) } .resent-text { fill:var(--resent) }
.lost { stroke:var(--lost); stroke-width:1.4; stroke-dasharray:5 3; fill:none } .lost-text { fill:var(--lost) }
@media (max-width:600px) { table { display:block; overflow-x:auto } }
li { margin:.3rem 0 } code { overflow-wrap:anywhere }
";

/// Text of the page beside the results.
pub struct Context<'a> {
    /// The command line, and other settings: name and value.
    pub settings: Vec<(&'a str, String)>,
    /// Sentences that explain figures.
    pub notes: Vec<String>,
}

/// Returns the page for a run whose wire was captured in `capture`.
///
/// # Errors
/// If the capture cannot be read.
pub fn page(outcome: &Outcome, capture: &Path, context: &Context<'_>) -> Result<String> {
    let timeline = timeline::read(capture)?;
    let mut out = format!(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>viordma demo</title><style>{STYLE}</style></head><body><h1>viordma demo: {} {}</h1><p>{}</p>",
        escaped(&indicatif::BinaryBytes(outcome.bytes).to_string()),
        escaped(&outcome.name),
        if outcome.hashes_match() {
            "Copied to the peer by RDMA Write, read back by RDMA Read, and identical."
        } else {
            "The copy did not complete."
        },
    );
    if !context.notes.is_empty() {
        out += "<ul>";
        for note in &context.notes {
            let _ = write!(out, "<li>{}</li>", escaped(note));
        }
        out += "</ul>";
    }
    over_time(&mut out, &timeline);
    latencies(&mut out, outcome);
    let _ = write!(
        out,
        "<h2>Packets</h2><p>The connection's first and last frames, its connection management, the first frames that were lost and the first packets that were sent again. Times are since the first frame.</p>{}",
        svg::ladder(&timeline.rows)
    );
    events(&mut out, &outcome.trace);
    out += "<h2>Environment</h2><table>";
    for (name, value) in environment().iter().chain(&context.settings) {
        let _ = write!(out, "<tr><th>{name}</th><td><code>{}</code></td></tr>", escaped(value));
    }
    Ok(out + "</table></body></html>\n")
}

fn over_time(out: &mut String, timeline: &Timeline) {
    let span = timeline.end.as_secs_f64().max(1e-9);
    let (mut bytes, mut resent) = ([0.0; INTERVALS], [0.0; INTERVALS]);
    let mut lost = 0;
    for sample in &timeline.samples {
        let share = sample.time.as_secs_f64() / span;
        #[expect(clippy::cast_sign_loss, reason = "a share of the time is not negative")]
        let at = ((share * INTERVALS as f64) as usize).min(INTERVALS - 1);
        match sample.kind {
            Kind::Payload(length) => bytes[at] += length as f64,
            Kind::Resent => resent[at] += 1.0,
            Kind::Lost => lost += 1,
        }
    }
    let width = span / INTERVALS as f64;
    let goodput = bytes.map(|bytes| bytes * 8.0 / width / 1e9);
    let ticks: Vec<(f64, String)> = (0..=5)
        .map(|step| f64::from(step) / 5.0)
        .map(|share| (share, format!("{:.1}", share * span * 1e3)))
        .collect();
    let x_label = "time since the first frame, in ms";
    let chart =
        Bars { values: &goodput, class: "data", x_label, y_label: "goodput, in Gbit/s", ticks: &ticks };
    let _ = write!(
        out,
        "<h2>Goodput over time</h2><p>Payload of RDMA Writes and READ responses, each byte counted when it was first sent; one bar is {}.</p>{}",
        svg::milliseconds(Duration::from_secs_f64(width)),
        svg::bars(&chart)
    );
    let total: f64 = resent.iter().sum();
    let _ = write!(
        out,
        "<h2>Retransmissions over time</h2><p>{total:.0} packets sent again, READ responses included; {lost} frames lost on the wire.</p>"
    );
    if total > 0.0 {
        let y_label = "packets sent again";
        *out += &svg::bars(&Bars { values: &resent, class: "again", x_label, y_label, ticks: &ticks });
    }
}

fn latencies(out: &mut String, outcome: &Outcome) {
    *out += "<h2>Latency of requests</h2><p>From the post to the completion, waiting behind earlier requests included.</p><table><tr><th>request</th><th class='n'>posted</th><th class='n'>succeeded</th><th class='n'>failed</th><th class='n'>flushed</th><th class='n'>p50</th><th class='n'>p99</th></tr>";
    let time = |time: Option<Duration>| time.map_or("-".into(), svg::milliseconds);
    for (name, operation) in &outcome.operations {
        let Operation { posted, succeeded, failed, flushed, p50, p99, .. } = operation;
        let _ = write!(
            out,
            "<tr><td>{name}</td><td class='n'>{posted}</td><td class='n'>{succeeded}</td><td class='n'>{failed}</td><td class='n'>{flushed}</td><td class='n'>{}</td><td class='n'>{}</td></tr>",
            time(*p50),
            time(*p99)
        );
    }
    *out += "</table>";
    for name in ["write", "read"] {
        let Some(operation) =
            outcome.operations.get(name).filter(|operation| !operation.latencies.is_empty())
        else {
            continue;
        };
        let values: Vec<f64> = operation.latencies.iter().map(|(_, count)| *count as f64).collect();
        let wide = 1.0 / values.len() as f64;
        let ticks: Vec<(f64, String)> = (1..)
            .zip(&operation.latencies)
            .map(|(at, (highest, _))| (wide * f64::from(at), format!("{:.3}", highest.as_secs_f64() * 1e3)))
            .collect();
        // No more labels than fit.
        let every = ticks.len().div_ceil(12);
        let ticks: Vec<_> = ticks.into_iter().step_by(every).collect();
        let y_label = format!("RDMA {name} requests");
        let chart = Bars {
            values: &values,
            class: "data",
            x_label: "latency, up to, in ms",
            y_label: &y_label,
            ticks: &ticks,
        };
        *out += &svg::bars(&chart);
    }
}

/// The events of the drivers' trace, by name and in the drivers' own words.
fn events(out: &mut String, trace: &[TracedEvent]) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for event in trace {
        *counts.entry(event.name()).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let _ = write!(
        out,
        "<h2>Events of the drivers</h2><p>What both drivers write to ETW, as <code>--events</code> has it, by name: {}. Times are since the start of the hosts.</p><table>",
        if counts.is_empty() { "none".to_owned() } else { escaped(&counts.join(", ")) }
    );
    let last = trace.len().saturating_sub(LAST_EVENTS).max(FIRST_EVENTS.min(trace.len()));
    for (number, event) in trace.iter().enumerate() {
        if number == FIRST_EVENTS && number < last {
            let _ = write!(out, "<tr><td></td><td></td><td>{} events are left out</td></tr>", last - number);
        }
        if number < FIRST_EVENTS || number >= last {
            let time = svg::milliseconds(Duration::from_nanos(event.event.time));
            let (host, sentence) = (escaped(&event.host), escaped(&event.sentence()));
            let _ = write!(out, "<tr><td class='n'>{time}</td><td>{host}</td><td>{sentence}</td></tr>");
        }
    }
    *out += "</table>";
}

/// The machine and the versions.
fn environment() -> Vec<(&'static str, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel =
        format!("{} {}", read("/proc/sys/kernel/ostype").trim(), read("/proc/sys/kernel/osrelease").trim());
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    vec![
        ("viordma", env!("CARGO_PKG_VERSION").into()),
        ("kernel", kernel),
        ("processor", format!("{} × {}", processors, model.trim_start_matches([' ', '\t', ':']))),
    ]
}
