// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of `cargo xtask test`: the table, and the steps that are one check.

use std::env;

use anyhow::Result;

use super::{captures, count::Count, demos, programs};
use crate::{
    emulated, fuzz, guest,
    image::{self, architecture::Architecture},
    lab, licenses, miri,
    package::wine,
    packages::{
        self, ARM64, C_EXAMPLES, CAPTURE, DPDK, FUZZ, GUEST, IMAGE, KERNEL_MODULES, QEMU, QEMU_USER, SAMBA,
        TAP, WINE,
    },
    races, shell, tools, trace, windows, wmi,
    workspace::Workspace,
};

/// A step. Its name is what `--only` selects it by.
pub struct Step {
    pub name: &'static str,
    pub when: When,
    pub run: fn() -> Result<Count>,
}

/// When a step runs. Those of the same kind run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before all others, two at a time: seconds.
    First,
    /// The image and the tests that need it.
    Main,
    /// Beside [`When::Main`]: builds of other kinds, and programs with one thread.
    Beside,
    /// Beside both: programs that wait most of the time.
    Waiting,
    /// After these: what measures real time, and what reads files of the steps before. It has the machine to itself, but for [`When::Idle`].
    Alone,
    /// Beside all these, on the processors that they leave idle: minutes in which no time is measured.
    Idle,
}

/// The steps, in the order of the summary.
pub const STEPS: [Step; 31] = [
    Step { name: "formatting", when: When::First, run: formatting },
    Step { name: "commits", when: When::First, run: commits },
    Step { name: "manifests", when: When::First, run: manifests },
    Step { name: "structure", when: When::First, run: structure },
    Step { name: "words", when: When::First, run: words },
    Step { name: "rules", when: When::First, run: rules },
    Step { name: "list of accepted mutants", when: When::First, run: accepted_mutants },
    Step { name: "lints", when: When::Beside, run: lints },
    Step { name: "documentation", when: When::Beside, run: documentation },
    Step { name: "licenses and dependencies", when: When::Beside, run: licenses },
    Step { name: "Windows target", when: When::Beside, run: windows_target },
    Step { name: "tests for arm64, emulated", when: When::Idle, run: emulated_tests },
    Step { name: "Miri", when: When::Idle, run: in_miri },
    Step { name: "data races", when: When::Beside, run: races },
    Step { name: "fuzz targets", when: When::Beside, run: fuzz_targets },
    Step { name: "guest for interop", when: When::Beside, run: guest_for_interop },
    Step { name: "INF, by a parser of others", when: When::Waiting, run: inf_of_others },
    Step { name: "image", when: When::Main, run: build_image },
    Step { name: "package", when: When::Main, run: package },
    Step { name: "reproducible package", when: When::Main, run: reproducible },
    Step { name: "trace, by a decoder of others", when: When::Main, run: trace_of_others },
    Step { name: "counters in WMI, by a compiler of others", when: When::Main, run: wmi_of_others },
    Step { name: "unit and integration tests", when: When::Main, run: programs::run_most },
    Step { name: "tests in real time", when: When::Alone, run: programs::run_real_time },
    Step { name: "object pages", when: When::Alone, run: objects },
    Step { name: "demo replays", when: When::Alone, run: demos::replay },
    Step { name: "demo under loss", when: When::Alone, run: demos::under_loss },
    Step { name: "captures", when: When::Alone, run: captures::are_sound },
    Step { name: "verbs programs", when: When::Alone, run: verbs_programs },
    Step { name: "miniport driver of others", when: When::Alone, run: miniport_of_others },
    Step { name: "interop with Linux", when: When::Alone, run: interop_in_short },
];

/// Installs what the steps need. One that does without says so itself.
pub fn install() {
    let packages = [
        &IMAGE[..],
        &QEMU,
        &QEMU_USER,
        &TAP,
        &DPDK,
        &CAPTURE,
        &FUZZ,
        &GUEST,
        &KERNEL_MODULES,
        &SAMBA,
        &WINE,
        &C_EXAMPLES,
        &ARM64,
    ];
    for packages in packages {
        if let Err(error) = packages::require(packages) {
            eprintln!("{error:#}");
        }
    }
    let _ = (windows::is_available(), miri::is_available(), races::is_available());
}

fn formatting() -> Result<Count> {
    for workspace in Workspace::ALL {
        shell::run(workspace.cargo().args(["fmt", "--all", "--check"]))?;
    }
    Ok(Count::WHOLE)
}

/// Manifests and lock files of the two workspaces.
fn manifests() -> Result<Count> {
    crate::manifests::check()?;
    Ok(Count::WHOLE)
}

/// Subjects of commits. A shallow clone does not have all that are checked.
fn commits() -> Result<Count> {
    if_available(crate::commits::is_available(), "commits (this clone lacks some of those to check)", || {
        crate::commits::check()?;
        Ok(Count::WHOLE)
    })
}

/// Imports between files and dependencies between crates.
fn structure() -> Result<Count> {
    crate::structure::run(&crate::structure::Options::default())?;
    Ok(Count::WHOLE)
}

