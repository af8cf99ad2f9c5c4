// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask test`: all checks that a change has to pass, the quickest first.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{drivers, fuzz, image, lab, miri, packages, races, shell, windows};

#[derive(clap::Args)]
pub struct Options {
    /// Run only the steps whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Tests of a step; a step without a test runner counts as one.
#[derive(Clone, Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Test programs of which tests were skipped.
    programs: BTreeSet<String>,
}

impl Count {
    /// Of a check that this machine cannot run.
    const SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1, programs: BTreeSet::new() };

    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.programs.extend(other.programs.iter().cloned());
    }

    /// Counts tests that have passed because they cannot run here as skipped, and prints them: lines of program, test and reason.
    fn skip(&mut self, lines: &str) {
        for line in lines.lines().collect::<BTreeSet<_>>() {
            println!("skipped: {line}");
            self.passed = self.passed.saturating_sub(1);
            self.skipped += 1;
            self.programs.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }

    const fn mark(&self) -> &'static str {
        match self {
            Self { failed: 1.., .. } => "FAIL",
            Self { passed: 0, skipped: 1.., .. } => "skip",
            _ => "ok  ",
        }
    }
}

/// The sums over all steps, and the names of those of which something was skipped.
fn sums(counts: &[(&str, Count)]) -> String {
    let mut total = Count::default();
    for (_, count) in counts {
        total.add(count);
    }
    let mut text = format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    let name = |(name, count): &(&str, Count)| {
        let programs: Vec<&str> = count.programs.iter().map(String::as_str).collect();
        if programs.is_empty() { (*name).to_owned() } else { format!("{name} ({})", programs.join(", ")) }
    };
    let names: Vec<String> = counts.iter().filter(|(_, count)| count.skipped > 0).map(name).collect();
    if !names.is_empty() {
        text = format!("{text}: {}", names.join(", "));
    }
    text
}

struct Step {
    name: &'static str,
    run: fn() -> Result<Count>,
}

const STEPS: [Step; 20] = [
    Step { name: "formatting", run: formatting },
    Step { name: "structure", run: structure },
    Step { name: "words", run: words },
    Step { name: "rules", run: rules },
    Step { name: "mutants", run: mutants },
    Step { name: "lints", run: lints },
    Step { name: "documentation", run: documentation },
    Step { name: "licenses and dependencies", run: licenses },
    Step { name: "Windows target", run: windows_target },
    Step { name: "image", run: build_image },
    Step { name: "unit and integration tests", run: cargo_test },
    Step { name: "object pages", run: objects },
    Step { name: "Miri", run: in_miri },
    Step { name: "data races", run: races },
    Step { name: "fuzz targets", run: fuzz_targets },
    Step { name: "demo replays", run: demo_replays },
    Step { name: "demo under loss", run: demo_under_loss },
    Step { name: "captures", run: captures_are_sound },
    Step { name: "miniport driver of others", run: miniport_of_others },
    Step { name: "interop with Linux", run: interop_in_short },
];

pub fn run(options: &Options) -> Result<()> {
    let steps = selected(options.only.as_deref())?;
    let begin = Instant::now();
    let mut counts = Vec::new();
    let mut lines = Vec::new();
    for step in steps {
        println!("\n== {}", step.name);
        let start = Instant::now();
        let (count, remark) = match (step.run)() {
            Ok(count) => (count, String::new()),
            Err(error) => (Count { failed: 1, ..Count::default() }, format!(": {error:#}")),
        };
        let mark = count.mark();
        let took = start.elapsed();
        lines.push(format!(
            "{mark} {:<28} {:>4} passed {:>6}{}{remark}",
            step.name,
            count.passed,
            seconds(took),
            if count.skipped == 0 { String::new() } else { format!(", {} skipped", count.skipped) }
        ));
        println!("{}", lines.last().map_or("", String::as_str));
        counts.push((step.name, count));
    }
    println!("\nsummary ({})", seconds(begin.elapsed()));
    for line in &lines {
        println!("  {line}");
    }
    println!("\n{}", sums(&counts));
    if counts.iter().any(|(_, count)| count.failed > 0) {
        bail!("{} of the steps above failed", lines.iter().filter(|line| line.starts_with("FAIL")).count());
    }
    Ok(())
}

