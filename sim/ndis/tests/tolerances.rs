// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rules that no documentation has: drivers that Windows runs break them, so that each can be tolerated by name.

use std::fs;

use crate::common::{
    lists::{free, list},
    pe,
    scripted::{Script, general_with, host, in_initialize, kept, register_as, simulation},
};
use ndis_sim::{Miniport, data_path, runtime};
use ndk_abi::ndis::{
    NDIS_MEDIA_CONNECT_STATE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES,
    NDIS_PM_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1, NDIS_STATUS_SUCCESS,
};
use nt_sim::{DriverOptions, Tolerance, Tolerances, Verdict};

/// Runs a miniport whose driver has an image, of which `tolerates` is tolerated.
fn run(script: Script, tolerates: Tolerances) -> Verdict {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("small.sys");
    fs::write(&path, pe::image()).expect("the image can be written");
    let mut sim = simulation();
    let host = host(&mut sim);
    let driver = host.load_driver(&path, DriverOptions::new("small").tolerate(tolerates)).expect("it loads");
    let registered = register_as(&host, driver.object(), script, |_| {});
    assert_eq!(registered, Some(NDIS_STATUS_SUCCESS), "{}", sim.verdict());
    if let Ok(miniport) = Miniport::start(&host) {
        let pausing = miniport.clone();
        let _ = host.spawn("pause", move || pausing.pause()).join();
        if !host.is_dead() {
            let _ = miniport.halt();
        }
    }
    sim.verdict()
}

fn first_power_revision(handle: usize) {
    general_with(handle, |attributes| {
        let mut capabilities = NDIS_PM_CAPABILITIES::zeroed();
        capabilities.Header = NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_PM_CAPABILITIES_REVISION_1,
            Size: NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1,
        };
        attributes.PowerManagementCapabilitiesEx = kept(capabilities).as_ptr();
    });
}

fn disconnected_link_with_a_speed(handle: usize) {
    general_with(handle, |attributes| {
        attributes.MediaConnectState = NDIS_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected;
    });
}

/// Indicates a list three times, and writes nothing into its information in between.
fn stale_information(handle: usize) -> i32 {
    let list = list(handle);
    for _ in 0..3 {
        data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
        // The stack returns it.
        runtime::NdisMSleep(1000);
    }
    free(list);
    NDIS_STATUS_SUCCESS
}

#[test]
fn what_no_documentation_forbids_is_reported_and_can_be_tolerated_by_name() {
    let cases = [
        (
            in_initialize(first_power_revision),
            Tolerance::PowerRevision,
            "a driver of NDIS 6.30 or later has revision 1 of NDIS_PM_CAPABILITIES",
        ),
        (
            in_initialize(disconnected_link_with_a_speed),
            Tolerance::DisconnectedLink,
            "a disconnected link is reported with a speed or a duplex state",
        ),
        (
            Script { pause: Some(stale_information), ..Script::default() },
            Tolerance::StaleInfo,
            "a received NET_BUFFER_LIST has NetBufferListInfo of an earlier frame",
        ),
    ];
    for (script, fault, text) in cases {
        let refused = run(script, Tolerances::NONE);
        let report = &refused.violations[0].text;
        let hint = format!("; no documentation forbids it, and '--tolerate {}' accepts it", fault.name());
        assert!(report.starts_with(text) && report.ends_with(&hint), "{report}");
        let accepted = run(script, Tolerances::NONE.with(fault));
        assert!(accepted.is_clean(), "{accepted}");
        // Once, however often it happens.
        assert_eq!(accepted.tolerated.len(), 1, "{:?}", accepted.tolerated);
        assert!(accepted.tolerated[0].text.starts_with(text));
    }
}
