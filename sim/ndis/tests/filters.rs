// SPDX-License-Identifier: MIT OR Apache-2.0

//! Filter modules between the stack and a miniport: their life, and the lists that pass them. (WDK: "Filter Module States and Operations",
//! "Filter Module Send and Receive Operations", "Pausing a Driver Stack")

use std::{
    mem::offset_of,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::common::{
    filter::{FilterScript, List, register, register_all, register_with},
    lists,
    scripted::{Script, host, register as register_miniport, simulation},
};
use ndis_sim::{
    AdapterState, Miniport, NdisHost as _, clones, data_path, filter_path, filter_stack, runtime,
    upper_drivers,
};
use ndk_abi::ndis::{
    NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_PAUSED, NDIS_STATUS_PENDING,
    NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
};
use nt_sim::{Host, Sim, guest::Guest};

const SOON: Duration = Duration::from_millis(100);
const SOURCE: usize = offset_of!(NET_BUFFER_LIST, SourceHandle);
const STATUS: usize = offset_of!(NET_BUFFER_LIST, Status);
const PARENT: usize = offset_of!(NET_BUFFER_LIST, ParentNetBufferList);

/// The module and the list that a filter keeps.
static HELD: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// The calls of the drivers of a test, of one test at a time.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ONE_TEST: Mutex<()> = Mutex::new(());

/// Keeps other tests from noting calls.
fn one_test() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(call: impl Into<String>) {
    CALLS.lock().unwrap().push(call.into());
}

fn calls() -> Vec<String> {
    std::mem::take(&mut *CALLS.lock().unwrap())
}

/// A miniport that completes each send at once.
fn miniport_script() -> Script {
    let send = |handle: usize, lists: *mut NET_BUFFER_LIST| {
        note("miniport sends");
        Guest::new(lists).field::<NDIS_STATUS>(STATUS).write(NDIS_STATUS_SUCCESS);
        data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(lists), 0);
    };
    let restart = |_| note("miniport restarts");
    let pausing = |_| note("miniport pauses");
    let halt = |_| note("miniport halts");
    Script {
        send: Some(send),
        restart: Some(restart),
        pausing: Some(pausing),
        halt: Some(halt),
        ..Script::default()
    }
}

/// A filter that notes the calls of its life.
fn noting() -> FilterScript {
    let restart = |_| {
        note("filter restarts");
        NDIS_STATUS_SUCCESS
    };
    let pause = |_| {
        note("filter pauses");
        NDIS_STATUS_SUCCESS
    };
    let detach = |_| note("filter detaches");
    FilterScript {
        restart: Some(restart),
        pause: Some(pause),
        detach: Some(detach),
        ..FilterScript::default()
    }
}

