// SPDX-License-Identifier: MIT OR Apache-2.0

//! File transfers between two natively linked providers on a simulated network.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ndk_consumer::bench;
use ndk_consumer::stats::Operation;
use ndk_consumer::transfer::{self, Failure, Options, Phase, Progress, Report};
use ndk_provider::CreateCompletion;

use crate::two_hosts::TwoHosts;

type Outcome = Result<Report, Box<Failure>>;

/// Copies `file` from host 1 to host 0; returns the results of the serving and of the copying side.
fn copy(hosts: &TwoHosts, file: &[u8], progress: &dyn Fn(Progress)) -> (Outcome, Outcome) {
    let options = Options { segment: 2 << 20, chunk: 256 << 10, outstanding: 4, ..Options::default() };
    hosts.with_adapters(|[serving, copying]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                transfer::serve(serving, &options, hosts.address(0), ready, &|_| {})
            });
            let remote = listening.recv().unwrap();
            let copied =
                transfer::copy(copying, &options, hosts.address(1), remote, "file.bin", file, progress);
            (server.join().unwrap(), copied)
        })
    })
}

fn copy_and_compare(hosts: &TwoHosts, length: usize) {
    let file: Vec<u8> = (0..length).map(|index| (index * 7 + index / 251) as u8).collect();
    let (served, copied) = copy(hosts, &file, &|_| {});
    let (served, copied) = match (served, copied) {
        (Ok(served), Ok(copied)) => (served, copied),
        (served, copied) => panic!("serving: {served:#?}\ncopying: {copied:#?}"),
    };
    assert_eq!([served.bytes, copied.bytes], [length as u64; 2]);
    assert!(served.digest.is_some());
    assert_eq!(served.digest, copied.digest);
    for stats in [&served.stats, &copied.stats] {
        let total = stats.total();
        assert_eq!([total.failed, total.outstanding(), stats.unexpected], [0; 3]);
    }
    // The disconnect may flush the last send of the serving side before its acknowledgment arrives.
    assert_eq!(copied.stats.total().flushed, copied.stats.of(Operation::Receive).flushed);
    assert!(served.stats.of(Operation::Send).flushed <= 1);
}

#[test]
fn file_is_copied_with_inline_completions() {
    copy_and_compare(&TwoHosts::new(CreateCompletion::Inline, 1500, 0), 5_000_000);
}

#[test]
fn file_is_copied_with_pending_completions() {
    copy_and_compare(&TwoHosts::new(CreateCompletion::Pend, 1500, 0), 5_000_000);
}

#[test]
fn file_is_copied_with_a_path_mtu_of_4096() {
    copy_and_compare(&TwoHosts::new(CreateCompletion::Inline, 4200, 0), 20_000_000);
}

#[test]
fn file_is_copied_with_five_percent_frame_loss() {
    copy_and_compare(&TwoHosts::new(CreateCompletion::Inline, 4200, 50_000), 3_000_000);
}

#[test]
fn empty_file_is_copied() {
    copy_and_compare(&TwoHosts::new(CreateCompletion::Pend, 1500, 0), 0);
}

#[test]
fn both_sides_detect_a_link_failure_within_ten_seconds() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 1500, 0);
    let file = vec![0x5a; 8 << 20];
    let cut = std::cell::Cell::new(None);
    let (served, copied) = copy(&hosts, &file, &|progress| {
        if progress.phase == Phase::Write && progress.done >= 4 << 20 && cut.get().is_none() {
            hosts.cut();
            cut.set(Some(Instant::now()));
        }
    });
    let since = cut.get().expect("the link failed").elapsed();
    assert!(since < Duration::from_secs(10), "detected after {since:?}");
    for outcome in [served, copied] {
        let failure = outcome.expect_err("the connection failed");
        assert!(failure.error.is_connection_loss(), "{}", failure.error);
        assert_eq!(failure.report.stats.total().outstanding(), 0);
    }
}

#[test]
fn connection_without_a_listener_is_refused() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 1500, 0);
    let mut remote = hosts.address(0);
    remote.set_port(5445);
    let outcome = hosts.with_adapters(|[_, copying]| {
        transfer::copy(copying, &Options::default(), hosts.address(1), remote, "file", &b"file"[..], &|_| {})
    });
    let failure = outcome.expect_err("no listener");
    assert_eq!(failure.error.to_string(), "cannot connect: STATUS_CONNECTION_REFUSED");
}

#[test]
fn bench_measures_small_sends_and_large_writes() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 4200, 0);
    hosts.with_adapters(|[serving, measuring]| {
        for sends in [true, false] {
            let figures = std::thread::scope(|scope| {
                let (ready, listening) = channel();
                let hosts = &hosts;
                let server = scope.spawn(move || {
                    let ready = |address| ready.send(address).unwrap();
                    bench::serve(serving, hosts.address(0), 8 << 20, Duration::from_secs(10), ready)
                });
                let remote = listening.recv().unwrap();
                let figures = if sends {
                    bench::sends(measuring, hosts.address(1), remote, 20_000, 64)
                } else {
                    {
                        let work = bench::Transfers { count: 64, size: 1 << 20, outstanding: 8, buffers: 8 };
                        bench::writes(measuring, hosts.address(1), remote, work)
                    }
                };
                let stats = server.join().unwrap().unwrap_or_else(|error| panic!("serving: {error}"));
                assert_eq!(stats.total().failed, 0);
                figures.unwrap_or_else(|error| panic!("{error}"))
            });
            println!(
                "{:.0} operations/s, {:.0} MB/s, {:?}",
                figures.operations_per_second(),
                figures.bytes_per_second() / 1e6,
                figures.stats.of(if sends { Operation::Send } else { Operation::Write }).latency
            );
        }
    });
    hosts.print_counters();
    assert!(hosts.frames() > 0);
}
