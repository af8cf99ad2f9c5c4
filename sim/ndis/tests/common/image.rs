// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's image: `target/image/viordma.sys` of the workspace, or the file that `NTSIM_VIORDMA` names. Without it
//! tests pass with a message, unless `NTSIM_REQUIRE_IMAGES` is set.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use nt_sim::{ClockKind, DriverOptions, Host, Sim};

pub fn image() -> Option<PathBuf> {
    let named = env::var_os("NTSIM_VIORDMA").map(PathBuf::from);
    let path =
        named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/image/viordma.sys"));
    if path.exists() {
        return Some(path);
    }
    assert!(env::var_os("NTSIM_REQUIRE_IMAGES").is_none(), "{} is missing", path.display());
    eprintln!("skipped: {} is missing", path.display());
    None
}

pub fn simulation(seed: u64) -> Sim {
    ndis_sim::builder().clock(ClockKind::Deterministic { seed }).build()
}

pub fn load(host: &Arc<Host>, path: &Path) {
    let driver = host.load_driver(path, DriverOptions::new("viordma")).expect("the image loads");
    let status = host.spawn("system", move || driver.start()).join();
    assert_eq!(status, Ok(0), "DriverEntry");
}

pub fn unload(host: &Arc<Host>) {
    let driver = host.drivers().pop().expect("a driver is loaded");
    host.spawn("system", move || driver.unload()).join().expect("the host lives");
}
