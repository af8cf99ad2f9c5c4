// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask miniport`: runs an NDIS miniport driver for virtio-net, as it is, on a simulated Windows host, opposite viordma and
//! itself.

mod cases;
pub mod load;
mod options;
mod station;
pub mod two_hosts;

use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nt_sim::Tolerances;

pub use self::options::Options;
use self::{
    cases::Case,
    options::Peer,
    two_hosts::{Image, Setup, TwoHosts},
};
use crate::{
    consumer::Limit,
    driver_file::DriverFile,
    exit::{Exit, UNUSABLE_INPUT, exit_code},
    missing_imports, process, workspace,
};

/// Real time after its limit in which a case says what does not end, and its hosts are stopped.
const GRACE: Duration = Duration::from_secs(20);

/// Runs the command.
///
/// # Errors
/// With exit code 2, if the image cannot be used; with exit code 1, if a case failed.
pub fn run(options: &Options) -> Result<()> {
    let Some(path) = &options.image else {
        println!("skipped: no image was named; a miniport driver is a file that you bring");
        return Ok(());
    };
    if !path.is_file() {
        return Err(Exit::usage(format!("{} is not a file", path.display())));
    }
    let viordma = workspace::built_image()?;
    if let Some(name) = &options.case {
        return one(options, path, &viordma, name);
    }
    // An image that cannot be loaded is refused once, not by each case.
    let hosts = TwoHosts::new([&named(options, path); 2], &setup(options, Peer::Itself, None)?)?;
    missing_imports::check(hosts.sides[0].driver.image(), options.allow_missing)?;
    drop(hosts);
    // Printed before the first result: options that cannot be used are refused with nothing else.
    let mut file = Some(DriverFile::read(path)?);
    let (mut passed, mut known, mut failed) = (0, 0, Vec::new());
    for (case, peer) in options.selected() {
        let name = format!("{}, {peer}", case.name);
        let result = in_a_process(case, peer, options.limit + GRACE);
        let is_refused = result.as_ref().is_err_and(|error| exit_code(error) == UNUSABLE_INPUT);
        if let Some(file) = file.take_if(|_| !is_refused) {
            println!("{file}");
        }
        match result {
            Ok(text) => {
                println!("ok      {name}: {}. {}", case.about, text.trim_end());
                passed += 1;
            }
            Err(error) if is_refused => return Err(error),
            Err(error) if options.known.iter().any(|known| known == case.name) => {
                known += 1;
                println!("known   {name}: {}. {error:#}", case.about);
            }
            Err(error) => {
                println!("FAILED  {name}: {}. {error:#}", case.about);
                failed.push(name);
            }
        }
    }
    println!("{passed} passed, {} failed, {known} known to fail", failed.len());
    if failed.is_empty() { Ok(()) } else { bail!("{} cases failed: {}", failed.len(), failed.join("; ")) }
}

/// Returns the image of the command line.
fn named(options: &Options, path: &Path) -> Image {
    let service =
        path.file_stem().map_or_else(|| "miniport".into(), |stem| stem.to_string_lossy().into_owned());
    Image { path: path.to_owned(), service, tolerate: options.tolerate }
}

fn setup(options: &Options, peer: Peer, capture: Option<PathBuf>) -> Result<Setup> {
    let (keywords, filters) = (options.keywords(peer)?, options.filters.clone());
    Ok(Setup { seed: options.seed, real_time: options.real_time, verifier: true, capture, keywords, filters })
}

/// Runs a case in a process of its own, which is ended after `limit`. Returns what it printed.
fn in_a_process(case: &Case, peer: Peer, limit: Duration) -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).args(["--case", case.name, "--peer", &peer.to_string()]);
    process::output_within(&mut command, limit)
}

/// Runs one case in this process.
fn one(options: &Options, path: &Path, viordma: &Path, name: &str) -> Result<()> {
    let case = cases::ALL.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| Exit::usage(format!("no case is named {name}")))?;
    let image = named(options, path);
    let other = Image { path: viordma.to_owned(), service: "viordma".into(), tolerate: Tolerances::NONE };
    let is_viordma = options.peers().contains(&Peer::Viordma);
    let (peer, kind) = if is_viordma { (&other, Peer::Viordma) } else { (&image, Peer::Itself) };
    let mut hosts = TwoHosts::new([&image, peer], &setup(options, kind, options.capture.clone())?)?;
    if let Some(sentence) = missing_imports::sentence(hosts.sides[0].driver.image()) {
        println!("{sentence}");
    }
    let limit = Limit::watched(options.limit);
    limit.begin(format!("case {name}"));
    // A host that dies ends the calls of its harness by a panic.
    let outcome =
        panic::catch_unwind(AssertUnwindSafe(|| hosts.start().and_then(|()| (case.run)(&mut hosts))));
    limit.begin("the halt of the adapters");
    let unread = hosts.unread_keywords();
    let stopped = hosts.stop();
    limit.end();
    let text = outcome.unwrap_or_else(|_| Err(anyhow!("the host died")));
    // The violations first: the other errors follow from them.
    stopped?;
    println!("{}", text?);
    match unread {
        Some(sentence) => Err(Exit::usage(sentence)),
        None => Ok(()),
    }
}