/// Starts an adapter with these filters, the lowest first.
fn started(filters: &[(&'static str, FilterScript)]) -> (Sim, Arc<Host>, Miniport) {
    started_after(|host| register_all(host, filters), miniport_script())
}

/// Starts an adapter of this miniport on a host that `prepare` has prepared.
fn started_after(prepare: impl FnOnce(&Arc<Host>), script: Script) -> (Sim, Arc<Host>, Miniport) {
    let mut sim = simulation();
    let host = host(&mut sim);
    prepare(&host);
    assert_eq!(register_miniport(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).unwrap_or_else(|error| panic!("{error}: {}", sim.verdict()));
    (sim, host, miniport)
}

fn finish(sim: &Sim, miniport: &Miniport) {
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// Indicates a frame of the miniport's. The list is freed when the host ends.
fn indicate(miniport: &Miniport, flags: u32) -> usize {
    let (adapter, host) = (miniport.adapter().clone(), miniport.host().clone());
    let indicate = move || {
        let list = lists::list_of(adapter.handle, &[7; 60]);
        data_path::NdisMIndicateReceiveNetBufferLists(adapter.handle, list, 0, 1, flags);
        list.address()
    };
    host.spawn("miniport", indicate).join().expect("the host lives")
}

#[test]
fn a_stack_restarts_from_below_and_pauses_from_above() {
    let _one = one_test();
    let _ = calls();
    let (sim, _, miniport) = started(&[("low", noting()), ("high", noting())]);
    assert_eq!(miniport.adapter().filter_services(), ["low", "high"]);
    assert_eq!(calls(), ["miniport restarts", "filter restarts", "filter restarts"]);
    miniport.pause().unwrap();
    assert_eq!(calls(), ["filter pauses", "filter pauses", "miniport pauses"]);
    miniport.restart().unwrap();
    let _ = calls();
    finish(&sim, &miniport);
    let expected =
        ["filter pauses", "filter pauses", "miniport pauses", "filter detaches", "filter detaches"];
    assert_eq!(calls(), [&expected[..], &["miniport halts"]].concat());
}

#[test]
fn filter_allocates_a_lock_with_the_handle_of_its_module() {
    let _one = one_test();
    let allocating = FilterScript {
        restart: Some(|handle| {
            runtime::NdisFreeRWLock(runtime::NdisAllocateRWLock(handle));
            NDIS_STATUS_SUCCESS
        }),
        ..FilterScript::default()
    };
    let (sim, host, miniport) = started(&[("allocating", allocating)]);
    let driver = register(&host, "not bound", FilterScript::default());
    let allocate = move || runtime::NdisFreeRWLock(runtime::NdisAllocateRWLock(driver));
    host.spawn("system", allocate).join().expect("the host lives");
    finish(&sim, &miniport);
}

#[test]
fn filter_that_is_not_bound_or_refuses_is_not_attached() {
    let _one = one_test();
    let refusing = FilterScript { attach: Some(|_| NDIS_STATUS_FAILURE), ..noting() };
    let failing = FilterScript { restart: Some(|_| NDIS_STATUS_FAILURE), ..noting() };
    let _ = calls();
    let prepare = |host: &Arc<Host>| {
        register(host, "not bound at the start", noting());
        register_all(host, &[("refusing", refusing), ("failing", failing)]);
    };
    let (sim, host, miniport) = started_after(prepare, miniport_script());
    assert_eq!(calls(), ["miniport restarts", "filter detaches"], "the one whose restart fails");
    register(&host, "not bound", noting());
    assert_eq!(miniport.send(&[0; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    finish(&sim, &miniport);
    assert_eq!(calls(), ["miniport sends", "miniport pauses", "miniport halts"]);
}

/// One that was registered, and has left, is not attached to adapters that start later.
#[test]
fn filter_that_has_deregistered_is_not_attached() {
    let _one = one_test();
    let _ = calls();
    let prepare = |host: &Arc<Host>| {
        host.bind_filter("gone");
        host.bind_filter("there");
        let handle = register(host, "gone", noting());
        register(host, "there", passing());
        let ended = host.spawn("system", move || upper_drivers::NdisFDeregisterFilterDriver(handle));
        ended.join().expect("the host lives");
    };
    let (sim, _host, miniport) = started_after(prepare, miniport_script());
    assert_eq!(miniport.send(&[0; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    assert_eq!(calls(), ["miniport restarts", "send", "miniport sends", "complete"]);
    finish(&sim, &miniport);
}

/// Lists, requests, statuses and events pass a module whose driver has no handlers for them.
#[test]
fn filter_with_the_mandatory_handlers_alone_is_passed_by() {
    let _one = one_test();
    let _ = calls();
    let prepare = |host: &Arc<Host>| {
        host.bind_filter("bare");
        register_with(host, "bare", noting(), 4);
    };
    let script = Script { answer: Some(|_, _| NDIS_STATUS_SUCCESS), ..miniport_script() };
    let (sim, _host, miniport) = started_after(prepare, script);
    assert_eq!(miniport.send(&[0; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    miniport.cancel_sends(1);
    indicate(&miniport, 0);
    let _ = sim.event().wait(SOON);
    assert_eq!(miniport.received(), [[7; 60].to_vec()]);
    assert!(miniport.query(0x0001_0101, 4).is_ok());
    // The miniport does not free its list: the host dies of that at the end.
    let _ = miniport.surprise_remove();
    let expected =
        ["miniport restarts", "filter restarts", "miniport sends", "filter pauses", "miniport pauses"];
    assert_eq!(calls(), [&expected[..], &["filter detaches", "miniport halts"]].concat());
}

/// A pause begins when the stack above has returned what it received: not before, and not much later.
#[test]
fn modules_are_paused_once_the_stack_holds_nothing() {
    let _one = one_test();
    let (_sim, host, miniport) = started(&[("filter", noting())]);
    let timed = |body: &dyn Fn()| {
        let begin = host.world().now();
        body();
        Duration::from_nanos(host.world().now() - begin)
    };
    assert!(timed(&|| miniport.pause().unwrap()) < SOON);
    miniport.restart().unwrap();
    miniport.stack().keep(true);
    indicate(&miniport, 0);
    let returning = {
        let miniport = miniport.clone();
        host.spawn("stack", move || {
            nt_sim::nt::time::sleep(20_000_000);
            note("stack returns");
            miniport.stack().keep(false);
        })
    };
    let _ = calls();
    let took = timed(&|| miniport.pause().unwrap());
    returning.join().expect("the host lives");
    assert!((Duration::from_millis(20)..SOON).contains(&took), "{took:?}");
    assert_eq!(calls(), ["stack returns", "filter pauses", "miniport pauses"]);
    // The miniport is given its list back, and does not free it.
    let _ = miniport.halt();
}

/// A driver that registers while the adapter runs, and deregisters.
#[test]
fn filter_is_attached_to_an_adapter_that_runs_and_detached() {
    let _one = one_test();
    let (sim, host, miniport) = started(&[]);
    let _ = calls();
    host.bind_filter("late");
    let handle = register(&host, "late", noting());
    let _ = sim.event().wait(SOON);
    assert_eq!(calls(), ["miniport pauses", "miniport restarts", "filter restarts"]);
    assert_eq!(miniport.send(&[0; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    let _ = calls();
    let ended = host.spawn("system", move || upper_drivers::NdisFDeregisterFilterDriver(handle));
    ended.join().expect("the host lives");
    let expected = ["filter pauses", "miniport pauses", "filter detaches", "miniport restarts"];
    assert_eq!((calls(), miniport.state()), (expected.map(String::from).to_vec(), AdapterState::Running));
    finish(&sim, &miniport);
}

/// A filter that notes each list that passes.
fn passing() -> FilterScript {
    let send = |handle, list: List| {
        note("send");
        filter_path::NdisFSendNetBufferLists(handle, list, 0, 0);
    };
    let complete = |handle, list: List| {
        note("complete");
        filter_path::NdisFSendNetBufferListsComplete(handle, list, 0);
    };
    let receive = |handle, list: List, flags| {
        note("receive");
        filter_path::NdisFIndicateReceiveNetBufferLists(handle, list, 0, 1, flags);
    };
    let give_back = |handle, list: List| {
        note("return");
        filter_path::NdisFReturnNetBufferLists(handle, list, 0);
    };
    FilterScript {
        send: Some(send),
        complete: Some(complete),
        receive: Some(receive),
        give_back: Some(give_back),
        ..FilterScript::default()
    }
}

#[test]
fn lists_pass_each_filter_in_both_directions() {
    let _one = one_test();
    let filter = passing();
    let (sim, _, miniport) = started(&[("low", filter), ("high", filter)]);
    let _ = calls();
    assert_eq!(miniport.send(&[0; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    assert_eq!(calls(), ["send", "send", "miniport sends", "complete", "complete"]);
    for (flags, expected) in [
        (0, &["receive", "receive", "return", "return"][..]),
        (NDIS_RECEIVE_FLAGS_RESOURCES, &["receive", "receive"]),
    ] {
        indicate(&miniport, flags);
        let _ = sim.event().wait(SOON);
        assert_eq!(calls(), expected);
        assert_eq!(miniport.received(), [[7; 60].to_vec()]);
    }
    let _ = miniport.halt();
}

/// Returns a clone of a list that is a filter's own.
fn clone_of(handle: usize, list: List) -> List {
    let clone = clones::NdisAllocateCloneNetBufferList(list, 0, 0, 0);
    clones::NdisCopySendNetBufferListInfo(clone, list);
    clone.field::<usize>(SOURCE).write(handle);
    clone
}

/// Frees a clone; returns what it stands for.
fn original(clone: List) -> List {
    let original = Guest::from_address(clone.field::<usize>(PARENT).read());
    clones::NdisFreeCloneNetBufferList(clone, 0);
    original
}

/// The filter's clones come back to it, and not to the drivers above.
#[test]
fn clones_of_a_filter_end_at_it_and_what_they_stand_for_goes_on() {
    let _one = one_test();
    let send = |handle, list: List| {
        filter_path::NdisFSendNetBufferLists(handle, clone_of(handle, list), 0, 0);
    };
    let complete = |handle, clone: List| {
        let status = clone.field::<NDIS_STATUS>(STATUS).read();
        let original = original(clone);
        original.field::<NDIS_STATUS>(STATUS).write(status);
        note("complete");
        filter_path::NdisFSendNetBufferListsComplete(handle, original, 0);
    };
    let receive = |handle, list: List, _| {
        filter_path::NdisFIndicateReceiveNetBufferLists(handle, clone_of(handle, list), 0, 1, 0);
    };
    let give_back = |handle, clone: List| {
        note("return");
        filter_path::NdisFReturnNetBufferLists(handle, original(clone), 0);
    };
    let cloning = FilterScript {
        send: Some(send),
        complete: Some(complete),
        receive: Some(receive),
        give_back: Some(give_back),
        ..FilterScript::default()
    };
    let (sim, _, miniport) = started(&[("low", cloning), ("high", cloning)]);
    let _ = calls();
    assert_eq!(miniport.send(&[1; 60], SOON), Some(NDIS_STATUS_SUCCESS));
    assert_eq!(calls(), ["miniport sends", "complete", "complete"]);
    indicate(&miniport, 0);
    let _ = sim.event().wait(SOON);
    assert_eq!(calls(), ["return", "return"]);
    assert_eq!(miniport.received(), [[7; 60].to_vec()]);
    assert_eq!(miniport.stack().lent(), 0);
    let _ = miniport.halt();
}

#[test]
fn sends_to_a_paused_filter_are_completed() {
    let _one = one_test();
    let (sim, _, miniport) = started(&[("low", noting())]);
    miniport.pause().unwrap();
    let _ = calls();
    let sent = miniport.send_chain(&[vec![0; 60]], 0);
    assert_eq!(miniport.send_status(sent[0], SOON), Some(NDIS_STATUS_PAUSED));
    assert_eq!(calls(), [] as [&str; 0], "neither driver gets the list");
    miniport.restart().unwrap();
    finish(&sim, &miniport);
}

/// The stack is paused first: it waits for its sends, which the filter has.
#[test]
fn pause_waits_for_the_filter_to_complete_what_it_has() {
    let _one = one_test();
    let keep = |handle, list: List| HELD.lock().unwrap().push((handle, list.address()));
    let pause = |handle| {
        note("filter pauses");
        nt_sim::current().host().clone().spawn("filter", move || {
            nt_sim::current().yield_now();
            filter_stack::NdisFPauseComplete(handle);
        });
        NDIS_STATUS_PENDING
    };
    let keeping = FilterScript { send: Some(keep), pause: Some(pause), ..FilterScript::default() };
    let (sim, host, miniport) = started(&[("low", keeping)]);
    let sent = miniport.send_chain(&[vec![0; 60]], 0);
    let _ = calls();
    let pausing = host.spawn("PnP", {
        let miniport = miniport.clone();
        move || miniport.pause()
    });
    let _ = sim.event().wait(SOON);
    assert_eq!(calls(), [] as [&str; 0]);
    let release = || {
        for (handle, list) in HELD.lock().unwrap().drain(..) {
            filter_path::NdisFSendNetBufferListsComplete(handle, Guest::from_address(list), 0);
        }
    };
    host.spawn("filter", release).join().expect("the host lives");
    pausing.join().expect("the host lives").expect("the adapter pauses");
    assert_eq!(calls(), ["filter pauses", "miniport pauses"]);
    assert!(miniport.send_status(sent[0], SOON).is_some());
    finish(&sim, &miniport);
}

#[test]
fn cancellations_pass_the_filter() {
    let _one = one_test();
    let cancel = |handle, id: usize| {
        note(format!("cancel {id}"));
        filter_path::NdisFCancelSendNetBufferLists(handle, id);
    };
    let filter = FilterScript { cancel: Some(cancel), ..FilterScript::default() };
    let (sim, _, miniport) = started(&[("low", filter), ("high", filter)]);
    let _ = calls();
    miniport.cancel_sends(7);
    assert_eq!(calls(), ["cancel 7", "cancel 7"]);
    finish(&sim, &miniport);
}
