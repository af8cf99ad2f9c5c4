//! Whole conversations, against a provider that copies memory.

mod fake;

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::channel;

use ndk_consumer::books::Operation;
use ndk_consumer::native::Native;
use ndk_consumer::transfer::{self, Failure, Options, Phase, Progress, Report};
use ndk_consumer::{Adapter, Error, bench};

use fake::{Loopback, address};

type Outcome = Result<Report, Box<Failure>>;

/// Copies `file` from one adapter to another; answers for both sides, serving first.
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

fn told(outcome: Outcome) -> Report {
    outcome.unwrap_or_else(|failure| panic!("{}", failure.error))
}

#[test]
fn a_file_goes_there_and_back_with_calls_that_answer_inline() {
    there_and_back(false, 1_000_000);
}

#[test]
fn a_file_goes_there_and_back_with_calls_that_pend() {
    there_and_back(true, 1_000_000);
}

#[test]
fn an_empty_file_goes_there_and_back() {
    there_and_back(true, 0);
}

#[test]
fn a_file_of_one_byte_goes_there_and_back() {
    there_and_back(false, 1);
}

fn there_and_back(pend: bool, length: usize) {
    let loopback = Loopback::new(pend);
    let (served, copied) = copy(&loopback, &file(length), |_| {});
    let (served, copied) = (told(served), told(copied));
    assert_eq!(served.name, "file.bin");
    assert_eq!([served.bytes, copied.bytes], [length as u64; 2]);
    assert!(served.digest.is_some());
    assert_eq!(served.digest, copied.digest);
    assert_eq!(copied.books.of(Operation::Write).bytes, length as u64);
    assert_eq!(copied.books.of(Operation::Read).bytes, length as u64);
    for books in [&served.books, &copied.books] {
        let total = books.total();
        assert_eq!([total.failed, total.outstanding(), books.unexpected], [0; 3]);
        assert_eq!(total.flushed, books.of(Operation::Receive).flushed, "only receives are left over");
    }
}

#[test]
fn both_sides_notice_that_the_way_between_them_is_cut() {
    let loopback = Loopback::new(true);
    let (served, copied) = copy(&loopback, &file(1_000_000), |progress| {
        if progress.phase == Phase::Read && progress.done >= 500_000 {
            loopback.cut();
        }
    });
    for outcome in [served, copied] {
        let failure = outcome.expect_err("the connection broke");
        assert!(failure.error.is_connection_loss(), "{}", failure.error);
        let total = failure.report.books.total();
        assert_eq!(total.failed, 1, "the first request fails");
        assert!(total.flushed >= 8, "the others are flushed");
        assert_eq!(total.outstanding(), 0);
    }
}

#[test]
fn nobody_listens() {
    let loopback = Loopback::new(false);
    let os = Arc::new(Native::new());
    let raw = loopback.open();
    // SAFETY: closed below.
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
    let failure = outcome.expect_err("nobody listens");
    assert!(matches!(failure.error, Error::Connect(_)), "{}", failure.error);
    assert_eq!(failure.error.to_string(), "connecting failed: STATUS_CONNECTION_REFUSED");
    drop(adapter);
    Loopback::close(raw);
    assert_eq!(loopback.objects(), 0);
}

#[test]
fn the_bench_sends_and_writes_what_it_says() {
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
                bench::writes(&measuring, address(), remote, 40, 256 << 10, 4)
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
