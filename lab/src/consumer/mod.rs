// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask consumer`: runs NDK consumer drivers on hosts with viordma, by scripts, and reports what happened.

mod assignment;
mod bed;
mod keyword;
mod limit;
mod options;
mod outcome;
mod play;
mod report;
pub mod script;

use std::sync::Arc;

use anyhow::Result;
use device_sim::link::Faults;

pub use self::assignment::Assignment;
pub use self::bed::{Bed, Setup};
pub use self::keyword::KeywordOption;
pub use self::limit::Limit;
pub use self::options::{Image, Options};
pub use self::outcome::Line;
pub use self::report::{Plan, Report};
pub use self::script::Script;
use crate::{files::Output, testbed::WireFigures, workspace};

/// Runs the command.
///
/// # Errors
/// With exit code 2, if an option, an image or a script cannot be used; with exit code 1, if a script did not do what it
/// says, or the verifier found a violation.
pub fn run(options: &Options) -> Result<()> {
    let images = options.images()?;
    let scripts = options.scripts(&images)?.into_iter().map(Arc::new).collect();
    let keywords = options.keywords()?;
    options.check_outputs(&workspace::image_path())?;
    let capture = options.capture.as_deref().map(Output::open).transpose()?;
    let viordma = if options.needs_strict_image()? {
        workspace::built_images()?.strict
    } else {
        workspace::built_image()?
    };
    let setup = Setup {
        one_host: options.one_host,
        seed: options.seed_or_random(),
        real_time: options.real_time,
        faults: Faults {
            loss: options.loss.0,
            reordering: options.reorder.0,
            duplication: options.duplicate.0,
            corruption: options.corrupt.0,
            ..Faults::NONE
        },
        path_mtu: options.path_mtu(),
        capture: capture.as_ref().map(|capture| capture.path().to_owned()),
        keywords,
        interfaces: options.interfaces(),
        filters: options.filters.clone(),
        limit: Limit::watched(options.limit),
    };
    let plan = Plan { images, scripts, setup, cut: options.cut };
    let report = play(&viordma, &plan)?;
    plan.setup.limit.end();
    if let Some(capture) = capture {
        capture.keep();
    }
    print!("{}", report::text(&plan, &report, options.stacks));
    report::verdict(&plan, &report)
}

/// Runs scripts on hosts with viordma and consumer drivers.
///
/// # Errors
/// With exit code 2, if an image cannot be loaded. What goes wrong later is in the report.
pub fn play(viordma: &std::path::Path, plan: &Plan) -> Result<Report> {
    let mut bed = Bed::new(viordma, &plan.images, &plan.setup)?;
    let missing = bed.missing_imports();
    let mut lines = Vec::new();
    let mut trouble = bed.start().err();
    if trouble.is_none() {
        for script in &plan.scripts {
            plan.setup.limit.begin(format!("the script {}", script.name));
            lines.push(play::play(&bed, script, plan.cut));
        }
    }
    let counters = bed.counters();
    trouble = trouble.or(bed.stop().err());
    let verdict = bed.sim().verdict();
    Ok(Report {
        lines,
        trouble: trouble.map(|error| format!("{error:#}")),
        violations: verdict.violations.iter().map(ToString::to_string).collect(),
        tolerated: verdict.tolerated.iter().map(ToString::to_string).collect(),
        wire: WireFigures::of(bed.wire()),
        counters,
        missing,
    })
}
