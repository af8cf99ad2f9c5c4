//! The driver's image from load to unload, under the verifier.
//!
//! The image is `target/image/viordma.sys` of the workspace, or what `NTSIM_VIORDMA` names. Without it the tests pass
//! and say so, unless `NTSIM_REQUIRE_IMAGES` is set.

use std::{
    env,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use ntsim::{
    ClockKind, Host, Sim,
    device::{Nic, NicOptions, Quirks},
    host::HostOptions,
    ndis::Miniport,
};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn image() -> Option<PathBuf> {
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

fn simulation(seed: u64) -> Sim {
    Sim::builder().clock(ClockKind::Deterministic { seed }).build()
}

fn load(host: &Arc<Host>, path: &Path) {
    host.load_image(path).expect("the image loads");
    let this = host.clone();
    let status = host.spawn("system", move || this.start_driver("viordma")).join();
    assert_eq!(status, Ok(0), "DriverEntry");
}

fn unload(host: &Arc<Host>) {
    let this = host.clone();
    host.spawn("system", move || this.stop_driver()).join().expect("the host lives");
}

fn new_host(sim: &mut Sim, index: usize, quirks: Quirks) -> (Arc<Host>, Arc<Nic>) {
    let host = sim.add_host(HostOptions::new(["left", "right"][index]));
    let nic = host.plug(NicOptions { quirks, ..NicOptions::new(MACS[index]) });
    host.add_address(IpAddr::from([10, 0, 0, 1 + index as u8]), 24);
    (host, nic)
}

/// Starts an adapter; a host that died on it is shown with its verdict.
fn start(sim: &Sim, host: &Arc<Host>) -> Miniport {
    Miniport::start(host)
        .unwrap_or_else(|error| panic!("{error}: {:x?}\n{}", host.event_log(), sim.verdict()))
}

fn assert_clean(sim: &Sim) {
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn the_driver_lives_from_load_to_unload_without_a_trace() {
    let Some(path) = image() else { return };
    let mut sim = simulation(1);
    let (host, _) = new_host(&mut sim, 0, Quirks::default());
    load(&host, &path);
    let miniport = start(&sim, &host);
    assert!(miniport.attributes().ndk.is_some_and(|(enabled, ..)| enabled));
    let opened = miniport.open_ndk(1, 2).expect("RDMA is on");
    miniport.close_ndk(opened).expect("the host lives");
    miniport.pause().expect("the host lives");
    miniport.restart().expect("it restarts");
    miniport.halt().unwrap_or_else(|lost| panic!("{lost}\n{}", sim.verdict()));
    unload(&host);
    assert_clean(&sim);
    assert_eq!(host.event_log(), [], "nothing to report");
}
