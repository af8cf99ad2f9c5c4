// SPDX-License-Identifier: MIT OR Apache-2.0

//! Offences of filter drivers, each reported. (WDK: "Filter Module States and Operations", FilterAttach, FilterPause, and the pages of
//! NdisFSendNetBufferLists and its kind)

use std::{mem::offset_of, time::Duration};

use crate::common::{
    filter::{FilterScript, List, register, set_attributes},
    lists,
    scripted::{Script, header, host, kept, register as register_miniport, simulation},
};
use ndis_sim::{Miniport, NdisHost as _, data_path, filter_path, filter_stack};
use ndk_abi::ndis::{
    NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
    NET_BUFFER_LIST,
};
use nt_sim::guest::Guest;

const SOON: Duration = Duration::from_millis(100);
const SOURCE: usize = offset_of!(NET_BUFFER_LIST, SourceHandle);

/// Returns the [`verdict_with`] a miniport that completes sends at once.
fn verdict(script: FilterScript, flags: u32) -> String {
    let send = |handle: usize, lists: *mut NET_BUFFER_LIST| {
        data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(lists), 0);
    };
    verdict_with(Script { send: Some(send), ..Script::default() }, script, flags)
}

/// Runs an adapter with a filter from start to pause, with a frame in each direction, the received one with `flags`; returns the report.
fn verdict_with(miniport: Script, script: FilterScript, flags: u32) -> String {
    let mut sim = simulation();
    let host = host(&mut sim);
    host.bind_filter("filter");
    register(&host, "filter", script);
    assert_eq!(register_miniport(&host, miniport, |_| {}), Some(NDIS_STATUS_SUCCESS));
    if let Ok(miniport) = Miniport::start(&host) {
        let running = miniport.clone();
        let traffic = move || {
            let adapter = running.adapter().clone();
            let _ = running.send(&[0; 60], SOON);
            let list = lists::list_of(adapter.handle, &[7; 60]);
            data_path::NdisMIndicateReceiveNetBufferLists(adapter.handle, list, 0, 1, flags);
        };
        let _ = host.spawn("caller", traffic).join();
        let _ = sim.event().wait(SOON);
        if !host.is_dead() {
            let _ = host.spawn("PnP", move || miniport.pause()).join();
        }
    }
    sim.verdict().to_string()
}

