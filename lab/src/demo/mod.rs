// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask demo`: copies a file from one simulated host to another and back, over RDMA, and reports what happened.

mod explain;
mod options;
mod summary;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};

pub use self::options::Options;
use crate::{
    copy::{self, End, Faults, Outcome, Phase, Plan, Progress, Protocol, Source},
    device::DeviceName,
    exit::{self, Exit},
    files::Output,
    report, trace, workspace,
};

/// Runs the demo.
///
/// # Errors
/// If an option or file cannot be used, the demo cannot run, or the copy does not complete.
pub fn run(options: &Options) -> Result<()> {
    options.check(&workspace::image_path())?;
    let open = |path: &Option<_>| path.as_deref().map(Output::open).transpose();
    let (json, report, capture) = (open(&options.json)?, open(&options.report)?, open(&options.pcap)?);
    let events = open(&options.events)?;
    // The report is made of a capture, which is removed again unless it was asked for.
    let hidden = match (&report, &capture) {
        (Some(_), None) => Some(Output::open(&hidden_capture()?)?),
        _ => None,
    };
    let image = workspace::built_image()?;
    if options.device == DeviceName::Qemu {
        workspace::provide(&["qemu"])?;
    }
    let plan = plan(options, capture.as_ref().or(hidden.as_ref()));
    let bars = Bars::new();
    let shown = bars.clone();
    let progress: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |progress| shown.show(progress));
    let outcome = copy::run(&image, &plan, &progress);
    bars.bar.finish_and_clear();
    let mut outcome = outcome?;
    if let (Some(report), Some(frames)) = (report, &outcome.capture) {
        let context =
            report::Context { settings: settings(&outcome, options), notes: explain::notes(&outcome) };
        report.write(report::page(&outcome, frames, &context)?.as_bytes())?;
    }
    if hidden.is_some() {
        outcome.capture = None;
    }
    if let Some(capture) = capture {
        capture.keep();
    }
    print!("{}", summary::table(&outcome, options));
    if let Some(json) = json {
        let text = serde_json::to_string_pretty(&summary::json(&outcome, options))? + "\n";
        json.write(text.as_bytes())?;
    }
    if let Some(events) = events {
        let text = trace::text(&outcome.trace, events.path());
        events.write(text.as_bytes())?;
    }
    verdict(&outcome)
}

/// Returns a path for a capture that the command line does not name.
fn hidden_capture() -> Result<PathBuf> {
    let directory = workspace::root().join("target");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join(format!("report-{}.pcapng", std::process::id())))
}

/// Returns the settings of a run that the report shows.
fn settings(outcome: &Outcome, options: &Options) -> Vec<(&'static str, String)> {
    let percent = |share: f64| format!("{} %", share * 100.0);
    vec![
        ("protocol", if options.smb { "SMB Direct".into() } else { "RDMA".into() }),
        ("clock", if outcome.is_virtual { "virtual time".into() } else { "real time".into() }),
        ("seed", outcome.seed.to_string()),
        ("loss", percent(options.loss.0)),
        ("reordering", percent(options.reorder.0)),
        ("path MTU", format!("{} B", options.path_mtu())),
        ("command line", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
    ]
}

fn plan(options: &Options, capture: Option<&Output>) -> Plan {
    Plan {
        source: match &options.file {
            Some(file) => Source::File(file.clone()),
            None => Source::Generated { bytes: options.generated_bytes() },
        },
        protocol: if options.smb {
            Protocol::SmbDirect(smb_consumer::Options::default())
        } else {
            Protocol::Rdma
        },
        faults: Faults { loss: options.loss.0, reordering: options.reorder.0, ..Faults::NONE },
        seed: options.seed_or_random(),
        real_time: options.is_real_time(),
        path_mtu: options.path_mtu(),
        capture: capture.map(|capture| capture.path().to_owned()),
        kill_peer_at: options.kill_peer_at.map(|share| share.0),
        verifier: true,
        trace: options.events.is_some() || options.report.is_some(),
        keywords: Vec::new(),
        device: options.device.kind(),
        fail_allocation: None,
    }
}

/// Fails unless everything was copied unchanged and the verifier found nothing.
fn verdict(outcome: &Outcome) -> Result<()> {
    let failed = |message: String| Err(Exit { code: exit::INCOMPLETE, message }.into());
    match &outcome.end {
        End::PeerLost { noticed_after, .. } => failed(format!(
            "the peer was disconnected; both consumers were notified within {:.2} s",
            noticed_after.as_secs_f64()
        )),
        End::Failed(reason) => failed(format!("the copy failed: {reason}")),
        End::Complete if !outcome.hashes_match() => failed("the hashes differ".into()),
        End::Complete if !outcome.violations.is_empty() => failed("the verifier found violations".into()),
        End::Complete => Ok(()),
    }
}

/// One progress bar for both directions; hidden when standard error is not a terminal.
struct Bars {
    bar: ProgressBar,
    done: [AtomicU64; 2],
}

impl Bars {
    fn new() -> Arc<Self> {
        let bar = ProgressBar::no_length();
        let style =
            "  {msg:<22} {bar:40.cyan/blue} {bytes:>11} / {total_bytes:<11} {binary_bytes_per_sec:>12}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Arc::new(Self { bar, done: Default::default() })
    }

    fn show(&self, progress: Progress) {
        self.done[progress.phase as usize].store(progress.done, Relaxed);
        self.bar.set_message(match progress.phase {
            Phase::Write => "writing to the peer",
            Phase::Read => "reading back",
        });
        self.bar.set_length(progress.total * 2);
        self.bar.set_position(self.done.iter().map(|done| done.load(Relaxed)).sum());
    }
}
