// SPDX-License-Identifier: MIT OR Apache-2.0

//! Poll objects: when NDIS calls their handlers, and what it does with the lists that they pass.

use std::{
    ffi::c_void,
    mem::offset_of,
    ptr::null_mut,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::{
    lists::{self, list},
    scripted::{self, Script, header, host, in_initialize, kept, register, simulation},
};
use ndis_sim::{Miniport, NdisHost as _, nbl, poll, poll::CALLS_AT_DISPATCH};
use ndk_abi::{
    ndis::{
        NDIS_ANY_NUMBER_OF_NBLS, NDIS_OBJECT_TYPE_DEFAULT, NDIS_POLL_CHARACTERISTICS, NDIS_POLL_DATA,
        NDIS_POLL_NOTIFICATION, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
        NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS,
        NET_BUFFER_LIST,
    },
    nt::{GROUP_AFFINITY, PROCESSOR_NUMBER},
};
use nt_sim::{
    Host, Irql, Sim, current,
    guest::Guest,
    host::HostOptions,
    nt::{irql::KfRaiseIrql, processor::KeSetSystemGroupAffinityThread},
};

const NEXT: usize = offset_of!(NET_BUFFER_LIST, Next);

/// One call of a handler: that of `NdisPoll`, or the notification was to be enabled or disabled; its level and its processor.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Call {
    Poll(Irql, u32),
    Enable(Irql, u32),
    Disable(Irql, u32),
}

/// The calls after a request that are all made at this level on this processor, of which none makes progress.
fn without_progress(level: Irql, processor: u32) -> Vec<Call> {
    let of = |call: fn(Irql, u32) -> Call| call(level, processor);
    vec![of(Call::Disable), of(Call::Poll), of(Call::Enable), of(Call::Poll)]
}

/// The actions of the poll object's handlers.
struct Poller {
    /// The adapter's handle.
    adapter: usize,
    /// The handle of the poll object.
    handle: AtomicUsize,
    /// Number of calls of `NdisPoll` that make progress.
    work: AtomicU32,
    poll: fn(&Self, &mut NDIS_POLL_DATA),
    calls: Mutex<Vec<Call>>,
    inside: AtomicBool,
    /// Calls of a handler while another one ran.
    overlaps: AtomicU32,
    /// Addresses of the lists that the miniport indicated.
    lists: Mutex<Vec<usize>>,
}

/// The poll object of the miniport that runs.
static POLLER: Mutex<Option<&'static Poller>> = Mutex::new(None);
/// The action of [`POLLER`].
static POLL: Mutex<fn(&Poller, &mut NDIS_POLL_DATA)> = Mutex::new(indicate_one);
/// The miniport runs. Before, calls of `NdisPoll` do nothing: NDIS makes some from the registration on.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// The miniports share what is static.
static TEST: Mutex<()> = Mutex::new(());

fn poller() -> &'static Poller {
    POLLER.lock().unwrap().expect("a poll object is registered")
}

impl Poller {
    fn enter(&self, call: impl FnOnce(Irql, u32) -> Call) {
        self.overlaps.fetch_add(self.inside.swap(true, SeqCst).into(), SeqCst);
        let me = current();
        self.calls.lock().unwrap().push(call(me.irql(), me.cpu().0));
    }

