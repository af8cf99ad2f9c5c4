// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK consumer drivers beside viordma, by scripts: the project's example, and Microsoft's where they are given.
//!
//! `VIORDMA_CONSUMERS` names a directory with `NDKPing.sys` and `NDKPerf.sys`, which are in every Windows Server. Without
//! them, their tests say that they are skipped.

use std::{path::PathBuf, sync::Arc};

use device_sim::link::Faults;
use lab::consumer::{Image, Limit, Line, Plan, Report, Script, Setup, play};

/// A run that a test describes by what differs from two hosts, virtual time and no faults.
pub fn setup(seed: u64) -> Setup {
    Setup {
        one_host: false,
        seed,
        real_time: false,
        faults: Faults::NONE,
        path_mtu: 4096,
        capture: None,
        keywords: Vec::new(),
        interfaces: Vec::new(),
        filters: lab::filter_image::FilterOptions::default(),
        limit: Limit::default(),
    }
}

pub fn lossy(setup: Setup) -> Setup {
    Setup { faults: Faults { loss: 0.02, ..Faults::NONE }, ..setup }
}

pub fn script(name: &str, variables: &[(&str, &str)]) -> Arc<Script> {
    let mut script =
        Script::read(&lab::root().join("lab/scripts").join(name)).expect("a script of the project");
    let values: Vec<_> = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    script.set(&values).expect("values of its variables");
    Arc::new(script)
}

pub fn image(path: PathBuf, tolerate: &str) -> Image {
    let service = path.file_stem().expect("a file name").to_string_lossy().into_owned();
    Image { path, service, tolerate: tolerate.parse().expect("names of faults"), allow_missing: false }
}

pub fn example() -> Option<Image> {
    lab::example_consumer().map(|path| image(path, ""))
}

/// Runs a script; the verifier must find nothing, and all drivers start and unload.
pub fn run(plan: &Plan) -> Option<Report> {
    let report = play(&lab::image()?, plan).expect("the images can be loaded");
    let setup = &plan.setup;
    assert!(report.violations.is_empty(), "{setup:?}\n{}", report.violations.join("\n"));
    assert_eq!(report.trouble, None, "{setup:?}");
    Some(report)
}

/// Runs a script, all of whose steps do what it says.
pub fn succeeds(image: Image, script: Arc<Script>, setup: Setup) -> Option<Report> {
    let plan = Plan { images: vec![image], scripts: vec![script], setup, cut: None };
    let report = run(&plan)?;
    let failures: Vec<&Line> = report.failures().collect();
    assert!(failures.is_empty(), "{:?}\n{failures:#?}", plan.setup);
    Some(report)
}
