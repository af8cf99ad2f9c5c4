// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of `cargo xtask demo`, `decode`, `replay`, `bench` and `interop`: what is refused, with which exit
//! code, and that no file is touched then. Only the last tests need the driver image.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use assert_cmd::Command;
use nt_sim::image::smallest;
use predicates::{prelude::*, str::contains};
use serde_json::Value;

/// Names the image to run. For commands that must fail before they need one, it names a file that is no image.
const IMAGE: &str = "VIORDMA_IMAGE";

/// A directory of the test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli {name}"));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Runs `lab` in this directory.
    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("lab").unwrap();
        command.current_dir(&self.0).args(arguments).env(IMAGE, self.0.join("not built"));
        command
    }

    /// Runs `lab`, which must refuse its arguments with one line on standard error, and change no file.
    fn refuses(&self, arguments: &[&str], reason: &str) {
        let before = self.content();
        self.lab(arguments)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(reason).and(predicate::function(|text: &str| text.lines().count() == 1)));
        assert_eq!(before, self.content(), "{arguments:?} changed a file");
    }

    fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap_or_default()))
            .collect();
        files.sort();
        files
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn demo_does_not_overwrite_its_input() {
    let scratch = Scratch::new("input");
    scratch.file("data", b"to be copied");
    fs::hard_link(scratch.0.join("data"), scratch.0.join("hard")).unwrap();
    std::os::unix::fs::symlink("data", scratch.0.join("soft")).unwrap();
    for option in ["--pcap", "--json", "--report"] {
        for path in ["data", "./data", "../cli input/data", "hard", "soft"] {
            let reason = format!("the file to copy and {option} are the same file: {path}");
            scratch.refuses(&["demo", "data", option, path], &reason);
        }
    }
}

#[test]
fn demo_refuses_two_outputs_in_one_file() {
    let scratch = Scratch::new("outputs");
    std::os::unix::fs::symlink("new", scratch.0.join("soft")).unwrap();
    for (first, second) in [("--pcap", "--json"), ("--pcap", "--report"), ("--json", "--report")] {
        for path in ["new", "./new", "soft"] {
            scratch.refuses(&["demo", first, "new", second, path], "are the same file");
        }
    }
}

#[test]
fn demo_does_not_overwrite_the_driver_image() {
    let scratch = Scratch::new("image");
    scratch.file("not built", b"MZ");
    scratch.refuses(&["demo", "--pcap", "not built"], "the driver image and --pcap are the same file");
}

#[test]
fn demo_refuses_files_that_it_cannot_use_before_it_opens_others() {
    let scratch = Scratch::new("unusable");
    scratch.file("data", b"to be copied");
    scratch.refuses(&["demo", "missing"], "cannot read missing: No such file");
    scratch.refuses(&["demo", "."], ". is not a regular file");
    scratch.refuses(&["demo", "data", "--json", "no/such"], "cannot write no/such: no such directory");
    scratch.refuses(&["demo", "data", "--json", "."], "cannot write .: it is a directory");
    scratch.refuses(&["demo", "data", "--json", "data/x"], "cannot write data/x");
    // The file for --json would have been opened first.
    scratch.refuses(&["demo", "data", "--json", "new", "--pcap", "no/such"], "cannot write no/such");
    scratch.refuses(&["demo", "data", "--json", "new"], "not built, which is not a file");
}

#[test]
fn mistyped_commands_and_options_get_a_suggestion() {
    let scratch = Scratch::new("mistyped");
    scratch.lab(&["dmeo"]).assert().code(2).stderr(contains("'demo'").and(contains("Usage: cargo xtask")));
    scratch.lab(&["demo", "--lss", "1"]).assert().code(2).stderr(contains("'--loss'").and(contains("Usage")));
    scratch.lab(&["demo", "--loss", "200%"]).assert().code(2).stderr(contains("between 0% and 100%"));
    scratch.lab(&["demo", "--help"]).assert().success().stdout(contains("Usage: cargo xtask demo"));
}