/// The steps whose name contains `text`.
fn selected(text: Option<&str>) -> Result<Vec<&'static Step>> {
    let steps: Vec<&Step> =
        STEPS.iter().filter(|step| text.is_none_or(|text| step.name.contains(text))).collect();
    if steps.is_empty() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(shell::Exit::usage(format!(
            "no step's name contains {:?}; the steps are: {}",
            text.unwrap_or_default(),
            names.join(", ")
        )));
    }
    Ok(steps)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The count of a step that passes or fails as a whole.
const WHOLE: Result<Count> = Ok(Count { passed: 1, failed: 0, skipped: 0, programs: BTreeSet::new() });

fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(shell::root());
    cargo
}

fn formatting() -> Result<Count> {
    shell::run(cargo().args(["fmt", "--all", "--check"]))?;
    WHOLE
}

/// Imports between files and dependencies between crates.
fn structure() -> Result<Count> {
    crate::structure::run(&crate::structure::Options::default())?;
    WHOLE
}

/// Words that this project avoids.
fn words() -> Result<Count> {
    crate::words::run(&crate::words::Options::default())?;
    WHOLE
}

/// The pages of NDK objects, with what the tests of the step before recorded.
fn objects() -> Result<Count> {
    crate::objects::run()?;
    WHOLE
}

/// Citations of the rules that the documents in docs/rules restate.
fn rules() -> Result<Count> {
    crate::rules::summary()?;
    WHOLE
}

/// The list of accepted mutants names code that exists. The mutants themselves take too long.
fn mutants() -> Result<Count> {
    crate::mutants::check()?;
    WHOLE
}

/// Lints of everything that runs on this machine, and of the driver as it is compiled for Windows.
fn lints() -> Result<Count> {
    shell::run(
        cargo()
            .args(["clippy", "--quiet", "--all-targets"])
            .args(drivers::all_others())
            .args(["--", "-D", "warnings"]),
    )?;
    image::lint()?;
    WHOLE
}

/// Paths that documents name, and the API references of all packages but the drivers, which must have no broken link.
fn documentation() -> Result<Count> {
    crate::documents::check()?;
    let mut cargo = cargo();
    cargo.args(["doc", "--quiet", "--no-deps"]).args(drivers::all_others());
    shell::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))?;
    WHOLE
}

/// License headers; licenses and sources of all dependencies, by cargo-deny if it is installed, by the manifests
/// otherwise.
fn licenses() -> Result<Count> {
    crate::licenses::headers()?;
    if shell::succeeds(cargo().args(["deny", "--version"])) {
        shell::run(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
        let mut count = WHOLE?;
        count.add(&advisories()?);
        return Ok(count);
    }
    crate::licenses::check()?;
    WHOLE
}

/// Advisories about dependencies. Their database comes from the network: without it, this check is skipped.
fn advisories() -> Result<Count> {
    let is_available = shell::succeeds(cargo().args(["deny", "fetch", "db"]));
    if_available(is_available, "advisories (cargo deny cannot fetch their database)", || {
        shell::run(cargo().args(["deny", "check", "--disable-fetch", "advisories"]))?;
        WHOLE
    })
}

/// Runs a check, or counts it as skipped where its tools are not available.
fn if_available(is_available: bool, what: &str, check: impl FnOnce() -> Result<Count>) -> Result<Count> {
    if is_available {
        return check();
    }
    println!("skipped: {what}");
    Ok(Count::SKIPPED)
}

/// Everything but the driver compiles for Windows. The lints and the image compile the driver.
fn windows_target() -> Result<Count> {
    if_available(windows::is_available(), "the target for Windows (rustup cannot install it)", || {
        windows::check()?;
        WHOLE
    })
}

fn build_image() -> Result<Count> {
    let image = image::build("viordma")?;
    image::check(&image)?;
    // A driver that misbehaves on purpose, for the tests of the verifier.
    image::build("test-driver")?;
    // The NDK consumer that the tests of consumers run.
    image::build("example-consumer")?;
    // Client and server of SMB Direct.
    image::build("smb-driver")?;
    WHOLE
}

fn cargo_test() -> Result<Count> {
    packages::require(&packages::QEMU)?;
    packages::require(&packages::TAP)?;
    packages::require(&packages::DPDK)?;
    let mut command = cargo();
    // Optimized: the simulated kernel and the transport move real amounts of data.
    command.args(["test", "--profile", "tool", "--no-fail-fast"]).args(drivers::all_others());
    // Tests that need an image or QEMU fail without it instead of saying that they were skipped.
    command.env("NTSIM_REQUIRE_IMAGES", "1");
    // Other tests cannot run on every machine: they pass, and add themselves to this file.
    let skipped = capture_directory()?.join("skipped");
    fs::write(&skipped, "").with_context(|| format!("cannot write {}", skipped.display()))?;
    let mut count = run_tests(command.env(SKIPPED_TESTS, &skipped))?;
    count.skip(&fs::read_to_string(&skipped)?);
    Ok(count)
}

/// Environment variable with the file of skipped tests (`lab/src/workspace.rs`).
const SKIPPED_TESTS: &str = "NTSIM_SKIPPED_TESTS";

/// Runs tests by cargo, and counts them.
fn run_tests(command: &mut Command) -> Result<Count> {
    count_lines(command, |line| line.starts_with("test result: "))
}

/// Runs tests, shows what they print, and adds up the lines that are a result.
fn count_lines(command: &mut Command, is_result: impl Fn(&str) -> bool) -> Result<Count> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run the tests")?;
    let mut count = Count::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        if is_result(&line) {
            count.passed += number_before(&line, " passed");
            count.failed += number_before(&line, " failed");
            count.skipped += number_before(&line, " skipped");
        }
    }
    let status = child.wait()?;
    if !status.success() && count.failed == 0 {
        count.failed = 1;
    }
    ensure!(count.passed > 0, "no test ran");
    Ok(count)
}

