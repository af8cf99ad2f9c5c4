// SPDX-License-Identifier: MIT OR Apache-2.0

//! How much of what a link could carry arrives, over losses and round trips.

use std::fmt;
use std::time::Duration;

use roce::SendData;
use roce::{CompletionStatus, RecvRequest, SendFlags, SendOperation, SendRequest};
use roce_wire::PathMtu;

use crate::link::Options;
use crate::pair::Pair;

/// Bits per second of the line under [`measure`].
pub const RATE: u64 = 10_000_000_000;

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send,
    Write,
    Read,
}

/// One point of the table: what goes over which line.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    /// Bytes per message.
    pub message: usize,
    /// Messages in all.
    pub count: u64,
    /// Messages at a time.
    pub outstanding: u64,
    /// Of each frame in either direction, in 1/1000.
    pub loss: u32,
    /// Of each frame in either direction, in 1/1000, delayed by up to three latencies.
    pub reordering: u32,
    pub round_trip: Duration,
    pub seed: u64,
}

/// The table that tests hold and benches draw: each kind of request, four chances of loss, three round trips; the
/// figures of a line without loss stand before those with.
pub fn table() -> impl Iterator<Item = Cell> {
    /// Bytes per cell: some thirty losses at one in a thousand.
    const TOTAL: usize = 32 << 20;
    let kinds = [(Kind::Write, 1 << 20, 4), (Kind::Read, 1 << 20, 4), (Kind::Send, 8 << 10, 64)];
    kinds.into_iter().flat_map(|(kind, message, outstanding)| {
        [20, 100, 1000].into_iter().flat_map(move |micros| {
            [0, 1, 10, 50].into_iter().map(move |loss| Cell {
                kind,
                message,
                count: (TOTAL / message) as u64,
                outstanding,
                loss,
                reordering: 0,
                round_trip: Duration::from_micros(micros),
                seed: 7,
            })
        })
    })
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Bytes of all messages.
    pub delivered: u64,
    /// Payload bytes of all frames, those sent again included.
    pub sent: u64,
    /// Virtual time from the first request to the last completion.
    pub elapsed: Duration,
    /// Longest time without a completion.
    pub stall: Duration,
    /// Times that an answer did not come in time.
    pub timeouts: u64,
}

impl Figures {
    /// Bytes per second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }

    /// Payload bytes sent for each one delivered.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        self.sent as f64 / self.delivered as f64
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
        })
    }
}

/// Moves the messages of `cell` from one host to another over a line of [`RATE`], with path MTU 1024 and an
/// engine's default settings.
///
/// # Panics
/// If a request fails, or if nothing happens for 300 s of virtual time.
#[must_use]
pub fn measure(cell: &Cell) -> Figures {
    measure_with(cell, &Options::default())
}

/// The same, with other options: those that `cell` has are taken from there.
#[must_use]
pub fn measure_with(cell: &Cell, options: &Options) -> Figures {
    // Losses begin when the connection stands.
    let mut pair = Pair::connected(Options {
        seed: cell.seed,
        mtu: PathMtu::Bytes1024,
        latency: cell.round_trip / 2,
        rate: Some(RATE),
        send_depth: 256,
        recv_depth: 256,
        cq_depth: 1024,
        ..options.clone()
    });
    pair.options.loss = cell.loss;
    pair.options.reordering = cell.reordering;
    // READs are asked for by the first side, everything else is sent by it.
    let [near, far] = &pair.sides;
    let memories = [near.shared(cell.message), far.shared(cell.message)];
    let (local, remote) = (memories[0].all(), memories[1].all());
    let operation = match cell.kind {
        Kind::Send => SendOperation::Send,
        Kind::Write => SendOperation::Write { address: remote.address, key: remote.key },
        Kind::Read => SendOperation::Read { address: remote.address, key: remote.key },
    };
    let sender = usize::from(cell.kind == Kind::Read);
    let count = |pair: &Pair, name: &str| pair.sides.each_ref().map(|side| side.stat(name));
    let (sent, timeouts) = (count(&pair, "tx_bytes")[sender], count(&pair, "timeouts")[0]);
    let start = pair.now;
    let (mut posted, mut done, mut last, mut stall) = (0, 0, start, Duration::ZERO);
    while done < cell.count {
        while posted < cell.count && posted - done < cell.outstanding {
            let [near, far] = &pair.sides;
            if cell.kind == Kind::Send {
                let request = RecvRequest { context: posted, sges: &[remote] };
                far.engine.post_recv(&far.qp, &request).unwrap();
            }
            let data = SendData::Sges(&[local]);
            let request = SendRequest { context: posted, operation, flags: SendFlags::empty(), data };
            near.engine.post_send(&near.qp, &request).unwrap();
            posted += 1;
        }
        pair.run_until("a completion", |pair| !pair.sides[0].cq.is_empty());
        for side in &pair.sides {
            assert!(side.completions().iter().all(|completion| {
                assert_eq!(completion.status, CompletionStatus::Success, "{cell:?}");
                done += u64::from(!completion.kind.is_receive());
                true
            }));
        }
        stall = stall.max(pair.now.duration_since(last));
        last = pair.now;
    }
    Figures {
        delivered: cell.message as u64 * cell.count,
        sent: count(&pair, "tx_bytes")[sender] - sent,
        elapsed: pair.now.duration_since(start),
        stall,
        timeouts: count(&pair, "timeouts")[0] - timeouts,
    }
}
