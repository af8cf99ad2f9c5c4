// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loading, starting, stopping and unloading the driver, on valid devices and on broken ones.

use std::{collections::BTreeSet, time::Duration};

use device_sim::{
    Quirks, pci,
    pci::{BarLayout, BrokenCapabilities, Identity},
    virtio_net::Features,
};
use lab::{image, testbed::Options};
use ndis_sim::{Keyword, NdisHost};
use support::failed_starts::{bed, bed_with, command, event, events_of_failed_start, finish};

/// RDMA ports are a space of their own: the image imports nothing that could take a port of TCP, as Winsock Kernel and the
/// reservations of the IP helper do.
//= R-CONN-63
#[test]
fn driver_takes_no_ports_of_tcp() {
    let Some(image) = image() else { return };
    let image = std::fs::read(image).expect("the image can be read");
    let imports = |name: &str| image.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    assert!(imports("GetUnicastIpAddressTable"));
    for name in ["WskRegister", "WskCaptureProviderNPI", "TdiOpen", "CreatePersistentTcpPortReservation"] {
        assert!(!imports(name), "{name}");
    }
}

#[test]
fn driver_starts_and_stops_without_events_or_leaks() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    bed.start().expect("both drivers start");
    assert!(bed.machines()[0].event_log().is_empty(), "nothing to report");
    finish(bed);
}

/// Lines for a debugger: the start, and each event.
#[test]
fn starts_and_failures_are_printed_for_a_debugger() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    bed.start().expect("both drivers start");
    let machine = bed.machines()[0];
    let lines = || machine.host().debug_output();
    assert!(
        lines().iter().any(|line| line.contains(" started, features ") && line.ends_with("queue pairs 1\n"))
    );
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_secs(1));
    for number in [22, 41] {
        let event = format!(", event {number}, data 0, 0\n");
        assert!(lines().iter().any(|line| line.starts_with("viordma: adapter ") && line.ends_with(&event)));
    }
    finish(bed);
}

#[test]
fn driver_without_a_device_unloads() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    bed.machine_mut(0).enter().expect("DriverEntry succeeds");
    finish(bed);
}

#[test]
fn adapter_can_be_restarted() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    let machine = bed.machine_mut(0);
    machine.enter().expect("DriverEntry succeeds");
    for _ in 0..3 {
        machine.start_adapter().expect("the adapter starts");
        machine.halt_adapter().expect("the adapter halts");
    }
    finish(bed);
}

#[test]
fn device_without_version_1_is_rejected_with_an_event() {
    let Some(events) = events_of_failed_start(Quirks { no_version_1: true, ..Quirks::default() }) else {
        return;
    };
    assert_eq!(events, [event::NO_VERSION_1]);
}

/// Without ACCESS_PLATFORM the device takes logical addresses for physical ones: it would write received frames to memory of others.
#[test]
fn device_that_bypasses_dma_remapping_is_rejected_with_an_event() {
    let Some(events) = events_of_failed_start(Quirks { bypasses_iommu: true, ..Quirks::default() }) else {
        return;
    };
    assert_eq!(events, [event::BYPASSES_IOMMU]);
}

#[test]
fn device_without_access_platform_is_used_where_dma_is_not_remapped() {
    let features = Features::DEFAULT.without(Features::ACCESS_PLATFORM);
    let Some(mut bed) = bed_with(&Options { features, ..Options::default() }) else { return };
    bed.start().expect("both drivers start");
    assert!(bed.machines()[0].event_log().is_empty(), "nothing to report");
    finish(bed);
}

#[test]
fn device_that_clears_features_ok_is_rejected_with_an_event() {
    let Some(events) = events_of_failed_start(Quirks { rejects_features: true, ..Quirks::default() }) else {
        return;
    };
    assert_eq!(events, [event::FEATURES_REJECTED]);
}