    fn has_work(&self) -> bool {
        self.work.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

unsafe extern "efiapi" fn on_poll(context: *mut c_void, data: *mut NDIS_POLL_DATA) {
    // SAFETY: the context that `register_with` passed, never freed.
    let poller = unsafe { &*context.cast::<Poller>() };
    poller.enter(Call::Poll);
    if RUNNING.load(SeqCst) {
        // SAFETY: NDIS's data, of this call.
        (poller.poll)(poller, unsafe { &mut *data });
    }
    poller.inside.store(false, SeqCst);
}

unsafe extern "efiapi" fn on_notify(context: *mut c_void, notification: *mut NDIS_POLL_NOTIFICATION) {
    // SAFETY: the context that `register_with` passed, never freed.
    let poller = unsafe { &*context.cast::<Poller>() };
    // SAFETY: NDIS's notification, of this call.
    let is_enabled = unsafe { (*notification).Enabled };
    assert!(is_enabled <= 1);
    poller.enter(if is_enabled == 1 { Call::Enable } else { Call::Disable });
    poller.inside.store(false, SeqCst);
}

/// Registers a poll object after `edit` has changed its characteristics.
fn register_with(adapter: usize, edit: fn(&mut NDIS_POLL_CHARACTERISTICS)) {
    let poller = Box::leak(Box::new(Poller {
        adapter,
        handle: AtomicUsize::new(0),
        work: AtomicU32::new(0),
        poll: *POLL.lock().unwrap(),
        calls: Mutex::default(),
        inside: AtomicBool::new(false),
        overlaps: AtomicU32::new(0),
        lists: Mutex::default(),
    }));
    let mut characteristics = NDIS_POLL_CHARACTERISTICS::zeroed();
    characteristics.Header =
        header(NDIS_OBJECT_TYPE_DEFAULT, 1, NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1);
    characteristics.PollHandler = Some(on_poll);
    characteristics.SetPollNotificationHandler = Some(on_notify);
    edit(&mut characteristics);
    let handle = kept(0_usize);
    let context = std::ptr::from_mut(poller).expose_provenance();
    let status = poll::NdisRegisterPoll(adapter, context, kept(characteristics), handle);
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    poller.handle.store(handle.read(), SeqCst);
    *POLLER.lock().unwrap() = Some(poller);
}

fn start_polling(adapter: usize) {
    register_with(adapter, |_| {});
}

fn stop_polling(_: usize) {
    poll::NdisDeregisterPoll(poller().handle.load(SeqCst));
}

/// Deregisters the poll object, and frees the lists that were indicated.
fn halt(adapter: usize) {
    stop_polling(adapter);
    free_lists(adapter);
}

fn free_lists(_: usize) {
    let lists = std::mem::take(&mut *poller().lists.lock().unwrap());
    for list in lists {
        lists::free(Guest::from_address(list));
    }
}

fn request() {
    poll::NdisRequestPoll(poller().handle.load(SeqCst), 0);
}

fn on_processor(number: u8) {
    let number = PROCESSOR_NUMBER { Group: 0, Number: number, Reserved: 0 };
    poll::NdisSetPollAffinity(poller().handle.load(SeqCst), kept(number));
}

/// Lets the host's other threads run, for longer than all calls of a test take.
fn settle() {
    nt_sim::nt::time::sleep(10_000_000);
}

fn calls() -> Vec<Call> {
    std::mem::take(&mut *poller().calls.lock().unwrap())
}

fn indicated(data: &mut NDIS_POLL_DATA, list: Guest<NET_BUFFER_LIST>) {
    data.Receive.IndicatedNblChain = list.as_ptr();
    data.Receive.NumberOfIndicatedNbls = 1;
}

/// Indicates a list for each unit of work.
fn indicate_one(poller: &Poller, data: &mut NDIS_POLL_DATA) {
    if poller.has_work() {
        let list = list(poller.adapter);
        poller.lists.lock().unwrap().push(list.address());
        indicated(data, list);
    }
}

/// Runs a miniport with a poll object whose handler is `on`, and `body` while it runs; returns what the verifier says.
fn run(on: fn(&Poller, &mut NDIS_POLL_DATA), script: Script, body: fn(&Miniport)) -> String {
    *POLL.lock().unwrap() = on;
    RUNNING.store(false, SeqCst);
    let mut sim: Sim = simulation();
    let host: Arc<Host> = sim.add_host(HostOptions { cpus: 3, ..HostOptions::new("host") });
    host.plug(device_sim::NicOptions::new([2, 0, 0, 0, 0, 1]));
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    if let Ok(miniport) = Miniport::start(&host) {
        let running = miniport.clone();
        let body = move || {
            settle();
            RUNNING.store(true, SeqCst);
            body(&running);
        };
        let _ = host.spawn("caller", body).join();
        if !host.is_dead() {
            let _ = miniport.halt();
        }
    }
    sim.verdict().to_string()
}

/// Runs the miniport, as [`run`] does, with a poll object from initialization to halt.
fn polled(on: fn(&Poller, &mut NDIS_POLL_DATA), body: fn(&Miniport)) -> String {
    run(on, Script { initialize: Some(start_polling), halt: Some(halt), ..Script::default() }, body)
}

fn serialized<T>(body: impl FnOnce() -> T) -> T {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// (windows-driver-docs-ddi: poll/nc-poll-ndis_poll)
#[test]
fn miniport_is_polled_while_it_makes_progress_at_both_levels_and_on_the_processor_that_it_set() {
    let verdict = serialized(|| {
        polled(indicate_one, |miniport| {
            let (dispatch, passive) = (Irql::DISPATCH_LEVEL, Irql::PASSIVE_LEVEL);
            let first: Vec<_> = without_progress(dispatch, 0).split_off(1);
            assert_eq!(calls(), first, "once from its registration on");
            settle();
            assert_eq!(calls(), [], "nothing was requested");
            for processor in [1, 2] {
                let mask = GROUP_AFFINITY { Mask: 1 << processor, Group: 0, Reserved: [0; 3] };
                KeSetSystemGroupAffinityThread(kept(mask), Guest::null());
                request();
                settle();
                let expected = without_progress(dispatch, processor);
                assert_eq!(calls(), expected, "without one that it set, on that of the request");
            }
            poller().work.store(CALLS_AT_DISPATCH, SeqCst);
            request();
            settle();
            let mut expected = vec![Call::Disable(dispatch, 2)];
            expected.extend([Call::Poll(dispatch, 2); CALLS_AT_DISPATCH as usize]);
            expected.extend(without_progress(passive, 0).split_off(1));
            assert_eq!(calls(), expected, "on another one at PASSIVE_LEVEL");
            assert_eq!(miniport.received().len(), CALLS_AT_DISPATCH as usize);
            on_processor(2);
            poller().work.store(CALLS_AT_DISPATCH + 1, SeqCst);
            request();
            settle();
            let mut expected = vec![Call::Disable(dispatch, 2)];
            expected.extend([Call::Poll(dispatch, 2); CALLS_AT_DISPATCH as usize]);
            expected.push(Call::Poll(passive, 2));
            expected.extend(without_progress(passive, 2).split_off(1));
            assert_eq!(calls(), expected);
            assert_eq!(miniport.received().len(), CALLS_AT_DISPATCH as usize + 1);
            on_processor(1);
            request();
            settle();
            assert_eq!(calls(), without_progress(dispatch, 1), "without work, once");
        })
    });
    assert_eq!(verdict, "no violation");
}

/// A frame that arrives while the notification is being enabled has no other call: its own request has come too early.
#[test]
fn miniport_is_polled_again_after_its_notification_was_enabled() {
    let verdict = serialized(|| {
        polled(
            |poller, data| {
                // The first call after each request finds nothing.
                if poller.work.fetch_add(1, SeqCst) % 3 == 1 {
                    let list = list(poller.adapter);
                    poller.lists.lock().unwrap().push(list.address());
                    indicated(data, list);
                }
            },
            |miniport| {
                calls();
                request();
                settle();
                let seen: Vec<_> = calls().iter().map(|call| matches!(call, Call::Poll(..))).collect();
                // The call after the list finds nothing, nor does the one after the notification was enabled again.
                assert_eq!(seen, [false, true, false, true, true, false, true], "without disabling it");
                assert_eq!(miniport.received().len(), 1);
                settle();
                assert_eq!(calls(), []);
            },
        )
    });
    assert_eq!(verdict, "no violation");
}

/// "It is guaranteed that NDIS will invoke the NdisPoll callback at least once", and the handlers of an object are serialized
/// (windows-driver-docs-ddi: poll/nf-poll-ndisrequestpoll).
#[test]
fn request_during_a_call_brings_another_call_after_it() {
    let ask_again = |poller: &Poller, _: &mut NDIS_POLL_DATA| {
        if poller.has_work() {
            let old = KfRaiseIrql(Irql::DEVICE_LEVEL.0);
            request();
            current().yield_now();
            current().lower(Irql(old));
        }
    };
    let verdict = serialized(|| {
        polled(ask_again, |_| {
            calls();
            poller().work.store(2, SeqCst);
            request();
            settle();
            let seen: Vec<_> = calls().iter().map(|call| matches!(call, Call::Poll(..))).collect();
            // The first request has no effect, because a call follows; the second one brings another series.
            let series = [false, true, false, true];
            assert_eq!(seen, [series, series].concat());
            assert_eq!(poller().overlaps.load(SeqCst), 0);
        })
    });
    assert_eq!(verdict, "no violation");
}

/// The sends of the miniport, which the next call of `NdisPoll` completes.
static SENDS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn sends_are_completed_by_a_call_up_to_the_limit() {
    let complete = |_: &Poller, data: &mut NDIS_POLL_DATA| {
        let limit = data.Transmit.MaxNblsToComplete as usize;
        assert_eq!((limit, data.Receive.MaxNblsToIndicate), (2, 2));
        let mut at: Guest<NET_BUFFER_LIST> = Guest::from_address(SENDS.swap(0, SeqCst));
        data.Transmit.CompletedNblChain = at.as_ptr();
        data.Transmit.NumberOfCompletedNbls = NDIS_ANY_NUMBER_OF_NBLS;
        let mut count = 0;
        while !at.is_null() {
            count += 1;
            at.field(offset_of!(NET_BUFFER_LIST, Status)).write(NDIS_STATUS_FAILURE);
            let next = at.field::<usize>(NEXT);
            let rest = next.read();
            if count == limit {
                next.write(0);
                SENDS.store(rest, SeqCst);
                break;
            }
            at = Guest::from_address(rest);
        }
    };
    let send = |_, lists: *mut NET_BUFFER_LIST| {
        SENDS.store(lists.expose_provenance(), SeqCst);
        request();
    };
    let script =
        Script { initialize: Some(start_polling), halt: Some(halt), send: Some(send), ..Script::default() };
    let verdict = serialized(|| {
        run(complete, script, |miniport| {
            calls();
            miniport.host().set_receive_limit(Some(2));
            let ids = miniport.send_chain(&[vec![0; 60], vec![1; 60], vec![2; 60]], 0);
            for id in ids {
                assert_eq!(miniport.send_status(id, Duration::from_secs(1)), Some(NDIS_STATUS_FAILURE));
            }
            settle();
            let seen = calls();
            let polls = seen.iter().filter(|call| matches!(call, Call::Poll(..))).count();
            assert_eq!(
                (seen.len(), polls),
                (6, 4),
                "two with completions, and one before and after it is enabled"
            );
        })
    });
    assert_eq!(verdict, "no violation");
}

#[test]
fn no_handler_is_called_after_the_object_was_deregistered() {
    let script = Script { initialize: Some(start_polling), halt: Some(free_lists), ..Script::default() };
    let verdict = serialized(|| {
        run(indicate_one, script, |_| {
            poller().work.store(u32::MAX, SeqCst);
            request();
            nt_sim::nt::time::sleep(100_000);
            stop_polling(0);
            assert!(!calls().is_empty(), "it was polled before");
            assert!(!poller().inside.load(SeqCst));
            settle();
            assert_eq!(calls(), []);
        })
    });
    assert_eq!(verdict, "no violation");
}

#[track_caller]
fn assert_reported(verdict: &str, expected: &str) {
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

#[test]
fn wrong_registration_is_reported() {
    let offences: &[scripted::Offence] = &[
        (
            |adapter| register_with(adapter, |of| of.Header.Size = 16),
            "NdisRegisterPoll: the characteristics have type 0x80, revision 1 and 16 bytes",
        ),
        (
            |adapter| register_with(adapter, |of| of.Header.Revision = 2),
            "NdisRegisterPoll: the characteristics have type 0x80, revision 2 and 24 bytes",
        ),
        (
            |adapter| register_with(adapter, |of| of.Header.Type = 0x81),
            "NdisRegisterPoll: the characteristics have type 0x81, revision 1 and 24 bytes",
        ),
        (
            |adapter| register_with(adapter, |of| of.PollHandler = None),
            "NdisRegisterPoll: PollHandler and SetPollNotificationHandler are required",
        ),
        (
            |adapter| register_with(adapter, |of| of.SetPollNotificationHandler = None),
            "NdisRegisterPoll: PollHandler and SetPollNotificationHandler are required",
        ),
        (|_| poll::NdisRequestPoll(0x10, 0), "0x10 is not a poll handle"),
        (
            |adapter| {
                start_polling(adapter);
                poll::NdisRequestPoll(poller().handle.load(SeqCst), 1);
            },
            "NdisRequestPoll: Reserved is not null",
        ),
        (
            |adapter| {
                start_polling(adapter);
                on_processor(3);
            },
            "NdisSetPollAffinity to processor 3 of group 0, which does not exist",
        ),
        (
            |adapter| {
                start_polling(adapter);
                stop_polling(adapter);
                stop_polling(adapter);
            },
            "is not a poll handle",
        ),
        (start_polling, "MiniportHaltEx returned without releasing: NdisRegisterPoll"),
    ];
    for &(offence, expected) in offences {
        let verdict = serialized(|| run(indicate_one, in_initialize(offence), |_| {}));
        assert_reported(&verdict, expected);
    }
}

#[test]
fn driver_of_an_older_ndis_that_registers_is_reported() {
    let verdict = serialized(|| {
        let mut sim = simulation();
        let host = host(&mut sim);
        let script = in_initialize(start_polling);
        let registered = register(&host, script, |of| of.MinorNdisVersion = 84);
        assert_eq!(registered, Some(NDIS_STATUS_SUCCESS));
        let _ = Miniport::start(&host);
        sim.verdict().to_string()
    });
    assert_reported(&verdict, "NdisRegisterPoll by a driver of NDIS 6.84; poll objects require 6.85");
}

#[test]
fn registration_fails_without_memory() {
    let verdict = serialized(|| {
        let body = |adapter| {
            current().host().low_resources.fail_nth(0);
            let mut characteristics = NDIS_POLL_CHARACTERISTICS::zeroed();
            characteristics.Header =
                header(NDIS_OBJECT_TYPE_DEFAULT, 1, NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1);
            characteristics.PollHandler = Some(on_poll);
            characteristics.SetPollNotificationHandler = Some(on_notify);
            let handle = kept(7_usize);
            assert_ne!(
                poll::NdisRegisterPoll(adapter, 0, kept(characteristics), handle),
                NDIS_STATUS_SUCCESS
            );
            assert_eq!(handle.read(), 7);
        };
        run(indicate_one, in_initialize(body), |_| {})
    });
    assert_eq!(verdict, "no violation");
}

/// The action of a call of `NdisPoll`, and the report.
type Offence = (fn(&Poller, &mut NDIS_POLL_DATA), &'static str);

#[test]
fn calls_that_return_wrong_data_are_reported() {
    let offences: &[Offence] = &[
        (
            |poller, data| {
                indicated(data, list(poller.adapter));
                data.Receive.NumberOfIndicatedNbls = 2;
            },
            "NdisPoll says that it indicated 2 lists, but the chain has 1",
        ),
        (
            |_, data| data.Transmit.NumberOfCompletedNbls = 1,
            "NdisPoll says that it completed 1 lists, but the chain has 0",
        ),
        (
            |poller, data| {
                let (first, second) = (list(poller.adapter), list(poller.adapter));
                first.field::<usize>(NEXT).write(second.address());
                indicated(data, first);
                data.Receive.NumberOfIndicatedNbls = NDIS_ANY_NUMBER_OF_NBLS;
            },
            "NdisPoll indicated 2 lists, more than the limit of 1",
        ),
        (
            |_, data| data.Receive.MaxNblsToIndicate = 7,
            "NdisPoll changed limits or reserved members of NDIS_POLL_DATA",
        ),
        (
            |_, data| data.Transmit.Reserved3[3] = null_mut::<c_void>().wrapping_byte_add(1),
            "NdisPoll changed limits or reserved members of NDIS_POLL_DATA",
        ),
        (
            |poller, data| {
                indicated(data, list(poller.adapter));
                data.Receive.Flags = NDIS_RECEIVE_FLAGS_RESOURCES;
            },
            "NdisPoll set the receive flags 0x2, which it may not",
        ),
        (
            |_, data| data.Transmit.SendCompleteFlags = NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
            "NdisPoll set the completion flags 0x1, which it may not",
        ),
        (
            |poller, data| {
                let list = list(poller.adapter);
                list.field::<usize>(offset_of!(NET_BUFFER_LIST, SourceHandle)).write(1);
                indicated(data, list);
            },
            "the SourceHandle of a received NET_BUFFER_LIST is not the adapter's handle",
        ),
        (
            |poller, data| {
                data.Transmit.CompletedNblChain = {
                    data.Transmit.NumberOfCompletedNbls = 1;
                    list(poller.adapter).as_ptr()
                }
            },
            "NdisMSendNetBufferListsComplete of",
        ),
        (
            |_, _| {
                KfRaiseIrql(Irql::DEVICE_LEVEL.0);
            },
            "IRQL_UNEXPECTED_VALUE",
        ),
    ];
    for &(offence, expected) in offences {
        let verdict = serialized(|| {
            polled(offence, |miniport| {
                miniport.host().set_receive_limit(Some(1));
                request();
                settle();
            })
        });
        assert_reported(&verdict, expected);
    }
}

#[test]
fn lists_indicated_by_a_call_while_the_adapter_is_paused_are_reported() {
    let verdict = serialized(|| {
        polled(indicate_one, |miniport| {
            miniport.pause().unwrap();
            poller().work.store(1, SeqCst);
            request();
            settle();
        })
    });
    assert_reported(&verdict, "NdisPoll with received lists was called in state Paused");
}

#[test]
fn object_that_its_own_handler_deregisters_is_reported() {
    let deregister = |poller: &Poller, data: &mut NDIS_POLL_DATA| {
        if current().irql() == Irql::PASSIVE_LEVEL {
            stop_polling(0);
        }
        indicated(data, list(poller.adapter));
    };
    let verdict = serialized(|| {
        polled(deregister, |_| {
            request();
            settle();
        })
    });
    assert_reported(&verdict, "NdisDeregisterPoll by a handler of the poll object: deadlock");
}

/// The stack returns a list that a call indicated, as any other.
#[test]
fn list_of_a_call_is_the_stacks_until_it_is_returned() {
    let verdict = serialized(|| {
        polled(
            |poller, data| {
                let list = list(poller.adapter);
                indicated(data, list);
                SENDS.store(list.address(), SeqCst);
            },
            |miniport| {
                miniport.stack().keep(true);
                request();
                nt_sim::nt::time::sleep(1000);
                nbl::NdisFreeNetBufferList(Guest::from_address(SENDS.load(SeqCst)));
            },
        )
    });
    assert_reported(&verdict, "which the stack has not returned");
}
