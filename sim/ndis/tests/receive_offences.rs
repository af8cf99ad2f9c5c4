// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of received lists, of pauses during their indication, and of the statistics: each is reported to a miniport that commits
//! the offence.

use std::{
    mem::offset_of,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::common::{
    lists::{list, list_of},
    scripted::{Script, verdict_while_running},
};
use ndis_sim::{Miniport, NdisHost as _, adapter, data_path, runtime};
use ndk_abi::ndis::{
    NDIS_OID_REQUEST, NDIS_SIZEOF_STATISTICS_INFO_REVISION_1, NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS, NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR,
    NDIS_STATISTICS_XMIT_OK_SUPPORTED, NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING,
    NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST, OID_GEN_STATISTICS,
};
use nt_sim::{current, guest::Guest};

fn indicate(handle: usize, list: Guest<NET_BUFFER_LIST>) {
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
}

#[track_caller]
fn assert_reported(script: Script, body: fn(&Miniport), expected: &str) {
    let verdict = verdict_while_running(script, body);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

#[test]
fn mdl_of_a_received_list_that_describes_more_than_its_data_is_reported_unless_it_is_allowed() {
    let pause = |handle| {
        let list = list(handle);
        let buffer = list.field::<usize>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
        let buffer = Guest::<NET_BUFFER>::from_address(buffer);
        buffer.field::<usize>(offset_of!(NET_BUFFER, Anonymous)).write(58);
        buffer.field::<u32>(offset_of!(NET_BUFFER, DataOffset)).write(1);
        indicate(handle, list);
        NDIS_STATUS_SUCCESS
    };
    let script = Script { pause: Some(pause), ..Script::default() };
    let expected = "the MDLs of a received NET_BUFFER describe 60 bytes, but its data ends after 59";
    assert_reported(script, |_| {}, expected);
    let allowed = verdict_while_running(script, |miniport| miniport.host().allow_long_mdls(true));
    assert!(!allowed.contains(expected), "{allowed}");
}

#[test]
fn frame_that_is_longer_than_the_mtu_and_not_coalesced_is_reported() {
    for (length, is_reported) in [(1514, false), (1515, true)] {
        static LENGTH: AtomicUsize = AtomicUsize::new(0);
        LENGTH.store(length, SeqCst);
        let pause = |handle| {
            indicate(handle, list_of(handle, &vec![0; LENGTH.load(SeqCst)]));
            NDIS_STATUS_SUCCESS
        };
        let verdict = verdict_while_running(Script { pause: Some(pause), ..Script::default() }, |_| {});
        let expected = "a frame with CoalescedSegCount 0 is longer than the MTU: 0x0, a frame of 1515 bytes";
        assert_eq!(verdict.contains(expected), is_reported, "{verdict}");
    }
}

/// "MiniportPause must wait for all calls to NdisMIndicateReceiveNetBufferLists to return" (windows-driver-docs: network/pausing-an-adapter).
#[test]
fn pause_that_completes_during_an_indication_is_reported() {
    let pause = |handle| {
        indicate(handle, list(handle));
        NDIS_STATUS_PENDING
    };
    let completes = |miniport: &Miniport| {
        let handle = miniport.adapter().handle;
        miniport.stack().on_received(move |_| adapter::NdisMPauseComplete(handle));
    };
    let expected = "completed a pause before 1 calls of NdisMIndicateReceiveNetBufferLists have returned";
    let script = Script { pause: Some(pause), ..Script::default() };
    assert_reported(script, completes, &format!("NdisMPauseComplete {expected}"));
    let pause = |handle| {
        let _ = current().host().spawn("indication", move || indicate(handle, list(handle)));
        runtime::NdisMSleep(1000);
        NDIS_STATUS_SUCCESS
    };
    let script = Script { pause: Some(pause), ..Script::default() };
    let lasts = |miniport: &Miniport| miniport.stack().on_received(|_| runtime::NdisMSleep(100_000));
    assert_reported(script, lasts, &format!("MiniportPause {expected}"));
}

/// Answers `OID_GEN_STATISTICS` with these flags, discards and errors.
fn answer(request: *mut NDIS_OID_REQUEST, flags: u32, discards: u64, errors: u64) -> NDIS_STATUS {
    // SAFETY: NDIS's request, which no other code accesses during the call.
    let request = unsafe { &mut *request };
    // SAFETY: query and set have the same layout.
    let query = unsafe { &mut request.DATA.QUERY_INFORMATION };
    if query.Oid != OID_GEN_STATISTICS {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    let mut statistics = vec![0; NDIS_SIZEOF_STATISTICS_INFO_REVISION_1.into()];
    statistics[4..8].copy_from_slice(&flags.to_le_bytes());
    statistics[8..16].copy_from_slice(&discards.to_le_bytes());
    statistics[16..24].copy_from_slice(&errors.to_le_bytes());
    query.BytesWritten = query.InformationBufferLength.min(statistics.len() as u32);
    let buffer = Guest::<u8>::from_address(query.InformationBuffer.expose_provenance());
    buffer.write_bytes(&statistics[..query.BytesWritten as usize]);
    NDIS_STATUS_SUCCESS
}

#[test]
fn wrong_statistics_are_reported() {
    const BOTH: u32 = NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS | NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR;
    let ask = |miniport: &Miniport| _ = miniport.query(OID_GEN_STATISTICS, 0x98);
    let with = |answer| Script { answer: Some(answer), ..Script::default() };
    let right = with(|_, request| answer(request, BOTH | NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV, 3, 3));
    assert_eq!(verdict_while_running(right, ask), "no violation");
    let flags = with(|_, request| answer(request, BOTH | NDIS_STATISTICS_XMIT_OK_SUPPORTED << 11, 3, 3));
    assert_reported(
        flags,
        ask,
        "SupportedStatistics is 0x830, but NDIS_STATISTICS_FLAGS_VALID_* are 0x3f87ff",
    );
    let discards = with(|_, request| answer(request, BOTH, 2, 3));
    assert_reported(discards, ask, "ifInDiscards is 2, less than ifInErrors, 3, which it includes");
    let short = |miniport: &Miniport| _ = miniport.query(OID_GEN_STATISTICS, 0x90);
    assert_reported(right, short, "OID_GEN_STATISTICS returned 144 bytes");
}
