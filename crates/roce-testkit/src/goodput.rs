// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures goodput over a link by loss rate and round-trip time.

use std::fmt;
use std::time::Duration;

use roce::SendData;
use roce::{CompletionStatus, Config, RecvRequest, SendFlags, SendOperation, SendRequest};
use roce_wire::PathMtu;

use crate::options::{Bursts, Options};
use crate::two_hosts::TwoHosts;

/// Link rate that [`measure`] simulates, in bits per second.
pub const RATE: u64 = 10_000_000_000;

/// Operation that carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send,
    Write,
    Read,
}

/// One measurement: the messages and the link they cross.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    /// Bytes per message.
    pub message: usize,
    /// Total number of messages.
    pub count: u64,
    /// Maximum number of messages in flight.
    pub outstanding: u64,
    /// Loss probability of each frame in either direction, in 1/1000.
    pub loss: u32,
    /// Losses in bursts, besides `loss`, in either direction.
    pub bursts: Option<Bursts>,
    /// Probability in 1/1000 that a frame in either direction is delayed by up to three further latencies.
    pub reordering: u32,
    pub round_trip: Duration,
    pub seed: u64,
}

/// Returns the measurements of the goodput table: each operation at three round-trip times and four loss
/// rates.
///
/// For each operation and round-trip time, the lossless measurement comes first.
pub fn table() -> impl Iterator<Item = Cell> {
    /// Bytes per measurement: about 30 losses at a loss rate of 1/1000.
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
                bursts: None,
                reordering: 0,
                round_trip: Duration::from_micros(micros),
                seed: 7,
            })
        })
    })
}

/// Returns the measurements of the table of other faults: messages of each size over a round trip of 100 us, without faults,
/// with single losses, with losses in bursts, and with reordering.
///
/// For each size, the measurement without faults comes first.
pub fn faults_table() -> impl Iterator<Item = Cell> {
    let kinds = [
        (Kind::Write, 1 << 20, 4, 32),
        (Kind::Read, 1 << 20, 4, 32),
        (Kind::Send, 8 << 10, 64, 8192),
        (Kind::Send, 256, 64, 32_768),
    ];
    let bursts = |mean, loss| Some(Bursts::of_mean(mean, loss));
    let faults = [
        (0, None, 0),
        (10, None, 0),
        (0, bursts(2, 10), 0),
        (0, bursts(8, 10), 0),
        (0, bursts(8, 50), 0),
        (0, None, 10),
        (0, None, 100),
    ];
    kinds.into_iter().flat_map(move |(kind, message, outstanding, count)| {
        faults.into_iter().map(move |(loss, bursts, reordering)| Cell {
            kind,
            message,
            count,
            outstanding,
            loss,
            bursts,
            reordering,
            round_trip: Duration::from_micros(100),
            seed: 7,
        })
    })
}

/// Results of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Bytes of all messages.
    pub delivered: u64,
    /// Payload bytes of all frames, including retransmissions.
    pub sent: u64,
    /// Virtual time from the first request to the last completion.
    pub elapsed: Duration,
    /// Longest time without a completion.
    pub stall: Duration,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
}

impl Figures {
    /// Returns the goodput in bytes per second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the ratio of payload bytes sent to payload bytes delivered.
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

/// Transfers the messages of `cell` between two hosts over a link of [`RATE`], with path MTU 1024, the largest that adapters
/// with an MTU of 1500 have, and else the default engine configuration.
///
/// # Panics
/// Panics if a request fails, or if none completes for 300 s of virtual time.
#[must_use]
pub fn measure(cell: &Cell) -> Figures {
    let config: fn(&mut Config) = |config| config.max_mtu = PathMtu::Bytes1024;
    let reads = Config::new(0, [0; 32]).max_reads;
    measure_with(cell, &Options { reads, config, ..Options::default() })
}

/// Like [`measure`], with other options. Options that `cell` also defines are taken from `cell`.
///
/// # Panics
/// As [`measure`].
#[must_use]
pub fn measure_with(cell: &Cell, options: &Options) -> Figures {
    // Losses begin when the connection is established.
    let mut hosts = TwoHosts::connected(Options {
        seed: cell.seed,
        mtu: PathMtu::Bytes1024,
        latency: cell.round_trip / 2,
        rate: Some(RATE),
        send_depth: 256,
        recv_depth: 256,
        cq_depth: 1024,
        ..options.clone()
    });
    hosts.options.loss = cell.loss;
    hosts.options.bursts = cell.bursts;
    hosts.options.reordering = cell.reordering;
    // Side 0 is the requester. It sends the data, except with READ.
    let [near, far] = &hosts.sides;
    // Each outstanding message has local memory of its own: READs into the same memory wait for each other after a loss.
    let local = near.shared(cell.message * cell.outstanding as usize);
    let remote = far.shared(cell.message);
    let remote = remote.all();
    let operation = match cell.kind {
        Kind::Send => SendOperation::Send,
        Kind::Write => SendOperation::Write { address: remote.address, key: remote.key },
        Kind::Read => SendOperation::Read { address: remote.address, key: remote.key },
    };
    let sender = usize::from(cell.kind == Kind::Read);
    let count = |hosts: &TwoHosts, name: &str| hosts.sides.each_ref().map(|side| side.stat(name));
    let (sent, timeouts) = (count(&hosts, "tx_bytes")[sender], count(&hosts, "timeouts")[0]);
    let start = hosts.now;
    let (mut posted, mut done, mut last, mut stall) = (0, 0, start, Duration::ZERO);
    while done < cell.count {
        while posted < cell.count && posted - done < cell.outstanding {
            let [near, far] = &hosts.sides;
            if cell.kind == Kind::Send {
                let request = RecvRequest { context: posted, sges: &[remote] };
                far.engine.post_recv(&far.qp, &request).unwrap();
            }
            let slot = (posted % cell.outstanding) as usize;
            let data = &[local.sge(slot * cell.message, cell.message)];
            let data = SendData::Sges(data);
            let request = SendRequest { context: posted, operation, flags: SendFlags::empty(), data };
            near.engine.post_send(&near.qp, &request).unwrap();
            posted += 1;
        }
        hosts.run_until("a completion", |hosts| !hosts.sides[0].cq.is_empty());
        for side in &hosts.sides {
            assert!(side.completions().iter().all(|completion| {
                assert_eq!(completion.status, CompletionStatus::Success, "{cell:?}");
                done += u64::from(!completion.kind.is_receive());
                true
            }));
        }
        stall = stall.max(hosts.now.duration_since(last));
        last = hosts.now;
    }
    Figures {
        delivered: cell.message as u64 * cell.count,
        sent: count(&hosts, "tx_bytes")[sender] - sent,
        elapsed: hosts.now.duration_since(start),
        stall,
        timeouts: count(&hosts, "timeouts")[0] - timeouts,
    }
}