#[test]
fn interop_and_replay_name_what_there_is() {
    let scratch = Scratch::new("names");
    scratch.refuses(&["interop", "--only", "no such case"], "--list");
    scratch.refuses(&["replay", "no such capture"], "rping_v4");
    scratch.file("mine.pcapng", b"a capture of the user's");
    scratch.refuses(&["interop", "--short", "--captures", "."], "holds captures already");
}

#[test]
fn cases_whose_packages_cannot_be_had_are_skipped_by_name_and_counted() {
    let scratch = Scratch::new("packages");
    let script = b"#!/bin/sh\ncase $* in *smb-guest*) exit 2; esac\n";
    let xtask = scratch.file("xtask", script);
    fs::set_permissions(&xtask, PermissionsExt::from_mode(0o755)).unwrap();
    let image = scratch.file("image", b"MZ");
    scratch
        .lab(&["interop", "--only", "SMB, 24 connections", "--captures", "captures"])
        .env("VIORDMA_XTASK", xtask)
        .env(IMAGE, image)
        .assert()
        .success()
        .stdout(
            contains("skip SMB, 24 connections at once, image to Linux")
                .and(contains("skip SMB, 24 connections at once, Linux to image"))
                .and(contains("0 passed, 0 failed, 2 skipped")),
        );
}

#[test]
fn miniport_driver_that_is_not_there_is_skipped_or_refused() {
    let scratch = Scratch::new("miniport");
    let skipped = contains("skipped: no image was named");
    scratch.lab(&["miniport"]).assert().code(0).stdout(skipped);
    scratch.refuses(&["miniport", "none.sys"], "none.sys is not a file");
}

#[test]
fn miniport_refuses_keywords_that_its_drivers_do_not_read() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("miniport keywords");
    let run = |keyword: &str, peer: &str| {
        let image = viordma.to_str().unwrap();
        let mut command =
            scratch.lab(&["miniport", image, "--keyword", keyword, "--peer", peer, "--only", "oids"]);
        command.env(IMAGE, &viordma).assert()
    };
    let refusal = |host: &str| format!("viordma on {host} does not read the keyword '*JumboPackets'\n");
    run("*JumboPackets=9014", "viordma").code(2).stdout("").stderr(format!("error: {}", refusal("alpha")));
    run("beta:*JumboPackets=9014", "viordma").code(2).stderr(format!("error: {}", refusal("beta")));
    run("beta:*jumbopacket=9014", "viordma").code(0);
    run("gamma:*JumboPacket=9014", "viordma").code(2).stderr(contains("the hosts are alpha and beta"));
}

#[test]
fn consumer_refuses_keywords_roles_and_indices_that_there_are_not() {
    let scratch = Scratch::new("consumer options");
    scratch.file("small.sys", &smallest::image());
    let refuses = |option: &str, value: &str, reason: &str| {
        scratch.refuses(&["consumer", "small.sys", option, value], reason);
    };
    refuses("--keyword", "ForcePend=1", "viordma has no keyword 'ForcePend'");
    refuses("--keyword", "gamma:VlanID=1", "'gamma' is no role");
    for value in ["gamma=1", "server=0", "server"] {
        let mut command = scratch.lab(&["consumer", "small.sys", "--interface", value]);
        command.assert().code(2).stderr(contains("--interface <ROLE=INDEX>"));
    }
}

