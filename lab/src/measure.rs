// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many operations through the image, between two hosts with the verifier off.

use std::{net::SocketAddr, ops::Range, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ndk_consumer::bench;
pub use ndk_consumer::bench::{BenchResult, Transfers};
use serde::{Deserialize, Serialize};

use crate::{
    cpu_time,
    machine::Machine,
    testbed::{Options, Testbed},
};

const PORT: u16 = 5446;
/// Time limit for the client to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The measured operations.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// RDMA Writes.
    Writes(Transfers),
    /// RDMA Reads.
    Reads(Transfers),
    /// Sends of `size` bytes.
    Sends { count: u64, size: usize },
}

/// Counters of the first NIC of a host.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct HostCounters {
    pub sent_frames: u64,
    pub received_frames: u64,
    pub notifications: u64,
    /// Batches of frames that the device was not notified of, because it was at work.
    pub suppressed: u64,
    pub interrupts: u64,
}

/// A host that took part.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Addresses of the driver's image.
    pub image: Range<u64>,
    pub counters: HostCounters,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    pub result: BenchResult,
    /// CPU time of all threads of this process while the initiator ran.
    pub cpu: Duration,
    /// The initiator's host, and the target's.
    pub hosts: [HostReport; 2],
}

/// Runs the operations between two hosts with the driver `image`, in real time or in virtual time.
///
/// # Errors
/// The image cannot be loaded or started, an operation fails, or a violation is found.
pub fn run(image: &Path, work: Work, real_time: bool) -> Result<Run> {
    let options = Options { real_time, verifier: false, ..Options::default() };
    let mut bed = Testbed::new(image, &options)?;
    bed.start()?;
    let [client, server] = bed.machines();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), PORT));
    let window = match work {
        Work::Writes(transfers) | Work::Reads(transfers) => transfers.size * transfers.outstanding as usize,
        Work::Sends { .. } => 1,
    };
    let listening = bed.event();
    let serving = {
        let listening = listening.clone();
        server.consumer("server", move |adapter| {
            let outcome = bench::serve(adapter, remote, window, TIMEOUT, |_| listening.set());
            // Also if listening failed: the client must not wait.
            listening.set();
            outcome
        })
    };
    let measuring = client.consumer("client", move |adapter| {
        let _ = listening.wait(TIMEOUT);
        let before = cpu_time::of_process();
        let result = match work {
            Work::Writes(transfers) => bench::writes(adapter, local, remote, transfers),
            Work::Reads(transfers) => bench::reads(adapter, local, remote, transfers),
            Work::Sends { count, size } => bench::sends(adapter, local, remote, count, size),
        };
        (result, cpu_time::of_process().saturating_sub(before))
    });
    let (result, cpu) = measuring.join()?;
    serving.join()?.context("the server")?;
    let hosts = bed.machines().map(report);
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(Run { result: result?, cpu, hosts })
}

fn report(machine: &Machine) -> HostReport {
    let (image, nic) = (machine.driver().image(), machine.nic().counters());
    let base = image.base() as u64;
    HostReport {
        image: base..base + image.size() as u64,
        counters: HostCounters {
            sent_frames: nic.sent_frames,
            received_frames: nic.received_frames,
            notifications: nic.notifications,
            suppressed: machine.counters().get("tx_notifications_suppressed").copied().unwrap_or(0),
            interrupts: nic.interrupts,
        },
    }
}