#[track_caller]
fn assert_reported(script: FilterScript, flags: u32, expected: &str) {
    let verdict = verdict(script, flags);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

fn of_send(send: fn(usize, List)) -> FilterScript {
    FilterScript { send: Some(send), ..FilterScript::default() }
}

fn of_receive(receive: fn(usize, List, u32)) -> FilterScript {
    FilterScript { receive: Some(receive), ..FilterScript::default() }
}

fn of_pause(pause: fn(usize) -> NDIS_STATUS) -> FilterScript {
    FilterScript { pause: Some(pause), ..FilterScript::default() }
}

fn of_attach(attach: fn(usize) -> NDIS_STATUS) -> FilterScript {
    FilterScript { attach: Some(attach), ..FilterScript::default() }
}

#[test]
fn offences_at_attachment_are_reported() {
    let no_context = of_attach(|_| NDIS_STATUS_SUCCESS);
    assert_reported(no_context, 0, "FilterAttach succeeded without NdisFSetAttributes");
    assert_reported(of_attach(|_| NDIS_STATUS_PENDING), 0, "FilterAttach pended");
    let null = of_attach(|handle| set_attributes(handle, 0));
    assert_reported(null, 0, "NdisFSetAttributes: FilterModuleContext is null");
    let wrong = of_attach(|handle| {
        let attributes = kept(header(0x80, 1, 8));
        filter_stack::NdisFSetAttributes(handle, 1, attributes)
    });
    assert_reported(wrong, 0, "NdisFSetAttributes: attributes of type 0x80 and 8 bytes");
    let early = of_attach(|handle| {
        filter_path::NdisFSendNetBufferLists(handle, Guest::null(), 0, 0);
        NDIS_STATUS_FAILURE
    });
    assert_reported(early, 0, "NdisFSendNetBufferLists was called while the module is being attached");
    let leaking = of_attach(|handle| {
        let _ = lists::list_pool(handle);
        NDIS_STATUS_FAILURE
    });
    assert_reported(leaking, 0, "a failed FilterAttach returned without releasing: ");
    let late = of_pause(|handle| set_attributes(handle, 1));
    assert_reported(late, 0, "NdisFSetAttributes was called in state Pausing");
}

#[test]
fn offences_in_transitions_are_reported() {
    assert_reported(of_pause(|_| NDIS_STATUS_FAILURE), 0, "FilterPause failed: 0xc0000001");
    let twice = of_pause(|handle| {
        filter_stack::NdisFPauseComplete(handle);
        filter_stack::NdisFPauseComplete(handle);
        NDIS_STATUS_PENDING
    });
    assert_reported(twice, 0, "NdisFPauseComplete was called twice");
    let pending = FilterScript {
        restart: Some(|handle| {
            filter_stack::NdisFRestartComplete(handle, NDIS_STATUS_PENDING);
            NDIS_STATUS_PENDING
        }),
        ..FilterScript::default()
    };
    assert_reported(pending, 0, "NdisFRestartComplete with NDIS_STATUS_PENDING");
    let other = of_pause(|handle| {
        filter_stack::NdisFRestartComplete(handle, NDIS_STATUS_SUCCESS);
        NDIS_STATUS_SUCCESS
    });
    assert_reported(other, 0, "NdisFRestartComplete was called in state Pausing");
}

#[test]
fn pauses_that_do_not_wait_are_reported() {
    let keeps = of_receive(|_, _, _| {});
    assert_reported(keeps, 0, "FilterPause completed before 1 received lists were returned");
    assert_reported(of_send(|_, _| {}), 0, "FilterPause completed, but the module holds 1 sends");
    // What it has made is with the miniport, which keeps it.
    let own = of_send(|handle, list| {
        filter_path::NdisFSendNetBufferListsComplete(handle, list, 0);
        filter_path::NdisFSendNetBufferLists(handle, lists::list(handle), 0, 0);
    });
    let verdict = verdict_with(Script::default(), own, 0);
    let expected = "FilterPause completed before the module got 1 lists of its own back";
    assert!(verdict.contains(expected), "{verdict}");
}

#[test]
fn sends_that_a_filter_must_not_make_are_reported() {
    let never_sent = of_send(|handle, list| {
        filter_path::NdisFSendNetBufferListsComplete(handle, list, 0);
        filter_path::NdisFSendNetBufferListsComplete(handle, lists::list(handle), 0);
    });
    let verdict = verdict_with(Script::default(), never_sent, 0);
    let reported = ["NdisFSendNetBufferListsComplete of ", ", which the filter module does not hold"];
    assert!(reported.iter().all(|part| verdict.contains(part)), "{verdict}");
    let twice = of_send(|handle, list| {
        filter_path::NdisFSendNetBufferLists(handle, list, 0, 0);
        filter_path::NdisFSendNetBufferLists(handle, list, 0, 0);
    });
    let verdict = verdict_with(Script::default(), twice, 0);
    let reported = ["NdisFSendNetBufferLists of ", ", which the filter module does not hold"];
    assert!(reported.iter().all(|part| verdict.contains(part)), "{verdict}");
    let of_others = of_send(|handle, list| {
        let other = lists::list(handle);
        other.field::<usize>(SOURCE).write(1);
        filter_path::NdisFSendNetBufferLists(handle, list, 0, 0);
        filter_path::NdisFSendNetBufferLists(handle, other, 0, 0);
    });
    assert_reported(
        of_others,
        0,
        "which the filter module neither holds nor has made: its SourceHandle is 0x1",
    );
    let changed = of_send(|handle, list| {
        list.field::<usize>(SOURCE).write(handle);
        filter_path::NdisFSendNetBufferListsComplete(handle, list, 0);
    });
    assert_reported(changed, 0, "the filter module changed the SourceHandle of a sent NET_BUFFER_LIST to");
    let paused = of_pause(|handle| {
        filter_path::NdisFSendNetBufferLists(handle, lists::list(handle), 0, 0);
        NDIS_STATUS_SUCCESS
    });
    assert_reported(
        paused,
        0,
        "NdisFSendNetBufferLists of a list of the filter module's own in state Pausing",
    );
}

#[test]
fn received_lists_that_a_filter_must_not_pass_or_return_are_reported() {
    let twice = of_receive(|handle, list, _| {
        filter_path::NdisFReturnNetBufferLists(handle, list, 0);
        filter_path::NdisFReturnNetBufferLists(handle, list, 0);
    });
    assert_reported(twice, 0, "was returned by a driver that does not hold it");
    let lent = of_receive(|handle, list, _| filter_path::NdisFReturnNetBufferLists(handle, list, 0));
    let expected = "which was indicated with NDIS_RECEIVE_FLAGS_RESOURCES, was returned";
    assert_reported(lent, NDIS_RECEIVE_FLAGS_RESOURCES, expected);
    let kept = of_receive(|handle, list, _| {
        filter_path::NdisFIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
    });
    let expected = "NdisFIndicateReceiveNetBufferLists without NDIS_RECEIVE_FLAGS_RESOURCES, with which";
    assert_reported(kept, NDIS_RECEIVE_FLAGS_RESOURCES, expected);
    let counted = of_receive(|handle, list, flags| {
        filter_path::NdisFIndicateReceiveNetBufferLists(handle, list, 0, 2, flags);
    });
    let expected = "NdisFIndicateReceiveNetBufferLists: NumberOfNetBufferLists is 2, the chain has 1";
    assert_reported(counted, 0, expected);
}
