// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modules that are attached, paused and restarted, and the lists that they have meanwhile. (WDK: "Filter Module States and Operations",
//! `FILTER_RECEIVE_NET_BUFFER_LISTS`)

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::{
    filter::{FilterScript, register_all},
    lists,
    scripted::{Script, general_with, host, register as register_miniport, run, simulation},
};
use ndis_sim::{Miniport, data_path, filter_path, filter_stack, list_fields};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS,
    NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_STATUS, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
};
use nt_sim::guest::Guest;

/// Lists that were returned to the miniport.
static RETURNED: AtomicUsize = AtomicUsize::new(0);
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn give_back(_: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _: u32) {
    for list in list_fields::chain(Guest::new(lists)) {
        RETURNED.fetch_add(1, SeqCst);
        lists::free(list);
    }
}

/// Runs `body` while the miniport runs below the filter; expects no violation. Returns the number of frames that the stack has received.
fn received_through(filter: FilterScript, script: Script, body: impl FnOnce(&Miniport)) -> usize {
    let mut sim = simulation();
    let host = host(&mut sim);
    register_all(&host, &[("filter", filter)]);
    let edit = |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        of.ReturnNetBufferListsHandler = Some(give_back);
    };
    assert_eq!(register_miniport(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    body(&miniport);
    let received = miniport.received().len();
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
    received
}

fn indicate(handle: usize, flags: u32) {
    let list = lists::list_of(handle, &[7; 60]);
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, flags);
    if flags & NDIS_RECEIVE_FLAGS_RESOURCES != 0 {
        lists::free(list);
    }
}

#[test]
fn list_for_a_paused_module_goes_back_to_the_miniport() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    RETURNED.store(0, SeqCst);
    let pausing = |handle| {
        let before = RETURNED.load(SeqCst);
        indicate(handle, 0);
        indicate(handle, NDIS_RECEIVE_FLAGS_RESOURCES);
        assert_eq!(RETURNED.load(SeqCst), before + 1);
    };
    let script = Script { pausing: Some(pausing), ..Script::default() };
    let received = received_through(FilterScript::NONE, script, |miniport| {
        miniport.pause().expect("the host lives");
        assert_eq!(miniport.stack().lent(), 0);
        assert_eq!(miniport.received(), [[0_u8; 0]; 0]);
        miniport.restart().expect("it runs");
    });
    assert_eq!((received, RETURNED.load(SeqCst)), (0, 2), "two pauses");
}

#[test]
fn list_that_is_lent_for_a_call_is_the_modules_until_it_returns() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let twice = FilterScript {
        receive: Some(|handle, list, flags| {
            for _ in 0..2 {
                filter_path::NdisFIndicateReceiveNetBufferLists(handle, list, 0, 1, flags);
            }
        }),
        ..FilterScript::NONE
    };
    let received = received_through(twice, Script::default(), |miniport| {
        let (handle, host) = (miniport.adapter().handle, miniport.host().clone());
        let lend = move || indicate(handle, NDIS_RECEIVE_FLAGS_RESOURCES);
        host.spawn("miniport", lend).join().expect("the host lives");
    });
    assert_eq!(received, 2);
}

/// (WDK, `NDIS_FILTER_ATTACH_PARAMETERS`)
#[test]
fn module_is_attached_with_the_identifiers_and_the_address_of_its_adapter() {
    static SEEN: Mutex<[u8; 164]> = Mutex::new([0; 164]);
    let seeing = FilterScript {
        parameters: Some(|parameters| parameters.read_bytes(&mut *SEEN.lock().unwrap())),
        ..FilterScript::NONE
    };
    let initialize = |handle| {
        general_with(handle, |attributes| attributes.CurrentMacAddress[..6].copy_from_slice(b"viordm"));
    };
    let script = Script { initialize: Some(initialize), ..Script::default() };
    received_through(seeing, script, |miniport| {
        let seen = *SEEN.lock().unwrap();
        let (index, luid) = (miniport.adapter().if_index, miniport.adapter().interface.luid);
        assert_eq!(seen[..4], [NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS, 1, 164, 0]);
        assert_eq!(seen[4..8], index.to_le_bytes());
        assert_eq!(seen[8..16], luid.to_le_bytes());
        assert_eq!(seen[96..104], *b"\x06\x00viordm");
    });
}