#[test]
fn broken_capability_lists_are_rejected_with_an_event_for_the_reason() {
    let cases = [
        (BrokenCapabilities::Loop, event::BROKEN_CAPABILITIES),
        (BrokenCapabilities::NoSuchBar, event::MISSING_STRUCTURE),
        (BrokenCapabilities::BeyondBar, event::MISSING_STRUCTURE),
        (BrokenCapabilities::Truncated, event::BROKEN_CAPABILITIES),
        (BrokenCapabilities::NoCommon, event::MISSING_STRUCTURE),
        (BrokenCapabilities::NoList, event::NO_CAPABILITIES),
    ];
    for (capabilities, expected) in cases {
        let quirks = Quirks { capabilities: Some(capabilities), ..Quirks::default() };
        let Some(events) = events_of_failed_start(quirks) else { return };
        assert_eq!(events, [expected], "{capabilities:?}");
    }
}

//= virtio §1
#[test]
fn transitional_device_is_used_by_its_modern_interface() {
    let Some(mut bed) = bed(Quirks { identity: Identity::Transitional, ..Quirks::default() }) else { return };
    bed.start().expect("both drivers start");
    assert!(bed.machines()[0].event_log().is_empty(), "nothing to report");
    finish(bed);
}

//= virtio §1
#[test]
fn purely_legacy_device_is_rejected_with_an_event() {
    let Some(events) = events_of_failed_start(Quirks { identity: Identity::Legacy, ..Quirks::default() })
    else {
        return;
    };
    assert_eq!(events, [event::NO_CAPABILITIES]);
}

#[test]
fn device_is_used_wherever_its_bars_are() {
    for bars in BarLayout::ALL {
        let Some(mut bed) = bed(Quirks { bars, ..Quirks::default() }) else { return };
        let started = bed.start();
        assert!(started.is_ok(), "{bars:?}: {started:?}");
        finish(bed);
    }
}

/// The driver enables bus mastering, and keeps what else the system has set.
#[test]
fn driver_adds_bus_mastering_to_the_command_register() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    assert_eq!(command(&bed), pci::COMMAND_AT_START);
    bed.start().expect("both drivers start");
    assert_eq!(command(&bed), pci::COMMAND_AT_START | pci::COMMAND_BUS_MASTER);
    finish(bed);
}

/// Nothing takes care of a device without a driver: what it still does must not reach memory.
#[test]
fn device_whose_start_fails_is_no_bus_master() {
    let quirks = Quirks { rejects_features: true, ..Quirks::default() };
    let Some(mut bed) = bed(quirks) else { return };
    bed.machine_mut(0).enter().expect("DriverEntry succeeds with any device");
    assert!(bed.machine_mut(0).start_adapter().is_err());
    assert_eq!(command(&bed), pci::COMMAND_AT_START);
    finish(bed);
}

#[test]
fn all_large_blocks_of_the_driver_have_its_tag() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    bed.start().expect("both drivers start");
    let blocks = bed.machines()[0].host().memory.pool.blocks();
    let tags: BTreeSet<_> = blocks.iter().map(|block| block.tag.to_string()).collect();
    // Two are of NDIS itself: MDLs, and the table of the interrupt messages. Small blocks are of wdk-alloc. Lists have the tag of their
    // pool.
    assert_eq!(tags, ["Ndmd", "Ndmi", "rust", "viRD"].map(str::to_owned).into());
    assert!(blocks.iter().all(|block| block.tag.to_string() != "rust" || block.size < 4096));
    finish(bed);
}

/// With poll objects, which a start may do without.
#[test]
fn start_survives_the_failure_of_any_of_its_allocations() {
    // Few buffers, of which each start allocates all.
    let keywords = [("*NdisPoll", "1"), ("*ReceiveBuffers", "64"), ("*TransmitBuffers", "64")];
    let keywords = keywords.map(|(name, value)| (name, Keyword::Text(value.into()))).to_vec();
    let Some(mut bed) = bed_with(&Options { keywords, ..Options::default() }) else { return };
    let host = bed.machines()[0].host().clone();
    bed.machine_mut(0).enter().expect("DriverEntry succeeds");
    for victim in 0.. {
        let machine = bed.machine_mut(0);
        let before = host.low_resources.asked();
        host.low_resources.fail_nth(victim);
        let outcome = machine.start_adapter();
        let asked = host.low_resources.asked() - before;
        machine.halt_adapter().expect("the adapter halts");
        assert!(!host.is_dead(), "allocation {victim} failed:\n{}", bed.violations().join("\n"));
        if outcome.is_ok() && asked <= victim {
            // No allocation failed: each one has failed in an earlier start.
            assert!(victim > 10, "a start allocates");
            break;
        }
    }
    finish(bed);
}

