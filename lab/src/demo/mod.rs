//! `cargo xtask demo`: a file goes from one host to another and back, over RDMA, and a person watches.

mod options;
mod summary;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};

pub use self::options::Options;
use crate::{
    copy::{self, End, Faults, Outcome, Phase, Plan, Progress, Source},
    exit::{self, Exit},
    workspace,
};

pub fn run(options: &Options) -> Result<()> {
    options.check()?;
    let image = workspace::built_image()?;
    let plan = plan(options)?;
    let bars = Bars::new();
    let shown = bars.clone();
    let progress: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |progress| shown.show(progress));
    let outcome = copy::run(&image, &plan, &progress);
    bars.bar.finish_and_clear();
    let outcome = outcome?;
    print!("{}", summary::table(&outcome, options));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&summary::json(&outcome, options))? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    verdict(&outcome)
}

fn plan(options: &Options) -> Result<Plan> {
    let capture = if let Some(path) = &options.pcap {
        std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?
    } else {
        let directory = workspace::root().join("target");
        fs::create_dir_all(&directory)?;
        directory.join("demo.pcapng")
    };
    // A dead peer is noticed by timeouts; in virtual time nobody waits for them.
    let seed = options.seed.or(options.kill_peer_at.map(|_| 0));
    Ok(Plan {
        source: match &options.file {
            Some(file) => Source::File(file.clone()),
            None => Source::Made { bytes: options.made_bytes() },
        },
        faults: Faults { loss: options.loss.0, reordering: options.reorder.0, ..Faults::NONE },
        seed,
        path_mtu: options.path_mtu(),
        capture: Some(capture),
        kill_peer_at: options.kill_peer_at.map(|share| share.0),
        verifier: true,
        keywords: Vec::new(),
    })
}

/// Success only if everything was copied, unchanged, and the verifier has nothing to say.
fn verdict(outcome: &Outcome) -> Result<()> {
    let failed = |message: String| Err(Exit { code: exit::INCOMPLETE, message }.into());
    match &outcome.end {
        End::PeerLost { noticed_after } => failed(format!(
            "the peer was lost; both consumers knew after {:.2} s",
            noticed_after.as_secs_f64()
        )),
        End::Failed(reason) => failed(format!("the copy failed: {reason}")),
        End::Complete if !outcome.hashes_match() => failed("the hashes differ".into()),
        End::Complete if !outcome.violations.is_empty() => failed("the verifier found violations".into()),
        End::Complete => Ok(()),
    }
}

/// One progress bar for both directions, hidden where nobody watches.
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
            Phase::Write => "RDMA Write to the peer",
            Phase::Read => "RDMA Read back",
        });
        self.bar.set_length(progress.total * 2);
        self.bar.set_position(self.done.iter().map(|done| done.load(Relaxed)).sum());
    }
}
