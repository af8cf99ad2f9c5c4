// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rules that no documentation has: drivers that Windows runs break them, so that each can be tolerated by name.

use std::mem::offset_of;

use crate::common::{
    lists::{free, list},
    scripted::{Script, general_with, in_initialize, kept},
    tolerated::run,
};
use ndis_sim::{Miniport, data_path, runtime, shared_memory};
use ndk_abi::{
    ndis::{
        NDIS_MEDIA_CONNECT_STATE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES,
        NDIS_PM_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1, NDIS_STATUS_SUCCESS,
        NET_BUFFER, NET_BUFFER_LIST,
    },
    nt::LARGE_INTEGER,
};
use nt_sim::{Tolerance, Tolerances, guest::Guest};

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

fn zero_speed(handle: usize) {
    general_with(handle, |attributes| attributes.XmitLinkSpeed = 0);
}

fn empty_memory(handle: usize) {
    let (address, physical) = (kept(1_usize), kept(LARGE_INTEGER { QuadPart: 1 }));
    shared_memory::NdisMAllocateSharedMemory(handle, 0, 1, address, physical);
    assert_eq!(address.read(), 0);
}

/// Indicates a frame whose MDL has a byte more than its data.
fn long_mdl(handle: usize) -> i32 {
    let list = list(handle);
    let buffer = list.field::<usize>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
    let buffer = Guest::<NET_BUFFER>::from_address(buffer);
    buffer.field::<usize>(offset_of!(NET_BUFFER, Anonymous)).write(58);
    buffer.field::<u32>(offset_of!(NET_BUFFER, DataOffset)).write(1);
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
    runtime::NdisMSleep(1000);
    free(list);
    NDIS_STATUS_SUCCESS
}

fn idle(_: &Miniport) {}

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
        (in_initialize(zero_speed), Tolerance::ZeroSpeed, "a link speed of 0 is reported"),
        (in_initialize(empty_memory), Tolerance::EmptyMemory, "NdisMAllocateSharedMemory of 0 bytes"),
        (
            Script { pause: Some(long_mdl), ..Script::default() },
            Tolerance::LongMdls,
            "the MDLs of a received NET_BUFFER describe 60 bytes, but its data ends after 59",
        ),
    ];
    for (script, fault, text) in cases {
        let refused = run(script, Tolerances::NONE, idle);
        let report = &refused.violations[0].text;
        let hint = format!("; no documentation forbids it, and '--tolerate {}' accepts it", fault.name());
        assert!(report.starts_with(text) && report.ends_with(&hint), "{report}");
        let accepted = run(script, Tolerances::NONE.with(fault), idle);
        assert!(accepted.is_clean(), "{accepted}");
        // Once, however often it happens.
        assert_eq!(accepted.tolerated.len(), 1, "{:?}", accepted.tolerated);
        assert!(accepted.tolerated[0].text.starts_with(text));
    }
}
