// SPDX-License-Identifier: MIT OR Apache-2.0

//! The scenarios: what consumers on two hosts do from the open of the adapter to its close.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use ndk_abi::ndis::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_RESOURCES};
use ndk_abi::ndk::OID_NDK_SET_STATE;
use ndk_consumer::{
    Adapter, Error, Status,
    protocols::{
        self, Program,
        probe::{Plan, Scenario as Probe},
    },
    transfer,
};

use super::{orders, windows};
use crate::{os::SimOs, testbed::Testbed};

/// How long a server waits for its client.
const WAIT: Duration = Duration::from_secs(30);

/// Actions of the consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Scenario {
    /// The driver starts and stops.
    Start,
    /// Data is written to the peer and read back: SEND, WRITE, READ.
    Transfer,
    /// Messages, then WRITEs and READs of all sizes up to 10,000 bytes.
    Requests,
    /// The server fast-registers memory, which the client's SENDs invalidate.
    FastRegistration,
    /// Three connections with one shared receive queue.
    SharedReceives,
    /// Windows are bound, used by the peer and invalidated.
    Windows,
    /// The device of one host is removed in the middle of a transfer.
    Removal,
    /// RDMA is disabled in the middle of a transfer, and enabled again.
    Disable,
    /// Objects are closed in any order, at any stage of a connection.
    CloseOrders,
}

impl Scenario {
    pub const ALL: [Self; 9] = [
        Self::Start,
        Self::Transfer,
        Self::Requests,
        Self::FastRegistration,
        Self::SharedReceives,
        Self::Windows,
        Self::Removal,
        Self::Disable,
        Self::CloseOrders,
    ];

    /// Returns whether its consumers may fail although no allocation does.
    #[must_use]
    pub fn is_disturbed(self) -> bool {
        matches!(self, Self::Removal | Self::Disable)
    }