/// Whether a call of the module that takes a while has returned.
static RETURNED_FROM: AtomicBool = AtomicBool::new(false);

/// The miniport is paused when no thread is inside a module.
#[test]
fn pause_of_a_module_waits_for_calls_of_it() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    RETURNED_FROM.store(false, SeqCst);
    let slow = FilterScript {
        send: Some(|handle, list| {
            filter_path::NdisFSendNetBufferLists(handle, list, 0, 0);
            nt_sim::nt::time::sleep(5_000_000);
            RETURNED_FROM.store(true, SeqCst);
        }),
        ..FilterScript::NONE
    };
    let send = |handle, lists| data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(lists), 0);
    let pausing = |_| assert!(RETURNED_FROM.load(SeqCst));
    let script = Script { send: Some(send), pausing: Some(pausing), ..Script::default() };
    received_through(slow, script, |miniport| {
        let (sending, host) = (miniport.clone(), miniport.host().clone());
        let sending = host.spawn("stack", move || sending.send(&[0; 60], Duration::from_secs(1)));
        run(&host, "rest", || nt_sim::nt::time::sleep(1_000_000));
        assert!(!RETURNED_FROM.load(SeqCst));
        miniport.pause().expect("the host lives");
        assert_eq!(sending.join().expect("the host lives"), Some(NDIS_STATUS_SUCCESS));
    });
}

/// Twice each.
#[test]
fn pause_and_restart_of_a_module_end_when_they_are_completed() {
    fn later(complete: impl FnOnce() + Send + 'static) -> NDIS_STATUS {
        nt_sim::current().host().clone().spawn("filter", move || {
            nt_sim::nt::time::sleep(5_000_000);
            complete();
        });
        NDIS_STATUS_PENDING
    }
    let pending = FilterScript {
        pause: Some(|handle| later(move || filter_stack::NdisFPauseComplete(handle))),
        restart: Some(|handle| {
            later(move || filter_stack::NdisFRestartComplete(handle, NDIS_STATUS_SUCCESS))
        }),
        ..FilterScript::NONE
    };
    received_through(pending, Script::default(), |miniport| {
        let world = miniport.host().world().clone();
        for _ in 0..2 {
            let begin = world.now();
            miniport.pause().expect("the host lives");
            let paused = world.now();
            miniport.restart().expect("it runs");
            for took in [paused - begin, world.now() - paused] {
                assert!((5_000_000..50_000_000).contains(&took), "{took}");
            }
        }
    });
}

/// The pause of the stack does not wait for lists that a module has, which gives them back when it is paused.
#[test]
fn module_that_keeps_received_lists_is_paused_at_once() {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let keeping = FilterScript {
        receive: Some(|_, list, _| KEPT.lock().unwrap().push(list.address())),
        pause: Some(|handle| {
            for list in KEPT.lock().unwrap().drain(..) {
                filter_path::NdisFReturnNetBufferLists(handle, Guest::from_address(list), 0);
            }
            NDIS_STATUS_SUCCESS
        }),
        ..FilterScript::NONE
    };
    let received = received_through(keeping, Script::default(), |miniport| {
        let (handle, host) = (miniport.adapter().handle, miniport.host().clone());
        run(&host, "miniport", move || indicate(handle, 0));
        let begin = host.world().now();
        miniport.pause().expect("the host lives");
        let took = host.world().now() - begin;
        assert!(took < 50_000_000, "{took}");
    });
    assert_eq!(received, 0);
}