/// The last access to a register precedes the end of the mapping, also if the device refuses its vectors and then does not
/// finish its reset.
#[test]
fn registers_are_mapped_until_the_failed_start_has_reset_the_device() {
    let quirks =
        Quirks { refuses_vectors_from: Some(0), never_resets_once_negotiated: true, ..Quirks::default() };
    let Some(mut bed) = bed(quirks) else { return };
    bed.machine_mut(0).enter().expect("DriverEntry succeeds with any device");
    assert!(bed.machine_mut(0).start_adapter().is_err());
    assert!(!bed.machines()[0].host().is_dead(), "{}", bed.violations().join("\n"));
    assert_eq!(command(&bed), pci::COMMAND_AT_START);
    finish(bed);
}

/// A device that does not end its DMA by a reset loses the right to it before its memory is freed, and does not get it back: not by
/// the next start, which fails, whether or not the system enables bus mastering.
//= virtio §3
#[test]
fn device_that_does_not_reset_is_no_bus_master_after_halt() {
    let quirks = Quirks { never_resets_once_started: true, ..Quirks::default() };
    for by_system in [false, true] {
        let Some(mut bed) = bed(quirks) else { return };
        bed.machines()[0].host().set_bus_mastering(by_system);
        bed.start().expect("both drivers start");
        assert_eq!(command(&bed), pci::COMMAND_AT_START | pci::COMMAND_BUS_MASTER);
        bed.machine_mut(0).halt_adapter().expect("the host lives");
        assert_eq!(command(&bed), pci::COMMAND_AT_START);
        // It has the addresses of rings whose memory was freed: a frame that it receives would be written there.
        let nic = bed.machines()[0].nic().clone();
        assert!(nic.is_running());
        assert!(bed.machine_mut(0).start_adapter().is_err());
        assert_eq!(command(&bed), pci::COMMAND_AT_START);
        finish(bed);
    }
}

/// A device whose registers read all ones as if it were gone, but which goes on.
#[test]
fn device_whose_status_reads_all_ones_is_no_bus_master_when_its_memory_is_freed() {
    let Some(mut bed) = bed(Quirks::default()) else { return };
    bed.start().expect("both drivers start");
    bed.machines()[0].nic().misbehavior().hide_status();
    bed.machine_mut(0).halt_adapter().expect("the host lives");
    assert_eq!(command(&bed), pci::COMMAND_AT_START);
    finish(bed);
}

/// The system enables bus mastering with the power. A device that keeps its state in D3 and does not end its reset still has the rings of
/// before.
//= virtio §3
#[test]
fn device_that_does_not_reset_is_no_bus_master_after_a_low_power_state() {
    let quirks = Quirks { never_resets_once_started: true, keeps_state_in_d3: true, ..Quirks::default() };
    let Some(mut bed) = bed(quirks) else { return };
    bed.machines()[0].host().set_bus_mastering(true);
    bed.start().expect("both drivers start");
    let miniport = bed.machines()[0].miniport().expect("the adapter has started").clone();
    miniport.sleep().unwrap();
    let waking = bed.machines()[0].host().spawn("power", move || miniport.wake());
    for step in 1..300 {
        let _ = bed.event().wait(Duration::from_millis(10));
        assert_eq!(command(&bed), pci::COMMAND_AT_START, "after {step} steps");
    }
    assert!(bed.machines()[0].nic().is_running(), "it has not been reset");
    waking.join().expect("the host lives").expect("the adapter wakes");
    finish(bed);
}
