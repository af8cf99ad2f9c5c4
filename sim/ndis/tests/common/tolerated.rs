// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport whose driver has an image, so that faults can be tolerated of it.

use std::fs;

use ndis_sim::Miniport;
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use nt_sim::{DriverOptions, Tolerances, Verdict, image::smallest};

use super::scripted::{Script, host, register_as, simulation};

/// Runs a miniport whose driver has an image, of which `tolerates` is tolerated; `body` while it runs.
pub fn run(script: Script, tolerates: Tolerances, body: fn(&Miniport)) -> Verdict {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("small.sys");
    fs::write(&path, smallest::image()).expect("the image can be written");
    let mut sim = simulation();
    let host = host(&mut sim);
    let driver = host.load_driver(&path, DriverOptions::new("small").tolerate(tolerates)).expect("it loads");
    let registered = register_as(&host, driver.object(), script, |_| {});
    assert_eq!(registered, Some(NDIS_STATUS_SUCCESS), "{}", sim.verdict());
    if let Ok(miniport) = Miniport::start(&host) {
        body(&miniport);
        let pausing = miniport.clone();
        let _ = host.spawn("pause", move || pausing.pause()).join();
        if !host.is_dead() {
            let _ = miniport.halt();
        }
    }
    sim.verdict()
}