    /// Runs the scenario on a testbed that has started. Returns the result of each consumer.
    pub(super) fn run(self, bed: &mut Testbed, seed: u64) -> Vec<Result<(), Error>> {
        let probe = |scenario, length, count| Program::Probe(Plan { scenario, length, count });
        match self {
            Self::Start => Vec::new(),
            Self::Transfer => transfer_between(bed, seed, Nothing),
            Self::Requests => {
                let programs = [
                    Program::Rping { rounds: 2, size: 100 },
                    probe(Probe::Send, 10_000, 1),
                    probe(Probe::Write, 10_000, 1),
                    probe(Probe::Read, 10_000, 1),
                ];
                programs.iter().flat_map(|program| run_program(bed, program)).collect()
            }
            Self::FastRegistration => run_program(bed, &probe(Probe::Invalidate, 256, 1)),
            Self::SharedReceives => run_program(bed, &probe(Probe::Srq, 64, 3)),
            Self::Windows => {
                on_both(bed, |adapter, local, ready| windows::serve(adapter, local, ready), windows::client)
                    .join()
            }
            Self::Removal => transfer_between(bed, seed, Remove),
            Self::Disable => {
                let mut results = transfer_between(bed, seed, Disable);
                results.extend(run_program(bed, &Program::RdmaClient));
                results
            }
            Self::CloseOrders => close_orders(bed, seed),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Two consumers that run.
struct TwoConsumers(crate::machine::Consumer<Result<(), Error>>, crate::machine::Consumer<Result<(), Error>>);

impl TwoConsumers {
    /// Waits for both.
    fn join(self) -> Vec<Result<(), Error>> {
        [self.0, self.1].map(|consumer| consumer.join().unwrap_or_else(|error| Err(not_run(&error)))).into()
    }
}

/// Text of an error of a consumer that did not run, because the adapter is not there or RDMA is disabled.
pub(super) const NO_ADAPTER: &str = "no adapter";

/// Returns the error of a consumer that did not run.
fn not_run(error: &anyhow::Error) -> Error {
    let text = format!("{error:#}");
    if text.contains(&format!("{NDIS_STATUS_RESOURCES:#010x}")) {
        Error::Call("OpenNDKAdapterHandler", Status::INSUFFICIENT_RESOURCES)
    } else if text.contains(&format!("{NDIS_STATUS_ADAPTER_NOT_READY:#010x}")) || text.contains("not started")
    {
        Error::Protocol(NO_ADAPTER)
    } else {
        Error::Protocol(Box::leak(text.into_boxed_str()))
    }
}

type Adapters = Arc<Adapter<SimOs>>;

/// Starts a server on the second host, and a client on the first one when it listens.
fn on_both(
    bed: &Testbed,
    serve: impl FnOnce(&Adapters, SocketAddr, &dyn Fn()) -> Result<(), Error> + Send + 'static,
    client: impl FnOnce(&Adapters, SocketAddr, SocketAddr) -> Result<(), Error> + Send + 'static,
) -> TwoConsumers {
    let [first, second] = bed.machines();
    let (local, remote) = (SocketAddr::new(first.address(), 0), SocketAddr::new(second.address(), 7000));
    let listening = bed.event();
    let ready = listening.clone();
    let serving = second.consumer("server", move |adapter| {
        let outcome = serve(adapter, remote, &|| ready.set());
        // Also if listening failed: the client must not wait.
        ready.set();
        outcome
    });
    let connecting = first.consumer("client", move |adapter| {
        let _ = listening.wait(WAIT);
        client(adapter, local, remote)
    });
    TwoConsumers(connecting, serving)
}

fn run_program(bed: &Testbed, program: &Program) -> Vec<Result<(), Error>> {
    let (served, run) = (program.clone(), program.clone());
    let complete = |outcome: protocols::Outcome| {
        let total = outcome.stats.total();
        match (total.outstanding(), outcome.stats.unexpected) {
            (0, 0) => Ok(()),
            (0, _) => Err(Error::Mismatch("a completion without a request")),
            (missing, _) => Err(Error::MissingCompletions(missing)),
        }
    };
    on_both(
        bed,
        move |adapter, local, ready| {
            protocols::serve(adapter, &served, local, WAIT, |_| ready()).and_then(complete)
        },
        move |adapter, local, remote| protocols::client(adapter, &run, local, remote).and_then(complete),
    )
    .join()
}

/// Event in the middle of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    Nothing,
    Remove,
    Disable,
}

use Disturbance::{Disable, Nothing, Remove};

/// Data that the seed determines.
struct Generated(u64);

impl transfer::Source for Generated {
    fn len(&self) -> u64 {
        20_000
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ndk_consumer::Cause> {
        for (at, byte) in (offset..).zip(into) {
            *byte = (self.0.wrapping_add(at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 8 * 8)) as u8;
        }
        Ok(())
    }
}

/// Copies data to the second host and back.
fn transfer_between(bed: &mut Testbed, seed: u64, disturbance: Disturbance) -> Vec<Result<(), Error>> {
    // Short waits: a peer that is gone does not connect.
    let options = transfer::Options { timeout: WAIT, ..transfer::Options::default() };
    let ended = |outcome: Result<transfer::Report, Box<transfer::Failure>>| match outcome {
        Ok(report) if report.stats.outstanding() == 0 && report.stats.unexpected == 0 => Ok(()),
        Ok(report) => Err(Error::MissingCompletions(report.stats.outstanding())),
        Err(failure) if failure.report.stats.unexpected != 0 => {
            Err(Error::Mismatch("a completion without a request"))
        }
        Err(failure) => Err(failure.error),
    };
    let pair = on_both(
        bed,
        move |adapter, local, ready| ended(transfer::serve(adapter, &options, local, |_| ready(), &|_| {})),
        move |adapter, local, remote| {
            ended(transfer::copy(adapter, &options, local, remote, "data", &Generated(seed), &|_| {}))
        },
    );
    // From before the connection is established until after the transfer.
    let moment = Duration::from_micros(seed.wrapping_mul(7919) % 400);
    let host = (seed / 4 % 2) as usize;
    match disturbance {
        Nothing => {}
        Remove => {
            let _ = bed.event().wait(moment);
            // Fails if the adapter has not started.
            let _ = bed.machine_mut(host).surprise_remove_adapter();
        }
        Disable => {
            let _ = bed.event().wait(moment);
            let miniport = bed.machines()[host].miniport().cloned();
            let Some(miniport) = miniport else { return pair.join() };
            // Waits until the consumers have closed. Refused if an allocation fails.
            let _ = miniport.set(OID_NDK_SET_STATE, &[0]);
            let results = pair.join();
            let _ = miniport.set(OID_NDK_SET_STATE, &[1]);
            return results;
        }
    }
    pair.join()
}

/// Closes the objects of one adapter in an order that the seed selects.
fn close_orders(bed: &Testbed, seed: u64) -> Vec<Result<(), Error>> {
    let [machine, _] = bed.machines();
    let Some(miniport) = machine.miniport().cloned() else { return Vec::new() };
    let IpAddr::V4(ip) = machine.address() else { return Vec::new() };
    let event = bed.event();
    let consumer = machine.host().spawn("consumer", move || {
        let Ok(opened) = miniport.ndk().open(2, 0) else { return Ok(false) };
        let outcome = orders::close_in_any_order(opened.as_ptr(), ip, &event, seed);
        // The host may be dead.
        let _ = miniport.ndk().close(opened);
        outcome
    });
    match consumer.join() {
        Ok(Ok(true)) => vec![Ok(())],
        Ok(Ok(false)) => vec![Err(Error::Call("a create call", Status::INSUFFICIENT_RESOURCES))],
        Ok(Err(text)) => vec![Err(Error::Protocol(Box::leak(text.into_boxed_str())))],
        Err(_) => Vec::new(),
    }
}