/// Words that this project avoids.
fn words() -> Result<Count> {
    crate::words::run(&crate::words::Options::default())?;
    Ok(Count::WHOLE)
}

/// Citations of the rules that the documents in docs/rules restate.
fn rules() -> Result<Count> {
    crate::rules::summary()?;
    Ok(Count::WHOLE)
}

/// The list of accepted mutants names code that exists. `cargo xtask mutants` tests the mutants themselves, which takes hours.
fn accepted_mutants() -> Result<Count> {
    crate::mutants::check()?;
    Ok(Count::WHOLE)
}

/// License headers; licenses, sources and advisories of all dependencies, by cargo-deny.
fn licenses() -> Result<Count> {
    licenses::headers()?;
    let mut count = Count::WHOLE;
    let Ok(program) = tools::CARGO_DENY.installed() else {
        count
            .add(&if_available(false, "dependencies (cargo-deny cannot be installed)", || Ok(Count::WHOLE))?);
        return Ok(count);
    };
    licenses::dependencies(&program)?;
    // Their database comes from the network.
    let is_available = licenses::fetch_advisories(&program);
    count.add(&if_available(is_available, "advisories (cargo-deny cannot fetch their database)", || {
        licenses::advisories(&program)?;
        Ok(Count::WHOLE)
    })?);
    Ok(count)
}

/// Lints of everything that runs on this machine. The step `image` has those of the driver.
fn lints() -> Result<Count> {
    for workspace in Workspace::ALL {
        let mut cargo = workspace.cargo();
        // The profile of the tests, of which macros and build scripts are there already.
        cargo.args(["clippy", "--quiet", "--profile", "tool", "--all-targets"]).args(workspace.but_drivers());
        shell::run(cargo.args(["--", "-D", "warnings"]))?;
    }
    Ok(Count::WHOLE)
}

