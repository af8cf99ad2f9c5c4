//! The file transfer between two providers linked natively.

mod pair;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ndk_consumer::bench;
use ndk_consumer::books::Operation;
use ndk_consumer::transfer::{self, Failure, Options, Phase, Progress, Report};
use ndk_provider::Pending;

use pair::Pair;

type Outcome = Result<Report, Box<Failure>>;

/// Copies `file` from host 1 to host 0; answers for both sides, serving first.
fn copy(pair: &Pair, file: &[u8], progress: &dyn Fn(Progress)) -> (Outcome, Outcome) {
    let options = Options { segment: 2 << 20, chunk: 256 << 10, outstanding: 4, ..Options::default() };
    pair.with_adapters(|[serving, copying]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                transfer::serve(serving, &options, pair.address(0), ready, &|_| {})
            });
            let remote = listening.recv().unwrap();
            let copied =
                transfer::copy(copying, &options, pair.address(1), remote, "file.bin", file, progress);
            (server.join().unwrap(), copied)
        })
    })
}

fn there_and_back(pair: &Pair, length: usize) {
    let file: Vec<u8> = (0..length).map(|index| (index * 7 + index / 251) as u8).collect();
    let (served, copied) = copy(pair, &file, &|_| {});
    let (served, copied) = match (served, copied) {
        (Ok(served), Ok(copied)) => (served, copied),
        (served, copied) => panic!("serving: {served:#?}\ncopying: {copied:#?}"),
    };
    assert_eq!([served.bytes, copied.bytes], [length as u64; 2]);
    assert!(served.digest.is_some());
    assert_eq!(served.digest, copied.digest);
    for books in [&served.books, &copied.books] {
        let total = books.total();
        assert_eq!([total.failed, total.outstanding(), books.unexpected], [0; 3]);
    }
    // The serving side may learn that its last message has arrived from the peer's leaving alone.
    assert_eq!(copied.books.total().flushed, copied.books.of(Operation::Receive).flushed);
    assert!(served.books.of(Operation::Send).flushed <= 1);
}

#[test]
fn a_file_goes_there_and_back() {
    there_and_back(&Pair::new(Pending::Inline, 1500, 0), 5_000_000);
}

#[test]
fn a_file_goes_there_and_back_with_calls_that_pend() {
    there_and_back(&Pair::new(Pending::Pend, 1500, 0), 5_000_000);
}

#[test]
fn a_file_goes_there_and_back_in_frames_of_4096_bytes() {
    there_and_back(&Pair::new(Pending::Inline, 4200, 0), 20_000_000);
}

#[test]
fn a_file_goes_there_and_back_though_five_percent_of_the_frames_are_lost() {
    there_and_back(&Pair::new(Pending::Inline, 4200, 50_000), 3_000_000);
}

#[test]
fn an_empty_file_goes_there_and_back() {
    there_and_back(&Pair::new(Pending::Pend, 1500, 0), 0);
}

#[test]
fn both_sides_notice_within_ten_seconds_that_the_wire_is_cut() {
    let pair = Pair::new(Pending::Inline, 1500, 0);
    let file = vec![0x5a; 8 << 20];
    let cut = std::cell::Cell::new(None);
    let (served, copied) = copy(&pair, &file, &|progress| {
        if progress.phase == Phase::Write && progress.done >= 4 << 20 && cut.get().is_none() {
            pair.cut();
            cut.set(Some(Instant::now()));
        }
    });
    let since = cut.get().expect("the wire was cut").elapsed();
    assert!(since < Duration::from_secs(10), "noticed after {since:?}");
    for outcome in [served, copied] {
        let failure = outcome.expect_err("the connection broke");
        assert!(failure.error.is_connection_loss(), "{}", failure.error);
        assert_eq!(failure.report.books.total().outstanding(), 0);
    }
}

#[test]
fn nobody_listens() {
    let pair = Pair::new(Pending::Inline, 1500, 0);
    let mut remote = pair.address(0);
    remote.set_port(5445);
    let outcome = pair.with_adapters(|[_, copying]| {
        transfer::copy(copying, &Options::default(), pair.address(1), remote, "file", &b"file"[..], &|_| {})
    });
    let failure = outcome.expect_err("nobody listens");
    assert_eq!(failure.error.to_string(), "connecting failed: STATUS_CONNECTION_REFUSED");
}

#[test]
fn small_sends_and_large_writes() {
    let pair = Pair::new(Pending::Inline, 4200, 0);
    pair.with_adapters(|[serving, measuring]| {
        for sends in [true, false] {
            let figures = std::thread::scope(|scope| {
                let (ready, listening) = channel();
                let pair = &pair;
                let server = scope.spawn(move || {
                    let ready = |address| ready.send(address).unwrap();
                    bench::serve(serving, pair.address(0), 8 << 20, Duration::from_secs(10), ready)
                });
                let remote = listening.recv().unwrap();
                let figures = if sends {
                    bench::sends(measuring, pair.address(1), remote, 20_000, 64)
                } else {
                    bench::writes(measuring, pair.address(1), remote, 64, 1 << 20, 8)
                };
                let books = server.join().unwrap().unwrap_or_else(|error| panic!("serving: {error}"));
                assert_eq!(books.total().failed, 0);
                figures.unwrap_or_else(|error| panic!("{error}"))
            });
            println!(
                "{:.0} operations/s, {:.0} MB/s, {:?}",
                figures.operations_per_second(),
                figures.bytes_per_second() / 1e6,
                figures.books.of(if sends { Operation::Send } else { Operation::Write }).latency
            );
        }
    });
    pair.print_counters();
    assert!(pair.frames() > 0);
}