/// Files that are no image for the kernel end both commands with one sentence, before anything runs.
#[test]
fn image_of_another_kind_is_refused_with_one_sentence() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("kinds");
    let wrong: [(&str, Vec<u8>, &str); 8] = [
        (
            "arm64.sys",
            smallest::changed(smallest::MACHINE, &0xaa64_u16.to_le_bytes()),
            "its machine type is 0xaa64, not x64",
        ),
        ("x86.sys", smallest::changed(smallest::MAGIC, &0x10b_u16.to_le_bytes()), "it is a 32-bit image"),
        (
            "program.sys",
            smallest::changed(smallest::SUBSYSTEM, &3_u16.to_le_bytes()),
            "its subsystem is 3, not native",
        ),
        (
            "stripped.sys",
            smallest::changed(smallest::CHARACTERISTICS, &[0x23]),
            "its relocations were stripped",
        ),
        (
            "damaged.sys",
            smallest::changed(smallest::ENTRY, &[0xff; 4]),
            "its entry point 0xffffffff is outside of the image",
        ),
        ("cut.sys", smallest::image()[..smallest::CODE_AT].to_vec(), "not a well-formed PE image"),
        ("script.sys", b"#!/bin/sh\nexit 0\n".to_vec(), "not a well-formed PE image"),
        ("empty.sys", Vec::new(), "not a well-formed PE image"),
    ];
    for (name, content, reason) in wrong {
        scratch.file(name, &content);
        for command in ["consumer", "miniport"] {
            let one_line = predicate::function(|text: &str| text.lines().count() == 1);
            let mut refused = scratch.lab(&[command, name]);
            refused.env(IMAGE, Path::new(&viordma));
            refused.assert().code(2).stdout("").stderr(contains(name).and(contains(reason)).and(one_line));
        }
    }
}

#[test]
fn driver_with_missing_imports_is_refused_unless_it_may_have_them() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("imports");
    scratch.file("singer.sys", &smallest::with_import("ZwSingAlong"));
    let run = |arguments: &[&str]| {
        let mut command = scratch.lab(arguments);
        command.env(IMAGE, Path::new(&viordma)).assert()
    };
    let named = "singer.sys imports what the simulated kernel does not have: \
                 ntoskrnl.exe!ZwSingAlong (used at singer.sys+0x1004)";
    for command in ["consumer", "miniport"] {
        let one_line = predicate::function(|text: &str| text.lines().count() == 1);
        let refused = run(&[command, "singer.sys"]).code(2).stdout("");
        refused.stderr(contains(named).and(contains("--allow-missing")).and(one_line));
    }
    let called = "ntoskrnl.exe!ZwSingAlong was called, which the simulated kernel does not have";
    let shown = contains(named).and(contains(called));
    run(&["consumer", "singer.sys", "--allow-missing"]).code(1).stdout(shown);
    let arguments = ["miniport", "singer.sys", "--allow-missing", "--only", "oids", "--peer", "viordma"];
    run(&arguments).code(1).stdout(contains(called));
}

#[test]
fn driver_that_does_not_end_is_given_up_and_named() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("endless");
    // jmp $
    scratch.file("endless.sys", &smallest::changed(smallest::CODE_AT, &[0xeb, 0xfe]));
    scratch.file("small.sys", &smallest::image());
    let run = |name: &str| {
        let mut command = scratch.lab(&["consumer", name, "--limit", "5s"]);
        command.env(IMAGE, Path::new(&viordma)).timeout(std::time::Duration::from_secs(100));
        command.assert()
    };
    run("small.sys").code(0).stdout(contains("0 violations"));
    let report = "THREAD_STUCK_IN_DEVICE_DRIVER (0xea) on alpha: DriverEntry of endless on alpha has not ended within 5 s";
    let stack = contains("endless.sys+0x1000").and(contains("1 violations"));
    run("endless.sys").code(1).stdout(contains(report).and(stack)).stderr(contains("found violations"));
    let mut command = scratch.lab(&["miniport", "endless.sys", "--limit", "3s", "--only", "oids"]);
    command.env(IMAGE, Path::new(&viordma)).timeout(std::time::Duration::from_secs(100));
    let report = "THREAD_STUCK_IN_DEVICE_DRIVER (0xea) on alpha: case oids has not ended within 3 s";
    command.assert().code(1).stdout(contains(report).and(contains("endless.sys+0x1000")));
    let mut command = scratch.lab(&["bench", "--miniport", "endless.sys", "--limit", "2s"]);
    command.env(IMAGE, Path::new(&viordma)).timeout(std::time::Duration::from_secs(100));
    let report = "endless: frames transmitted, one at a time has not ended within 2 s";
    command.assert().code(1).stderr(contains(report).and(contains("endless.sys+0x1000")));
}

