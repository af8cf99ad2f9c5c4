// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running the test driver.

use std::{
    env,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use nt_sim::{DriverOptions, Sim, Verdict, host::HostOptions, sim::SimBuilder};

/// The image of the test driver, which `cargo xtask image --package test-driver` builds. Tests that need
/// it pass without it unless `NTSIM_REQUIRE_IMAGES` is set.
pub static TEST_DRIVER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/image/test-driver.sys");
    let path = env::var_os("NTSIM_TESTDRV").map_or(built, PathBuf::from);
    if path.exists() {
        return Some(path);
    }
    assert!(env::var_os("NTSIM_REQUIRE_IMAGES").is_none(), "{} is missing", path.display());
    eprintln!("skipped: {} is missing; cargo xtask image --package test-driver builds it", path.display());
    None
});

/// How a driver ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Unloaded,
    /// `DriverEntry` failed.
    Refused(i32),
    Crashed,
}

/// Loads the test driver, lets it commit one violation, and unloads it.
pub fn run(sim: SimBuilder, violation: &'static str) -> (Outcome, Verdict) {
    let (outcome, verdict, ()) = run_for(sim, violation, |_| ());
    (outcome, verdict)
}

/// Runs a driver as [`run`] does; also returns what `query` returns at the end of the simulation.
pub fn run_for<T>(
    sim: SimBuilder,
    violation: &'static str,
    query: impl FnOnce(&Sim) -> T,
) -> (Outcome, Verdict, T) {
    let mut sim = sim.build();
    let options = HostOptions { memory: 64 << 20, ..HostOptions::new("host") };
    let host = sim.add_host(options);
    let path = TEST_DRIVER.as_ref().expect("checked by the test");
    let loaded = host.load_driver(path, DriverOptions::new(violation)).expect("the test driver loads");
    let driver = host.spawn("driver", move || {
        let status = loaded.start();
        if status < 0 {
            return Outcome::Refused(status);
        }
        loaded.unload();
        Outcome::Unloaded
    });
    let outcome = driver.join().unwrap_or(Outcome::Crashed);
    (outcome, sim.verdict(), query(&sim))
}
