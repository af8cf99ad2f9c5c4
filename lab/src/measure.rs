// SPDX-License-Identifier: MIT OR Apache-2.0

//! Timing the image: two hosts in real time, with the verifier off.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ndk_consumer::bench;
pub use ndk_consumer::bench::Figures;

use crate::testbed::{Options, Testbed};

const PORT: u16 = 5446;
/// How long the serving side waits for the other one.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// RDMA Writes of so many bytes each, so many of them outstanding.
    Writes { count: u64, size: usize, outstanding: u32 },
    /// Sends of so many bytes each.
    Sends { count: u64, size: usize },
}

/// Runs the work between two hosts with `image` on them.
pub fn run(image: &Path, work: Work) -> Result<Figures> {
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
            let outcome = bench::serve(adapter, remote, window, PATIENCE, |_| listening.set());
            // Whoever waits for a listener that could not be made must not wait for ever.
            listening.set();
            outcome
        })
    };
    let measuring = client.consumer("client", move |adapter| {
        let _ = listening.wait(PATIENCE);
        match work {
            Work::Writes { count, size, outstanding } => {
                bench::writes(adapter, local, remote, count, size, outstanding)
            }
            Work::Sends { count, size } => bench::sends(adapter, local, remote, count, size),
        }
    });
    let figures = measuring.join()?;
    serving.join()?.context("the serving side")?;
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(figures?)
}
