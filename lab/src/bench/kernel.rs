// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cost of the simulated kernel: calls of imports, spin locks and DPCs of the test driver's image, under both clocks, with
//! the verifier on and off.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use nt_sim::{ClockKind, DriverOptions, Sim, host::HostOptions};

use super::figure::{Figure, Unit};
use crate::cpu_time;

/// The loops of the test driver, and what one operation of each is.
const LOOPS: [(&str, &str); 5] = [
    ("bench import calls", "a call of an import"),
    ("bench spin locks", "a spin lock acquired and released"),
    (IRQL_IN_CR8, "a change of the IRQL by mov cr8"),
    ("bench requeued DPCs", "a DPC that a DPC queues"),
    ("bench awaited DPCs", "a DPC queued and awaited by a thread"),
];

/// The loop of `mov cr8`.
const IRQL_IN_CR8: &str = "bench IRQL in cr8";

/// Operations of each loop: `OPERATIONS` of the test driver.
const OPERATIONS: f64 = 100_000.0;

/// Runs of each loop, of which the fastest counts.
const RUNS: usize = 5;

/// Measures the CPU time of all threads per operation.
pub fn measure(driver: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for (service, what) in LOOPS {
        for (clock, clock_name) in
            [(ClockKind::Threaded, "threaded"), (ClockKind::Deterministic { seed: 1 }, "deterministic")]
        {
            for verifier in [true, false] {
                let name = format!("{what}, {clock_name}{}", if verifier { "" } else { ", no verifier" });
                say(format!("kernel: {name}"));
                let best = operation(driver, service, clock, verifier)?;
                figures.push(Figure::new(name, best * 1e9, Unit::Nanoseconds));
            }
        }
    }
    Ok(())
}

/// Returns the CPU time in seconds of an access of an image to `cr8`, in real time, with the verifier off.
pub(super) fn irql_access(driver: &Path) -> Result<f64> {
    operation(driver, IRQL_IN_CR8, ClockKind::Threaded, false)
}

/// Returns the CPU time in seconds of an operation of a loop, in the fastest of [`RUNS`].
fn operation(driver: &Path, service: &'static str, clock: ClockKind, verifier: bool) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        best = best.min(time(driver, service, clock, verifier)?);
    }
    Ok(best.as_secs_f64() / OPERATIONS)
}

/// Returns the CPU time of the driver's `DriverEntry`, which runs the loop that `service` names.
fn time(driver: &Path, service: &'static str, clock: ClockKind, verifier: bool) -> Result<Duration> {
    let mut sim = Sim::builder().clock(clock).build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, verifier, ..HostOptions::new("host") });
    let driver = host.load_driver(driver, DriverOptions::new(service))?;
    let running = host.spawn("driver", move || {
        let start = cpu_time::of_process();
        let status = driver.start();
        let time = cpu_time::of_process().saturating_sub(start);
        driver.unload();
        (status, time)
    });
    let (status, time) = running.join()?;
    ensure!(status >= 0, "'{service}' failed with status {status:#x}");
    let verdict = sim.verdict();
    ensure!(verdict.is_clean(), "{verdict}");
    Ok(time)
}
