// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK consumer drivers beside viordma, by scripts: the project's example, and Microsoft's where they are given.
//!
//! `VIORDMA_CONSUMERS` names a directory with `NDKPing.sys` and `NDKPerf.sys`, which are in every Windows Server. Without
//! them, their tests say that they are skipped.

use std::{path::Path, time::Duration};

use device_sim::link::Faults;
use lab::consumer::{Image, Plan, Setup};
use support::consumers::{example, image, lossy, run, script, setup, succeeds};

#[test]
fn example_moves_data_on_one_host_and_on_two_with_and_without_loss_under_both_clocks() {
    for number in 0..8_u64 {
        let Some(image) = example() else { return };
        let plain = Setup { one_host: number & 1 != 0, real_time: number & 2 != 0, ..setup(number) };
        let setup = if number & 4 == 0 { plain } else { lossy(plain) };
        let is_lossy = setup.faults.loss > 0.0;
        let Some(report) = succeeds(image, script("example.toml", &[]), setup) else { return };
        assert_eq!(report.wire.lost > 0, is_lossy);
    }
}

#[test]
fn example_works_with_few_credits_and_with_many_and_with_its_own_invalidations() {
    for (receives, flags) in [("3", "0"), ("3", "1"), ("255", "1")] {
        let Some(image) = example() else { return };
        let script =
            script("example.toml", &[("receives", receives), ("flags", flags), ("bytes", "1000000")]);
        succeeds(image, script, lossy(setup(5)));
    }
}

#[test]
fn example_posts_nothing_before_its_accept_has_completed() {
    // Its client's first requests arrive with the frame that establishes the connection.
    for seed in 0..6 {
        let Some(image) = example() else { return };
        let faults = Faults { loss: 0.02, reordering: 0.01, corruption: 0.01, ..Faults::NONE };
        let script = script("example.toml", &[("bytes", "100000")]);
        succeeds(image, script, Setup { faults, ..setup(seed) });
    }
}

#[test]
fn example_takes_objects_that_are_created_inline_and_objects_that_are_created_later() {
    let mut times = Vec::new();
    for completion in ["1", "2"] {
        let Some(image) = example() else { return };
        let keywords = vec![(None, "NdkCreateCompletion".to_owned(), completion.to_owned())];
        let Some(report) = succeeds(image, script("example.toml", &[]), Setup { keywords, ..setup(7) })
        else {
            return;
        };
        // The client's first request connects, and so creates all its objects.
        let connected = report.lines[0].iter().filter(|line| line.thread == "client").nth(1);
        times.push(connected.map(|line| line.time));
    }
    assert!(times[0] < times[1], "objects created later take longer to connect: {times:?}");
}

#[test]
fn example_answers_wrong_requests_and_cancels() {
    for one_host in [false, true] {
        let Some(image) = example() else { return };
        succeeds(image, script("example-errors.toml", &[]), Setup { one_host, ..setup(1) });
    }
}

#[test]
fn wire_that_is_cut_at_any_moment_ends_the_example_in_statuses_and_a_clean_unload() {
    for micros in [0, 10, 30, 150, 300, 1_000, 5_000, 10_000, 14_000] {
        let Some(image) = example() else { return };
        let cut = Some(Duration::from_micros(micros));
        let scripts = vec![script("example.toml", &[])];
        run(&Plan { images: vec![image], scripts, setup: setup(micros), cut });
    }
}

#[test]
fn same_seed_replays_the_run() {
    let lines = || {
        let report = succeeds(example()?, script("example.toml", &[("bytes", "500000")]), lossy(setup(9)))?;
        Some((report.lines, report.wire))
    };
    assert_eq!(lines(), lines());
}

/// Returns one of Microsoft's drivers; `None`, after a message, where it is not given.
fn given(name: &str, tolerate: &str) -> Option<Image> {
    let directory = std::env::var_os("VIORDMA_CONSUMERS");
    let path = directory.map(|directory| Path::new(&directory).join(name)).filter(|path| path.is_file());
    if path.is_none() {
        lab::skip(&format!("{name} (VIORDMA_CONSUMERS names no directory with it)"));
    }
    path.map(|path| image(path, tolerate))
}

/// Runs one of Microsoft's tests in all settings.
fn ping(name: &str, tolerate: &str, file: &str) {
    for number in 0..8_u64 {
        let Some(image) = given(name, tolerate) else { return };
        let plain = Setup { one_host: number & 1 != 0, real_time: number & 2 != 0, ..setup(number) };
        let setup = if number & 4 == 0 { plain } else { lossy(plain) };
        let is_virtual = !setup.real_time;
        let Some(report) = succeeds(image, script(file, &[]), setup) else { return };
        // In real time a race of the drivers themselves allows another status of the server.
        let served = report.lines.iter().flatten().any(|line| line.text.starts_with("serve: 0x00000000"));
        assert!(served || !is_virtual, "{:#?}", report.lines);
    }
}

#[test]
fn ndkperf_pings() {
    ping("NDKPerf.sys", NDKPERF, "ndkperf-rping.toml");
}

#[test]
fn ndkping_pings() {
    ping("NDKPing.sys", NDKPING, "ndkping-rping.toml");
}

#[test]
fn ndkperf_writes_until_its_server_ends() {
    let Some(image) = given("NDKPerf.sys", NDKPERF) else { return };
    let script = script("ndkperf-rperf.toml", &[("seconds", "1")]);
    let Some(report) = succeeds(image, script, setup(1)) else { return };
    // Far more than the warm-up: the writes of 1.75 MB.
    assert!(report.counters["rx_bytes"] > 100_000_000, "{:?}", report.counters);
}

/// Faults of the drivers themselves.
const NDKPERF: &str = "leaks,pool-tags,use-after-free";
const NDKPING: &str = "leaks,use-after-free";
