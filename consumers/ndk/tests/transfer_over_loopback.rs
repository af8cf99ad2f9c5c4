// SPDX-License-Identifier: MIT OR Apache-2.0

//! File transfers and benchmarks with a loopback provider, which copies memory.
#![allow(unsafe_code, reason = "opens a provider and calls it through pointers")]

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::channel;

use ndk_consumer::native::Native;
use ndk_consumer::stats::Operation;
use ndk_consumer::transfer::{self, Failure, Options, Phase, Progress, Report};
use ndk_consumer::{Adapter, Error, bench};

use crate::loopback::{Loopback, address};

type Outcome = Result<Report, Box<Failure>>;

/// Copies `file` from one adapter to another; returns the results of the serving and of the copying side.
fn copy(loopback: &Loopback, file: &[u8], progress: impl Fn(Progress)) -> (Outcome, Outcome) {
    let options = Options { segment: 200_000, chunk: 16 << 10, outstanding: 4, ..Options::default() };
    let os = Arc::new(Native::new());
    let raw = [loopback.open(), loopback.open()];
    // SAFETY: closed below, after everything that was made from them.
    let [serving, copying] = raw.map(|raw| unsafe { Adapter::new(&os, raw) });
    let outcomes = std::thread::scope(|scope| {
        let (ready, listening) = channel();
        let serving = &serving;
        let server = scope.spawn(move || {
            let ready = |address| ready.send(address).unwrap();
            transfer::serve(serving, &options, address(), ready, &|_| {})
        });
        let remote = listening.recv().unwrap();
        let copied = transfer::copy(&copying, &options, address(), remote, "file.bin", file, &progress);
        (server.join().unwrap(), copied)
    });
    drop((serving, copying));
    for raw in raw {
        Loopback::close(raw);
    }
    assert_eq!(loopback.objects(), 0, "objects are still open");
    outcomes
}

fn file(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

fn success(outcome: Outcome) -> Report {
    outcome.unwrap_or_else(|failure| panic!("{}", failure.error))
}

#[test]
fn file_is_copied_with_inline_completions() {
    copy_and_compare(false, 1_000_000);
}

#[test]
fn file_is_copied_with_pending_completions() {
    copy_and_compare(true, 1_000_000);
}

#[test]
fn empty_file_is_copied() {
    copy_and_compare(true, 0);
}

#[test]
fn file_of_one_byte_is_copied() {
    copy_and_compare(false, 1);
}

fn copy_and_compare(pend: bool, length: usize) {
    let loopback = Loopback::new(pend);
    let (served, copied) = copy(&loopback, &file(length), |_| {});
    let (served, copied) = (success(served), success(copied));
    assert_eq!(served.name, "file.bin");
    assert_eq!([served.bytes, copied.bytes], [length as u64; 2]);
    assert!(served.digest.is_some());
    assert_eq!(served.digest, copied.digest);
    assert_eq!(copied.stats.of(Operation::Write).bytes, length as u64);
    assert_eq!(copied.stats.of(Operation::Read).bytes, length as u64);
    for stats in [&served.stats, &copied.stats] {
        let total = stats.total();
        assert_eq!([total.failed, total.outstanding(), stats.unexpected], [0; 3]);
        assert_eq!(total.flushed, stats.of(Operation::Receive).flushed, "only receives are flushed");
    }
}

#[test]
fn both_sides_detect_a_link_failure() {
    let loopback = Loopback::new(true);
    let (served, copied) = copy(&loopback, &file(1_000_000), |progress| {
        if progress.phase == Phase::Read && progress.done >= 500_000 {
            loopback.cut();
        }
    });
    for outcome in [served, copied] {
        let failure = outcome.expect_err("the connection failed");
        assert!(failure.error.is_connection_loss(), "{}", failure.error);
        let total = failure.report.stats.total();
        assert_eq!(total.failed, 1, "the first request fails");
        assert!(total.flushed >= 8, "the others are flushed");
        assert_eq!(total.outstanding(), 0);
    }
}

#[test]
fn connection_without_a_listener_is_refused() {
    let loopback = Loopback::new(false);
    let os = Arc::new(Native::new());
    let raw = loopback.open();
    // SAFETY: the adapter was opened above and is closed below, after everything that was made from it.
    let adapter = unsafe { Adapter::new(&os, raw) };
    let file = file(10);
    let outcome = transfer::copy(
        &adapter,
        &Options::default(),
        address(),
        "192.0.2.9:1".parse().unwrap(),
        "file",
        &file[..],
        &|_| {},
    );
    let failure = outcome.expect_err("no listener");
    assert!(matches!(failure.error, Error::Connect(_)), "{}", failure.error);
    assert_eq!(failure.error.to_string(), "cannot connect: STATUS_CONNECTION_REFUSED");
    drop(adapter);
    Loopback::close(raw);
    assert_eq!(loopback.objects(), 0);
}

#[test]
fn bench_sends_and_writes_the_requested_amount() {
    let loopback = Loopback::new(false);
    let os = Arc::new(Native::new());
    let raw = [loopback.open(), loopback.open()];
    // SAFETY: closed below, after everything that was made from them.
    let [serving, measuring] = raw.map(|raw| unsafe { Adapter::new(&os, raw) });
    for sends in [true, false] {
        let (served, figures) = std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let serving = &serving;
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                bench::serve(serving, address(), 1 << 20, Duration::from_secs(10), ready)
            });
            let remote = listening.recv().unwrap();
            let figures = if sends {
                bench::sends(&measuring, address(), remote, 5000, 64)
            } else {
                {
                    let work = bench::Transfers { count: 40, size: 256 << 10, outstanding: 4, buffers: 2 };
                    bench::writes(&measuring, address(), remote, work)
                }
            };
            (server.join().unwrap().unwrap(), figures.unwrap())
        });
        if sends {
            assert_eq!([figures.operations, figures.bytes], [5000, 320_000]);
            assert_eq!(served.of(Operation::Receive).succeeded, 5000);
        } else {
            assert_eq!([figures.operations, figures.bytes], [40, 10 << 20]);
        }
    }
    drop((serving, measuring));
    for raw in raw {
        Loopback::close(raw);
    }
    assert_eq!(loopback.objects(), 0);
}