/// Builds an example in C by the command of docs/consumer.md, in the folder of a test; `None` without a compiler.
fn built_by_mingw(scratch: &Scratch, name: &str) -> Option<()> {
    let (program, headers) = ("x86_64-w64-mingw32-gcc", Path::new("/usr/share/mingw-w64/include/ddk"));
    if !headers.exists() || std::process::Command::new(program).arg("--version").output().is_err() {
        lab::skip("MinGW-w64 is not installed");
        return None;
    }
    let page = fs::read_to_string(lab::root().join("docs/consumer.md")).unwrap();
    let commands = page.split("\n\n").filter(|part| part.trim_start().starts_with(program));
    let command = commands.map(|part| part.replace(" \\\n", " ")).find(|command| command.contains(name));
    let command = command.unwrap_or_else(|| panic!("docs/consumer.md does not build {name}"));
    let folder = format!("{}/lab/", lab::root().display());
    let arguments = command.split_whitespace().skip(1).map(|word| word.replace("lab/", &folder));
    let built = std::process::Command::new(program).args(arguments).current_dir(&scratch.0).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(())
}

#[test]
fn consumer_in_c_is_built_by_mingw_and_exchanges_messages() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("c");
    if built_by_mingw(&scratch, "NdkEcho.c").is_none() {
        return;
    }
    let script = lab::root().join("lab/scripts/ndk-echo.toml");
    for option in ["--seed=1", "--one-host"] {
        let mut run = scratch.lab(&["consumer", "NdkEcho.sys", "--script", script.to_str().unwrap(), option]);
        let echoed = contains("IOCTL 0x00222004: 0x00000000 (STATUS_SUCCESS), 4 bytes");
        let image = Path::new(&viordma);
        run.env(IMAGE, image).assert().code(0).stdout(echoed.and(contains("0 violations, 0 tolerated")));
    }
}

/// Runs a program; `None` if there is none of the name.
fn ran(program: &str, arguments: &[&str], folder: &Path) -> Option<()> {
    let output = std::process::Command::new(program).args(arguments).current_dir(folder).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&text));
    Some(())
}

/// Each compiler that has a toolchain file, by the commands of docs/consumer.md.
#[test]
fn examples_in_c_are_built_by_cmake_and_run() {
    let Some(viordma) = lab::image() else { return };
    for (toolchain, compiler) in [("mingw-w64.cmake", "x86_64-w64-mingw32-gcc"), ("clang.cmake", "clang-19")]
    {
        let scratch = Scratch::new(&format!("cmake-{compiler}"));
        if [compiler, "cmake"].iter().any(|name| ran(name, &["--version"], &scratch.0).is_none()) {
            lab::skip("CMake, MinGW-w64 or clang is not installed");
            continue;
        }
        let page = fs::read_to_string(lab::root().join("docs/consumer.md")).unwrap();
        let configure = format!("cmake -S lab/examples/c -B build -DCMAKE_TOOLCHAIN_FILE={toolchain}");
        assert!(page.contains(&configure) && page.contains("cmake --build build"), "not there: {configure}");
        let source = lab::root().join("lab/examples/c");
        let configure = configure.replace("lab/examples/c", source.to_str().unwrap());
        for command in [configure.as_str(), "cmake --build build"] {
            let mut words = command.split(' ');
            ran(words.next().unwrap(), &words.collect::<Vec<_>>(), &scratch.0).unwrap();
        }
        let script = lab::root().join("lab/scripts/ndk-echo.toml");
        let run = [
            "consumer",
            "build/NdkEcho.sys",
            "--script",
            script.to_str().unwrap(),
            "--filter",
            "build/NdisFilter.sys",
        ];
        let echoed = contains("IOCTL 0x00222004: 0x00000000 (STATUS_SUCCESS), 4 bytes");
        let report = echoed.and(contains("0 violations, 0 tolerated"));
        scratch.lab(&run).env(IMAGE, Path::new(&viordma)).assert().code(0).stdout(report);
    }
}