/// Returns the number before `what` in a line such as "ok. 8 passed; 0 failed;".
fn number_before(line: &str, what: &str) -> usize {
    let before = line.split_once(what).map_or("", |(before, _)| before);
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Tests of portable crates in Miri. Without a nightly toolchain, this step is skipped.
fn in_miri() -> Result<Count> {
    if_available(miri::is_available(), "Miri (no nightly toolchain with it can be installed)", || {
        let mut count = Count::default();
        for mut command in miri::commands() {
            count.add(&run_tests(&mut command)?);
        }
        Ok(count)
    })
}

/// Tests with threads under ThreadSanitizer. Without a nightly toolchain, this step is skipped.
fn races() -> Result<Count> {
    if_available(
        races::is_available(),
        "data races (no nightly toolchain with sources can be installed)",
        || run_tests(&mut races::command()),
    )
}

/// Runs fuzz targets over their seeds and over generated inputs, then for a short time with libFuzzer.
fn fuzz_targets() -> Result<Count> {
    let package = ["--package", "roce-fuzz", "--no-default-features"];
    shell::run(
        cargo().args(["clippy", "--quiet", "--all-targets"]).args(package).args(["--", "-D", "warnings"]),
    )?;
    let mut count = run_tests(cargo().args(["test", "--profile", "tool"]).args(package))?;
    count.passed += fuzz::short(12.0)?;
    Ok(count)
}

/// The directory of captures and reports that tests leave.
fn capture_directory() -> Result<PathBuf> {
    let directory = shell::root().join("target/test");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// The demo, as a user runs it, with its capture and its report in the target directory.
fn demo(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let capture = capture_directory()?.join(name).with_extension("pcapng");
    let mut command = lab::command("demo", arguments)?;
    command.arg("--pcap").arg(&capture);
    command.arg("--json").arg(capture.with_extension("json"));
    shell::run(&mut command)?;
    Ok(capture)
}

fn same(a: &Path, b: &Path) -> Result<()> {
    let (left, right) = (fs::read(a)?, fs::read(b)?);
    let differs = left.iter().zip(&right).position(|(x, y)| x != y);
    match differs {
        Some(at) => bail!("{} and {} differ at byte {at}", a.display(), b.display()),
        None => ensure!(left.len() == right.len(), "{} and {} differ in length", a.display(), b.display()),
    }
    Ok(())
}

fn demo_replays() -> Result<Count> {
    let first = demo("seed-7-first", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    let second = demo("seed-7-second", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    same(&first, &second)?;
    let other = demo("seed-8", &["--quick", "--seed", "8", "--loss", "0.5%"])?;
    ensure!(same(&first, &other).is_err(), "another seed gave the same capture");
    WHOLE
}

fn demo_under_loss() -> Result<Count> {
    demo("loss", &["--quick", "--loss", "5%"])?;
    WHOLE
}

/// Packets that every transfer contains, as tshark names them: connection management by attribute, RC transport by
/// opcode.
const EXPECTED: [&str; 9] = [
    "ConnectRequest",
    "ConnectReply",
    "ReadyToUse",
    "DisconnectRequest",
    "DisconnectReply",
    "RC Send Only",
    "RC RDMA Write",
    "RC RDMA Read Request",
    "RC Acknowledge",
];

/// Checks every capture of the previous steps, by a dissector and an ICRC computation that share no code with
/// the engine.
fn captures_are_sound() -> Result<Count> {
    packages::require(&packages::CAPTURE)?;
    let quick = demo("quick", &["--quick", "--seed", "1"])?;
    let mut count = Count::default();
    for capture in captures_of_this_run()? {
        let report = shell::output(lab::command("decode", &["--quiet", "--tshark"])?.arg(&capture))?;
        println!("  {}\n{report}", capture.display());
        if capture == quick {
            let missing: Vec<&str> = EXPECTED.into_iter().filter(|name| !report.contains(name)).collect();
            ensure!(missing.is_empty(), "tshark names no {} in {}", missing.join(", "), capture.display());
        }
        count.passed += 1;
    }
    Ok(count)
}

/// Returns all captures in the tests' directory.
fn captures_of_this_run() -> Result<Vec<PathBuf>> {
    let directory = capture_directory()?;
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut captures = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pcapng" || extension == "pcap") {
            captures.push(path);
        }
    }
    captures.sort();
    Ok(captures)
}

/// The most important cases of `cargo xtask interop`, live.
fn interop_in_short() -> Result<Count> {
    count_lines(&mut lab::command("interop", &["--short"])?, is_summary)
}

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
    count_lines(command.arg(image), is_summary)
}

/// Returns true for a line such as "27 passed, 0 failed".
fn is_summary(line: &str) -> bool {
    let first = line.trim_start().chars().next();
    line.contains(" passed, ") && first.is_some_and(|first| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_step_contains_is_refused_with_the_names_of_the_steps() {
        assert_eq!(selected(Some("lint")).unwrap().len(), 1);
        assert_eq!(selected(None).unwrap().len(), STEPS.len());
        let error = selected(Some("typo")).err().unwrap();
        assert!(error.to_string().contains("formatting, structure"));
        assert_eq!(shell::exit_code(&error), 2);
    }

    #[test]
    fn check_that_cannot_run_is_counted_as_skipped_under_the_name_of_its_step() {
        let skipped = if_available(false, "Miri", || panic!("it is not run")).unwrap();
        assert_eq!(skipped.mark(), "skip");
        let ran = if_available(true, "", || WHOLE).unwrap();
        assert_eq!(
            (ran.mark(), sums(&[("lints", ran.clone())]).as_str()),
            ("ok  ", "1 passed, 0 failed, 0 skipped")
        );
        let mut both = ran.clone();
        both.add(&skipped);
        assert_eq!(both.mark(), "ok  ");
        let failed = Count { failed: 1, ..both.clone() };
        assert_eq!(failed.mark(), "FAIL");
        let counts = [("lints", ran), ("Miri", skipped), ("licenses", both)];
        assert_eq!(sums(&counts), "2 passed, 0 failed, 2 skipped: Miri, licenses");
    }

    #[test]
    fn tests_that_cannot_run_here_are_counted_as_skipped_under_the_name_of_their_program() {
        let mut count = Count { passed: 10, ..Count::default() };
        count.skip("qemu_tap one: no tap\nqemu_tap two: no tap\nqemu_tap one: no tap\n");
        assert_eq!((count.passed, count.skipped, count.mark()), (8, 2, "ok  "));
        assert_eq!(sums(&[("tests", count)]), "8 passed, 0 failed, 2 skipped: tests (qemu_tap)");
    }

    #[test]
    fn counts_are_read_from_the_lines_of_the_test_runner() {
        let line = "FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!((number_before(line, " passed"), number_before(line, " failed")), (12, 3));
        assert_eq!(number_before(line, " skipped"), 0);
        assert_eq!(number_before("27 passed, 0 failed, 2 skipped", " skipped"), 2);
    }
}