/// Paths that documents name, their tables and figures; the book; and the API references of all packages but the drivers, which must have no
/// broken link.
fn documentation() -> Result<Count> {
    crate::documents::check()?;
    crate::figures::check()?;
    let mut count = Count::WHOLE;
    let is_available = tools::MDBOOK.installed().is_ok();
    count.add(&if_available(is_available, "the book (mdbook cannot be installed)", || {
        crate::book::build()?;
        Ok(Count::WHOLE)
    })?);
    for workspace in Workspace::ALL {
        let mut cargo = workspace.cargo();
        cargo.args(["doc", "--quiet", "--profile", "tool", "--no-deps"]).args(workspace.but_drivers());
        shell::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(count)
}

/// Everything but the driver compiles for Windows. The step `image` compiles the driver.
fn windows_target() -> Result<Count> {
    if_available(windows::is_available(), "the target for Windows (rustup cannot install it)", || {
        windows::check()?;
        Ok(Count::WHOLE)
    })
}

/// Tests of portable crates for arm64, on the processor that QEMU emulates.
fn emulated_tests() -> Result<Count> {
    let what = "tests for arm64, emulated (the target, a linker or QEMU cannot be had)";
    if_available(emulated::is_available(), what, || programs::run_by_cargo(&mut emulated::command()?))
}

/// Tests of portable crates in Miri. Without a nightly toolchain, this step is skipped. The step of unit tests checks that the filters select
/// some.
fn in_miri() -> Result<Count> {
    if_available(miri::is_available(), "Miri (no nightly toolchain with it can be installed)", || {
        let mut count = Count::default();
        for mut command in miri::commands(false) {
            count.add(&programs::run_by_cargo(&mut command)?);
        }
        Ok(count)
    })
}

/// Tests with threads under ThreadSanitizer. Without a nightly toolchain, this step is skipped.
fn races() -> Result<Count> {
    let what = "data races (no nightly toolchain with sources can be installed)";
    if_available(races::is_available(), what, || programs::run_by_cargo(&mut races::command()?))
}

/// Runs fuzz targets for a short time with libFuzzer. The tests run them over their seeds and over generated inputs.
fn fuzz_targets() -> Result<Count> {
    Ok(Count::passed(fuzz::short(4.0)?))
}

/// The Linux guests of the step `interop with Linux`, which then does not wait for downloads and kernel modules with the machine to itself.
/// That step skips what needs a guest that cannot be made.
fn guest_for_interop() -> Result<Count> {
    guest::make()?;
    if let Err(error) = guest::smb::make() {
        println!("no guest with SMB Direct: {error:#}");
    }
    Ok(Count::WHOLE)
}

/// The images that tests load, after the lints of the drivers as they are compiled for Windows.
fn build_image() -> Result<Count> {
    image::lint()?;
    // `cargo xtask image --arch arm64 --strict --check` is a command of its own: that image has no code that these three lack.
    let images = [
        (Architecture::X64, "viordma"),
        (Architecture::X64, image::STRICT),
        (Architecture::Arm64, "viordma"),
    ]
    .map(|(architecture, name)| image::build_for(architecture, name));
    // A driver that misbehaves on purpose, for the tests of the verifier; the NDK consumer that the tests of consumers run;
    // client and server of SMB Direct. Later steps need them also if a check of an image fails.
    for package in ["test-driver", "example-consumer", "smb-driver"] {
        image::build(package)?;
    }
    for image in images {
        image::check(&image?)?;
    }
    Ok(Count::WHOLE)
}

/// The packages of the images: INF rules, catalogs, test signatures, and that changed files are noticed.
fn package() -> Result<Count> {
    let passed = crate::package::check()?;
    Ok(Count::passed(passed))
}

/// The INF, installed by Wine.
fn inf_of_others() -> Result<Count> {
    if_available(wine::is_available(), "INF, by a parser of others (Debian's Wine cannot be had)", || {
        println!("{} values of the registry as the tables have them", wine::check()?);
        Ok(Count::WHOLE)
    })
}

/// The package for x64, once more from a copy of the sources in another folder.
fn reproducible() -> Result<Count> {
    crate::package::reproduce::check()?;
    Ok(Count::WHOLE)
}

/// The metadata of the driver's events, as another project's decoder takes them out of the image.
fn trace_of_others() -> Result<Count> {
    if_available(
        trace::is_available(),
        "trace, by a decoder of others (pip cannot install etl-parser)",
        || Ok(Count::passed(trace::check()?)),
    )
}

/// The class of the counters, as another project's compiler reads it.
fn wmi_of_others() -> Result<Count> {
    if_available(
        wmi::is_available(),
        "counters in WMI, by a compiler of others (pip cannot install pywbem)",
        || Ok(Count::passed(wmi::check()?)),
    )
}

/// The pages of NDK objects, with what the tests of the steps before recorded.
fn objects() -> Result<Count> {
    crate::objects::run()?;
    Ok(Count::WHOLE)
}

/// The libraries for Linux: their symbols, the layout of structures, and the most important programs of Debian that use them.
#[cfg(unix)]
fn verbs_programs() -> Result<Count> {
    let Some(crate::verbs::Counts { passed, failed, skipped }) = crate::verbs::check()? else {
        println!("skipped: {NO_VERBS_PROGRAMS}");
        return Ok(Count { passed: 1, ..Count::SKIPPED });
    };
    Ok(Count { passed: passed + 1, failed, skipped, ..Count::default() })
}

#[cfg(not(unix))]
fn verbs_programs() -> Result<Count> {
    if_available(false, NO_VERBS_PROGRAMS, || Ok(Count::WHOLE))
}

const NO_VERBS_PROGRAMS: &str = "verbs programs (Debian's packages cannot be had)";

/// Environment variable with the path of a miniport driver of others, NetKVM's `netkvm.sys`. It is no part of the project.
const MINIPORT: &str = "VIORDMA_MINIPORT";

/// `cargo xtask miniport` with the driver that is named. Without one, this step is skipped. The failures that docs/miniport.md explains
/// are known.
fn miniport_of_others() -> Result<Count> {
    let Some(image) = env::var_os(MINIPORT) else {
        println!("skipped: miniport driver of others ({MINIPORT} names no file)");
        return Ok(Count::SKIPPED);
    };
    let mut command = lab::command("miniport", &["--known", "cancel,removal"])?;
    programs::count_lines(command.arg(image), is_summary)
}

/// The most important cases of `cargo xtask interop`, live.
fn interop_in_short() -> Result<Count> {
    programs::count_lines(&mut lab::command("interop", &["--short"])?, is_summary)
}

/// Runs a check, or counts it as skipped where its tools are not available.
fn if_available(is_available: bool, what: &str, check: impl FnOnce() -> Result<Count>) -> Result<Count> {
    if is_available {
        return check();
    }
    println!("skipped: {what}");
    Ok(Count::SKIPPED)
}

/// Returns true for a line such as "27 passed, 0 failed" or "27 passed (1 at the second attempt), 0 failed".
fn is_summary(line: &str) -> bool {
    let first = line.trim_start().chars().next();
    let counts = (line.contains(" passed, ") || line.contains(" passed (")) && line.contains(" failed");
    counts && first.is_some_and(|first| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_commands_are_counted_with_their_remarks() {
        let repeated = "27 passed (1 at the second attempt), 3 failed, 2 skipped";
        assert!(is_summary(repeated) && is_summary("27 passed, 0 failed"));
        assert!(!is_summary("27 passed") && !is_summary("all 27 passed, 0 failed"));
        let mut count = Count::default();
        count.add_line(repeated);
        assert_eq!((count.passed, count.failed, count.skipped), (27, 3, 2));
    }

    #[test]
    fn check_that_cannot_run_is_skipped() {
        assert_eq!(if_available(false, "Miri", || panic!("it is not run")).unwrap(), Count::SKIPPED);
        assert_eq!(if_available(true, "", || Ok(Count::WHOLE)).unwrap(), Count::WHOLE);
    }
}