/// The filter counts what passes it.
#[test]
fn filter_in_c_lets_everything_pass_below_a_consumer_and_above_a_miniport() {
    let Some(viordma) = lab::image() else { return };
    let scratch = Scratch::new("filter");
    if built_by_mingw(&scratch, "NdkEcho.c").and_then(|()| built_by_mingw(&scratch, "NdisFilter.c")).is_none()
    {
        return;
    }
    let script = lab::root().join("lab/scripts/ndk-echo.toml");
    let consumer =
        ["consumer", "NdkEcho.sys", "--script", script.to_str().unwrap(), "--filter", "NdisFilter.sys"];
    let image = Path::new(&viordma);
    scratch.lab(&consumer).env(IMAGE, image).assert().code(0).stdout(contains("0 violations, 0 tolerated"));
    fs::copy(image, scratch.0.join("other.sys")).unwrap();
    let miniport = ["miniport", "other.sys", "--filter", "NdisFilter.sys", "--peer", "viordma", "--only"];
    for case in ["frames", "tcp", "sleep", "oids"] {
        let mut run = scratch.lab(&[&miniport[..], &[case]].concat());
        run.env(IMAGE, image).assert().code(0).stdout(contains("1 passed"));
    }
    fs::copy(scratch.0.join("NdisFilter.sys"), scratch.0.join("Renamed.sys")).unwrap();
    let mut run = scratch.lab(&["consumer", "NdkEcho.sys", "--filter", "Renamed.sys"]);
    let reason = "Renamed has no module on an adapter of alpha: its ServiceName is not the name of its file";
    run.env(IMAGE, image).assert().code(1).stderr(contains(reason));
}

#[test]
fn bench_opens_its_output_first() {
    let scratch = Scratch::new("bench");
    scratch.refuses(&["bench", "--json", "no/such"], "cannot write no/such");
    fs::create_dir(scratch.0.join("plots")).unwrap();
    scratch.refuses(&["bench", "--plot", "plots", "--json", "plots/crc.svg"], "are the same file");
}

#[test]
fn decode_tells_an_empty_capture_from_a_file_that_is_none() {
    let scratch = Scratch::new("decode");
    // The header of a pcap file for Ethernet, and no frame.
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0x4_0000, 1];
    scratch.file("empty.pcap", &header.map(u32::to_le_bytes).concat());
    scratch
        .lab(&["decode", "empty.pcap"])
        .assert()
        .success()
        .stderr(contains("empty.pcap is a capture without frames"));
    scratch.file("zero", b"");
    scratch.file("text", b"this is not a capture");
    scratch.refuses(&["decode", "zero"], "zero");
    scratch.refuses(&["decode", "text"], "neither pcap nor pcapng");
    scratch.refuses(&["decode", "missing"], "cannot read missing");
}

/// Runs a demo of 1 MiB with `arguments`, and returns what it printed and its JSON; `None` without an image.
fn demo(scratch: &Scratch, arguments: &[&str], code: i32) -> Option<(String, Value)> {
    let image = lab::image()?;
    scratch.file("data", &vec![7; 1 << 20]);
    let output = scratch
        .lab(&["demo", "data", "--json", "demo.json"])
        .args(arguments)
        .env(IMAGE, Path::new(&image))
        .assert()
        .code(code)
        .get_output()
        .clone();
    let json = fs::read(scratch.0.join("demo.json")).unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), serde_json::from_slice(&json).unwrap()))
}

