// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of power transitions and shutdown: each is reported to a miniport that commits the offence.

use crate::common::device::{power_capabilities, registers, reset_device, run_device, set_power_capable};
use crate::common::scripted::{
    Script, assert_reported, general_with, host, in_initialize, interrupt_with, register, simulation,
    verdict_while_running,
};
use ndis_sim::Miniport;
use ndk_abi::ndis::{
    NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OID_REQUEST,
    NDIS_PM_CAPABILITIES_REVISION_1, NDIS_REQUEST_TYPE, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1,
    NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS, OID_PM_PARAMETERS, OID_PNP_QUERY_POWER,
    OID_PNP_SET_POWER,
};
use nt_sim::guest::Guest;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `MiniportOidRequest`, with the adapter's handle.
type Answer = fn(usize, *mut NDIS_OID_REQUEST) -> NDIS_STATUS;

fn is_set(request: *mut NDIS_OID_REQUEST) -> bool {
    Guest::new(request).read().RequestType == NDIS_REQUEST_TYPE::NdisRequestSetInformation
}

/// Refuses one request.
fn refuse<const OID: u32>(_: usize, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let request = Guest::new(request).read();
    // SAFETY: every member begins with the OID.
    let set = unsafe { request.DATA.SET_INFORMATION };
    if set.Oid == OID { NDIS_STATUS_FAILURE } else { NDIS_STATUS_SUCCESS }
}

/// A miniport with power management, which initializes its device with `initialize` and answers requests with `answer`.
fn capable(initialize: fn(usize), answer: Answer) -> Script {
    Script { answer: Some(answer), ..in_initialize(initialize) }
}

#[track_caller]
fn assert_reported_while_running(script: Script, body: fn(&Miniport), expected: &str) {
    let verdict = verdict_while_running(script, body);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

#[test]
fn short_capabilities_are_reported() {
    let short = |handle| {
        general_with(handle, |attributes| {
            attributes.PowerManagementCapabilitiesEx = power_capabilities(8);
        });
    };
    assert_reported(
        in_initialize(short),
        "NDIS_PM_CAPABILITIES of revision 2 and 8 bytes; NDIS 6.30 has revision 2, NDIS 6.20 revision 1",
    );
}

#[test]
fn requests_that_fail_are_reported() {
    let answers: [(Answer, &str); 3] = [
        (refuse::<OID_PNP_QUERY_POWER>, "OID_PNP_QUERY_POWER failed, which is not allowed"),
        (refuse::<OID_PM_PARAMETERS>, "OID_PM_PARAMETERS that enables nothing failed"),
        (refuse::<OID_PNP_SET_POWER>, "OID_PNP_SET_POWER to D3 failed"),
    ];
    for (answer, expected) in answers {
        let sleep = |miniport: &Miniport| _ = miniport.sleep();
        assert_reported_while_running(capable(set_power_capable, answer), sleep, expected);
    }
}

fn start_capable(handle: usize) {
    set_power_capable(handle);
    let _ = interrupt_with(handle, |_| {});
    run_device(handle);
}

/// A miniport that resets its device when it is asked for a power state.
fn correct() -> Script {
    let answer = |handle, request| {
        if is_set(request) {
            reset_device(handle);
        }
        NDIS_STATUS_SUCCESS
    };
    capable(start_capable, answer)
}

#[test]
fn device_that_is_used_in_d3_is_reported() {
    assert_reported_while_running(
        capable(start_capable, |_, _| NDIS_STATUS_SUCCESS),
        |miniport| _ = miniport.sleep(),
        "the device was put in D3 while it was running: its DMA and interrupts were not stopped",
    );
    assert_reported_while_running(
        correct(),
        |miniport| {
            miniport.sleep().expect("the miniport stops its device");
            reset_device(miniport.adapter().handle);
        },
        "a register was accessed while the device is in D3",
    );
    let correct = verdict_while_running(correct(), |miniport| {
        miniport.sleep().expect("the miniport stops its device");
        assert!(miniport.wake().is_ok());
    });
    assert!(!correct.contains("D3"), "{correct}");
}

#[test]
fn sends_that_are_left_in_d3_are_reported() {
    let script = Script {
        attribute_flags: NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND,
        ..capable(set_power_capable, |_, _| NDIS_STATUS_SUCCESS)
    };
    let sleep_while_sending = |miniport: &Miniport| {
        let _ = miniport.send_chain(&[vec![0; 60]], 0);
        let _ = miniport.sleep();
    };
    assert_reported_while_running(
        script,
        sleep_while_sending,
        "OID_PNP_SET_POWER to D3 completed, but 1 sends are not completed",
    );
}

/// As Microsoft's sample of a virtual miniport and NetKVM do.
#[test]
fn a_miniport_that_is_not_paused_when_it_sleeps_is_not_restarted_when_it_wakes() {
    static RESTARTS: AtomicUsize = AtomicUsize::new(0);
    let script = Script {
        attribute_flags: NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND,
        restart: Some(|_| _ = RESTARTS.fetch_add(1, Ordering::SeqCst)),
        ..correct()
    };
    let verdict = verdict_while_running(script, |miniport| {
        for _ in 0..2 {
            miniport.sleep().expect("the miniport stops its device");
            assert!(miniport.wake().is_ok());
        }
    });
    assert_eq!(RESTARTS.load(Ordering::SeqCst), 1, "the start");
    assert!(!verdict.contains("D3"), "{verdict}");
}

#[test]
fn device_that_runs_after_shutdown_is_reported() {
    assert_reported_while_running(
        in_initialize(run_device),
        |miniport| _ = miniport.shut_down(),
        "MiniportShutdownEx returned while the device is running",
    );
    assert_reported_while_running(
        in_initialize(|handle| _ = registers(handle)),
        |miniport| {
            miniport.shut_down().expect("the device does not run");
            run_device(miniport.adapter().handle);
        },
        "DRIVER_OK was set after the driver was shut down",
    );
}

/// Revision 2 came with NDIS 6.30 (windows-driver-docs-ddi: ntddndis/ns-ntddndis-_ndis_pm_capabilities).
#[test]
fn miniport_of_ndis_6_20_has_the_first_revision_of_power_capabilities() {
    let first = |handle| {
        general_with(handle, |attributes| {
            let capabilities = power_capabilities(NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1);
            // SAFETY: a structure of the test, never freed.
            unsafe { (*capabilities).Header.Revision = NDIS_PM_CAPABILITIES_REVISION_1 };
            attributes.PowerManagementCapabilitiesEx = capabilities;
        });
    };
    let reports = [20, 30].map(|minor| {
        let mut sim = simulation();
        let host = host(&mut sim);
        let script = Script { initialize: Some(first), ..Script::default() };
        let edit = move |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| of.MinorNdisVersion = minor;
        assert_eq!(register(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
        if let Ok(miniport) = Miniport::start(&host) {
            miniport.halt().unwrap();
        }
        sim.verdict().to_string()
    });
    assert_eq!(reports[0], "no violation");
    assert!(
        reports[1].contains("a driver of NDIS 6.30 or later has revision 1 of NDIS_PM_CAPABILITIES"),
        "{}",
        reports[1]
    );
}
