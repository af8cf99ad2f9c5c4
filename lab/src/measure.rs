// SPDX-License-Identifier: MIT OR Apache-2.0

//! Throughput of the image: two hosts in real time, with the verifier off.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ndk_consumer::bench;
pub use ndk_consumer::bench::BenchResult;

use crate::testbed::{Options, Testbed};

const PORT: u16 = 5446;
/// Time limit for the client to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The measured operations.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// RDMA Writes of `size` bytes, up to `outstanding` of them at a time.
    Writes { count: u64, size: usize, outstanding: u32 },
    /// Sends of `size` bytes.
    Sends { count: u64, size: usize },
}

/// Runs the operations between two hosts with the driver `image`.
///
/// # Errors
/// The image cannot be loaded or started, an operation fails, or a violation is found.
pub fn run(image: &Path, work: Work) -> Result<BenchResult> {
    let options = Options { real_time: true, verifier: false, ..Options::default() };
    let mut bed = Testbed::new(image, &options)?;
    bed.start()?;
    let [client, server] = bed.machines();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), PORT));
    let window = match work {
        Work::Writes { size, outstanding, .. } => size * outstanding as usize,
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
        match work {
            Work::Writes { count, size, outstanding } => {
                bench::writes(adapter, local, remote, count, size, outstanding)
            }
            Work::Sends { count, size } => bench::sends(adapter, local, remote, count, size),
        }
    });
    let figures = measuring.join()?;
    serving.join()?.context("the server")?;
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(figures?)
}