#[test]
fn demo_leaves_only_the_files_it_was_asked_for() {
    let scratch = Scratch::new("leaves");
    let Some((text, json)) = demo(&scratch, &["--seed", "3"], 0) else { return };
    assert!(text.contains("none; --pcap FILE writes one"), "{text}");
    assert_eq!((&json["seed"], &json["virtual_time"]), (&3.into(), &true.into()));
    let names: Vec<_> = scratch.content().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["data", "demo.json"].map(|name| scratch.0.join(name)));
}

#[test]
fn demo_names_its_seed_in_real_time() {
    let scratch = Scratch::new("real time");
    let Some((text, json)) = demo(&scratch, &[], 0) else { return };
    let seed = json["seed"].as_u64().expect("a seed");
    assert!(text.contains(&format!("real time, seed {seed}")), "{text}");
    assert_eq!(json["virtual_time"], false);
}

#[test]
fn a_killed_peer_is_cut_off_at_that_share_of_the_transfer_there_and_back() {
    let scratch = Scratch::new("killed");
    let Some((text, json)) = demo(&scratch, &["--kill-peer-at", "25%"], 3) else { return };
    let moved = json["moved_bytes"].as_u64().expect("bytes moved");
    // A quarter of 2 MiB, and at most what was in flight.
    assert!((1 << 19..=1 << 20).contains(&moved), "{moved}");
    assert!(json["seed"].is_u64(), "{json}");
    for (name, operation) in json["operations"].as_object().expect("operations") {
        let row =
            text.lines().find(|line| line.trim_start().starts_with(&format!("{name} "))).expect("a row");
        let shown: Vec<u64> =
            row.split_whitespace().skip(1).take(4).map(|count| count.parse().unwrap()).collect();
        let written =
            ["posted", "succeeded", "failed", "flushed"].map(|count| operation[count].as_u64().unwrap());
        assert_eq!(shown, written, "{row}");
    }
}

#[test]
fn the_report_is_one_page_that_loads_nothing() {
    let scratch = Scratch::new("report");
    let arguments = ["--seed", "3", "--loss", "2%", "--report", "report.html", "--events", "events.txt"];
    let Some((text, _)) = demo(&scratch, &arguments, 0) else { return };
    assert!(text.contains("report.html"), "{text}");
    let page = fs::read_to_string(scratch.0.join("report.html")).unwrap();
    for heading in
        ["Goodput over time", "Retransmissions over time", "Latency of requests", "Packets", "Environment"]
    {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    let (_, events) = page.split_once("<h2>Events of the drivers</h2>").unwrap();
    let trace = fs::read_to_string(scratch.0.join("events.txt")).unwrap();
    let sentences: Vec<_> = trace.lines().map(|line| line.split(" ms ").nth(1).unwrap().trim()).collect();
    let (before, after) = (&sentences[..40], &sentences[sentences.len() - 20..]);
    for sentence in before.iter().chain(after) {
        let (host, sentence) = sentence.split_once(' ').unwrap();
        assert!(events.contains(&format!("<td>{host}</td><td>{}</td>", sentence.trim())), "{sentence}");
    }
    assert!(
        trace.contains(" of the system log, data 4192, 4096: RDMA is on: RoCEv2, path MTU 4096"),
        "{trace}"
    );
    let resent = sentences.iter().filter(|sentence| sentence.contains("sent again")).count();
    assert!(resent > 0 && events.contains(&format!("Retransmitted {resent}")), "{resent}");
    assert!(events.contains(&format!("<td>{} events are left out</td>", sentences.len() - 60)));
    for text in
        ["CM REQ", "CM DREP", "(sent again)", "(lost)", "goodput, in Gbit/s", "prefers-color-scheme: dark"]
    {
        assert!(page.contains(text), "{text}");
    }
    for external in ["http://", "https://", "<script", "<link", "<img", "url("] {
        assert!(!page.contains(external), "{external}");
    }
    let names: Vec<_> = scratch.content().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["data", "demo.json", "events.txt", "report.html"].map(|name| scratch.0.join(name)));
}
