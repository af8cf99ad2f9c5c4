// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of NDK providers and of users of the IP helper: each is reported to a miniport that commits the offence.

use crate::common::{device::set_power_capable, tolerated};
use std::{
    mem::{offset_of, transmute},
    sync::{
        Mutex,
        atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::scripted::{
    Offence, Script, assert_all_reported, assert_reported, header, host, in_initialize, kept, register, run,
    set_provider, simulation, verdict, verdict_while_running,
};
use ndis_sim::{
    IpHost as _, Miniport, NdisHost as _, NdkEvent, adapter, ndk, netio::imports as netio, runtime,
};
use ndk_abi::{
    ndis::{
        NDIS_HANDLE, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1, NDIS_STATUS, NDIS_STATUS_ADAPTER_NOT_READY,
        NDIS_STATUS_FAILURE, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS, NET_PNP_EVENT_CODE,
        NET_PNP_EVENT_NOTIFICATION,
    },
    ndk::{
        NDIS_NDK_CAPABILITIES, NDIS_NDK_CAPABILITIES_REVISION_1, NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO,
        NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_VERSION,
    },
    nt::{STATUS_PENDING, STATUS_SUCCESS},
};
use nt_sim::{Tolerance, Tolerances, current, guest::Guest};

fn ndk_attributes(
    handle: usize,
    edit: fn(&mut NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, &mut NDIS_NDK_CAPABILITIES),
) {
    let info = Box::leak(Box::new(NDK_ADAPTER_INFO::zeroed()));
    let capabilities = Box::leak(Box::new(NDIS_NDK_CAPABILITIES::zeroed()));
    capabilities.Header = header(
        NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_NDK_CAPABILITIES_REVISION_1,
        NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
    );
    capabilities.NdkInfo = info;
    let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
    );
    attributes.Enabled = 1;
    attributes.NdkCapabilities = capabilities;
    edit(&mut attributes, capabilities);
    adapter::NdisMSetMiniportAttributes(handle, kept(attributes).cast());
}

#[test]
fn incomplete_ndk_attributes_are_reported() {
    assert_eq!(verdict(in_initialize(|handle| ndk_attributes(handle, |_, _| {}))), "no violation");
    assert_all_reported(&[
        (
            |handle| ndk_attributes(handle, |attributes, _| attributes.Header.Size = 8),
            "NDK attributes of 8 bytes",
        ),
        (
            |handle| {
                ndk_attributes(handle, |attributes, _| attributes.NdkCapabilities = std::ptr::null_mut());
            },
            "NDK attributes without capabilities",
        ),
        (
            |handle| ndk_attributes(handle, |_, capabilities| capabilities.Flags = 1),
            "NDK capabilities with type",
        ),
        (
            |handle| ndk_attributes(handle, |_, capabilities| capabilities.Header.Type = 0),
            "NDK capabilities with type 0x0, size",
        ),
        (
            |handle| ndk_attributes(handle, |_, capabilities| capabilities.Header.Revision = 0),
            "NDK capabilities with type",
        ),
        (
            |handle| ndk_attributes(handle, |_, capabilities| capabilities.Header.Size = 8),
            "NDK capabilities with type 0x80, size 8",
        ),
        (
            |handle| ndk_attributes(handle, |_, capabilities| capabilities.NdkInfo = std::ptr::null_mut()),
            "NDK capabilities without adapter information",
        ),
        (|handle| _ = set_provider(handle, |_| {}), "is not a miniport driver handle"),
    ]);
    let without = Script { open: Some(|_| NDIS_STATUS_FAILURE), ..Script::default() };
    assert_reported(without, "MiniportInitializeEx of an NDK provider succeeded without NDK attributes");
}

#[test]
fn incomplete_ndk_provider_characteristics_are_reported() {
    let offences: [Offence; 3] = [
        (
            |driver| _ = set_provider(driver, |provider| provider.Header.Size = 8),
            "the NDK provider characteristics have revision 1 and size 8",
        ),
        (
            |driver| _ = set_provider(driver, |provider| provider.Flags = 1),
            "Flags of the NDK provider characteristics is 0x1, but must be 0",
        ),
        (
            |driver| _ = set_provider(driver, |provider| provider.CloseNDKAdapterHandler = None),
            "the NDK provider characteristics lack OpenNDKAdapterHandler or CloseNDKAdapterHandler",
        ),
    ];
    for (offence, expected) in offences {
        let mut sim = crate::common::scripted::simulation();
        let host = crate::common::scripted::host(&mut sim);
        let script = Script { options: Some(offence), ..Script::default() };
        let _ = crate::common::scripted::register(&host, script, |_| {});
        let reported = sim.verdict().to_string();
        assert!(reported.contains(expected), "expected '{expected}', got: {reported}");
    }
}

/// An NDK adapter of version 2.1 as a provider returns it, after `edit` has changed it.
fn opened(out: *mut *mut NDK_ADAPTER, edit: fn(&mut NDK_ADAPTER)) -> NDIS_STATUS {
    const MEMBERS: usize = size_of::<NDK_ADAPTER_DISPATCH>() / size_of::<usize>();
    let mut adapter = NDK_ADAPTER::zeroed();
    adapter.Header.Version = NDK_VERSION { Major: 2, Minor: 1 };
    adapter.Header.ObjectType = NDK_OBJECT_TYPE::NdkObjectTypeAdapter;
    adapter.Dispatch = kept([1_usize; MEMBERS]).as_ptr().cast();
    edit(&mut adapter);
    Guest::new(out).write(kept(adapter).as_ptr());
    NDIS_STATUS_SUCCESS
}

/// `OpenNDKAdapterHandler`, with its result.
type Open = fn(*mut *mut NDK_ADAPTER) -> NDIS_STATUS;

fn provider(open: Open) -> Script {
    Script { open: Some(open), ..in_initialize(|handle| ndk_attributes(handle, |_, _| {})) }
}

#[test]
fn wrong_ndk_adapters_are_reported() {
    let open_and_close = |miniport: &Miniport| {
        let opened = miniport.ndk().open(2, 1).expect("the adapter is opened");
        miniport.ndk().close(opened).expect("the adapter is closed");
    };
    assert_eq!(verdict_while_running(provider(|out| opened(out, |_| {})), open_and_close), "no violation");
    let offences: [(Open, &str); 7] = [
        (|_| NDIS_STATUS_PENDING, "OpenNDKAdapterHandler returned NDIS_STATUS_PENDING"),
        (
            |out| {
                opened(out, |_| {});
                NDIS_STATUS_FAILURE
            },
            "OpenNDKAdapterHandler failed, but stored",
        ),
        (
            |out| opened(out, |adapter| adapter.Header.ObjectType = NDK_OBJECT_TYPE::NdkObjectTypePd),
            "the NDK adapter has object type",
        ),
        (
            |out| {
                opened(out, |adapter| {
                    adapter.Header.NdkReserved.rf[3] = std::ptr::without_provenance_mut(1);
                })
            },
            "NdkReserved of the NDK adapter is not zero",
        ),
        (
            |out| opened(out, |adapter| adapter.Header.Version.Minor = 0),
            "the NDK adapter has version 2.0, but was opened as 2.1",
        ),
        (
            |out| opened(out, |adapter| adapter.Dispatch = std::ptr::null()),
            "the NDK adapter has no dispatch table",
        ),
        (
            |out| {
                opened(out, |adapter| {
                    Guest::new(adapter.Dispatch.cast_mut()).cast::<usize>().add(1).write(0);
                })
            },
            "member 1 of the NDK adapter's dispatch table is null",
        ),
    ];
    for (open, expected) in offences {
        let reported = verdict_while_running(provider(open), open_and_close);
        assert!(reported.contains(expected), "expected '{expected}', got: {reported}");
    }
}

fn net_event(handle: usize, event: NET_PNP_EVENT_CODE) {
    let mut notification = NET_PNP_EVENT_NOTIFICATION::zeroed();
    notification.NetPnPEvent.NetEvent = event;
    ndk::NdisMNetPnPEvent(handle, kept(notification));
}

#[test]
fn event_after_a_request_of_the_same_thread_is_no_violation() {
    let correct = verdict_while_running(provider(|out| opened(out, |_| {})), |miniport| {
        let _ = miniport.query(0x0001_0101, 4);
        net_event(miniport.adapter().handle, NET_PNP_EVENT_CODE::NetEventNDKEnable);
    });
    assert_eq!(correct, "no violation");
}

/// "MiniportHaltEx": no handler of the miniport is called with the context that it frees.
#[test]
fn ndk_adapter_of_a_miniport_that_is_being_halted_is_not_opened() {
    static OPENS: AtomicUsize = AtomicUsize::new(0);
    let script = Script {
        halt: Some(|_| nt_sim::nt::time::sleep(5_000_000)),
        ..provider(|out| {
            OPENS.fetch_add(1, SeqCst);
            opened(out, |_| {})
        })
    };
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    miniport.pause().expect("the host lives");
    let halting = miniport.clone();
    let halting = host.spawn("PnP", move || halting.halt());
    run(&host, "consumer", move || {
        nt_sim::nt::time::sleep(1_000_000);
        assert_eq!(miniport.ndk().open(2, 1).err(), Some(NDIS_STATUS_ADAPTER_NOT_READY));
    });
    assert_eq!(halting.join().expect("the host lives"), Ok(()));
    assert_eq!(OPENS.load(SeqCst), 0);
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// A disable event waits for the NDK adapter, which is open; a second event meanwhile is reported.
#[test]
fn net_pnp_event_during_another_is_reported() {
    let reported = verdict_while_running(provider(|out| opened(out, |_| {})), |miniport| {
        let _open = miniport.ndk().open(2, 1).expect("the adapter is opened");
        let handle = miniport.adapter().handle;
        let disabling = miniport.host().spawn("work item", move || {
            net_event(handle, NET_PNP_EVENT_CODE::NetEventNDKDisable);
        });
        runtime::NdisMSleep(1000);
        net_event(handle, NET_PNP_EVENT_CODE::NetEventNDKEnable);
        let _ = disabling.join();
    });
    assert!(
        reported.contains("NdisMNetPnPEvent was called while another event is being delivered"),
        "{reported}"
    );
}

//= R-PNP-11
#[test]
fn rdma_that_isleft_enabled_in_d3_is_reported() {
    let provider = Script {
        initialize: Some(|handle| {
            set_power_capable(handle);
            ndk_attributes(handle, |_, _| {});
        }),
        answer: Some(|_, _| NDIS_STATUS_SUCCESS),
        ..provider(|_| NDIS_STATUS_FAILURE)
    };
    let reported = verdict_while_running(provider, |miniport| _ = miniport.sleep());
    let expected =
        "OID_PNP_SET_POWER to D3 completed without NetEventNDKDisable, but the device loses its state";
    assert!(reported.contains(expected), "{reported}");
}

#[test]
fn misuse_of_the_ip_helper_is_reported() {
    assert_all_reported(&[
        (|_| _ = netio::CancelMibChangeNotify2(0x1000), "which is not a notification handle"),
        (|_| netio::FreeMibTable(kept([0_u8; 64]).cast()), "which is not a MIB table"),
    ]);
}

#[test]
fn ndk_adapter_that_is_open_at_halt_is_reported() {
    let reported = verdict_while_running(provider(|out| opened(out, |_| {})), |miniport| {
        let _open = miniport.ndk().open(2, 1).expect("the adapter is opened");
    });
    assert!(reported.contains("MiniportHaltEx returned with 1 NDK adapters open"), "{reported}");
}

/// A miniport that does nothing about NDK when it is halted: it is correct where consumers have closed before.
#[test]
fn consumers_can_close_before_the_halt() {
    let mut sim = simulation();
    let host = host(&mut sim);
    host.close_ndk_before_halt(true);
    assert_eq!(register(&host, provider(|out| opened(out, |_| {})), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let open = miniport.ndk().open(2, 1).expect("the adapter is opened");
    let consumer = {
        let miniport = miniport.clone();
        host.spawn("consumer", move || {
            assert!(miniport.ndk().await_events(1, Duration::from_secs(20)), "it is asked to close");
            assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
            nt_sim::nt::time::sleep(1_000_000);
            assert_eq!(miniport.ndk().open_adapters(), 1, "the halt waits");
            miniport.ndk().close(open).expect("the host lives");
        })
    };
    miniport.halt().expect("the host lives");
    consumer.join().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// No page says whether NDIS waits for the consumers: a driver that others have seen to halt so can be run.
#[test]
fn ndk_adapters_that_are_open_at_halt_or_asleep_can_be_tolerated() {
    type Case = (Script, Tolerance, fn(&Miniport), &'static str);
    let open = |miniport: &Miniport| _ = miniport.ndk().open(2, 1).expect("the adapter is opened");
    let cases: [Case; 3] = [
        (
            provider(|out| opened(out, |_| {})),
            Tolerance::OpenAtHalt,
            open,
            "MiniportHaltEx returned with 1 NDK",
        ),
        (
            Script {
                initialize: Some(|handle| {
                    set_power_capable(handle);
                    ndk_attributes(handle, |_, _| {});
                }),
                answer: Some(|_, _| NDIS_STATUS_SUCCESS),
                ..provider(|_| NDIS_STATUS_FAILURE)
            },
            Tolerance::NdkInSleep,
            |miniport| {
                miniport.sleep().expect("it sleeps");
                miniport.wake().expect("it wakes");
            },
            "OID_PNP_SET_POWER to D3 completed without NetEventNDKDisable",
        ),
        (
            provider(|out| {
                opened(out, |_| {});
                NDIS_STATUS_FAILURE
            }),
            Tolerance::FailedOpen,
            |miniport| assert!(miniport.ndk().open(2, 1).is_err()),
            "OpenNDKAdapterHandler failed, but stored",
        ),
    ];
    for (script, fault, body, text) in cases {
        let accepted = tolerated::run(script, Tolerances::NONE.with(fault), body);
        assert!(accepted.is_clean(), "{accepted}");
        let texts: Vec<_> = accepted.tolerated.iter().map(|fault| &fault.text).collect();
        assert!(texts.len() == 1 && texts[0].starts_with(text), "{texts:?}");
    }
}

#[test]
fn close_of_an_ndk_adapter_that_hangs_is_reported() {
    unsafe extern "efiapi" fn open(
        _: NDIS_HANDLE,
        _: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        out: *mut *mut NDK_ADAPTER,
    ) -> NDIS_STATUS {
        opened(out, |_| {})
    }
    unsafe extern "efiapi" fn hang(_: NDIS_HANDLE, _: *mut NDK_ADAPTER) {
        nt_sim::nt::time::sleep(2 * 60 * 1_000_000_000);
    }
    let script = Script {
        options: Some(|driver| {
            set_provider(driver, |handlers| {
                handlers.OpenNDKAdapterHandler = Some(open);
                handlers.CloseNDKAdapterHandler = Some(hang);
            });
        }),
        ..in_initialize(|handle| ndk_attributes(handle, |_, _| {}))
    };
    let reported = verdict_while_running(script, |miniport| {
        let opened = miniport.ndk().open(2, 1).expect("the adapter is opened");
        let _ = miniport.ndk().close(opened);
    });
    let expected =
        "hangs: the consumer has not closed all objects of its adapter, or the provider does not notice it";
    assert!(reported.contains(expected), "{reported}");
}

#[test]
fn table_whose_header_was_overwritten_is_reported() {
    let offence = |_| {
        current().host().add_address(std::net::Ipv4Addr::new(10, 0, 0, 1).into(), 24);
        let table = kept(0_usize);
        assert_eq!(netio::GetUnicastIpAddressTable(0, table), 0);
        Guest::<u8>::from_address(table.read() - 1).write(1);
        netio::FreeMibTable(Guest::from_address(table.read()));
    };
    assert_reported(in_initialize(offence), "memory 1 bytes before block");
}

/// `NdkCreatePd` and `NdkCreateListener` in the dispatch table of an NDK adapter.
const CREATE_PD: usize = offset_of!(NDK_ADAPTER_DISPATCH, NdkCreatePd) / size_of::<usize>();
const CREATE_LISTENER: usize = offset_of!(NDK_ADAPTER_DISPATCH, NdkCreateListener) / size_of::<usize>();

/// Pends, and calls the completion twice.
unsafe extern "efiapi" fn complete_twice(
    _: usize,
    completion: usize,
    context: usize,
    _: usize,
) -> NDIS_STATUS {
    // SAFETY: the completion of the call.
    let completion: unsafe extern "efiapi" fn(usize, i32, usize) = unsafe { transmute(completion) };
    for _ in 0..2 {
        // SAFETY: with the context of the call; the second call is reported.
        unsafe { completion(context, NDIS_STATUS_FAILURE, 0) };
    }
    NDIS_STATUS_PENDING
}

/// Calls the event of connection requests with a context that is none.
unsafe extern "efiapi" fn request_to_nothing(_: usize, event: usize, _: usize, _: usize) -> NDIS_STATUS {
    // SAFETY: the event of the call.
    let event: unsafe extern "efiapi" fn(usize, usize) = unsafe { transmute(event) };
    // SAFETY: the context is reported before it is used.
    unsafe { event(0x1000, 0) };
    NDIS_STATUS_FAILURE
}

unsafe extern "efiapi" fn consumers_callback(_: usize, _: usize, _: usize) {}

/// Calls the member `index` of a provider's dispatch table with a callback; returns the reports.
fn call_provider(index: usize) -> String {
    type Create = unsafe extern "efiapi" fn(usize, usize, usize, usize, usize, usize) -> i32;
    let open: Open = |out| {
        opened(out, |adapter| {
            let table = Guest::new(adapter.Dispatch.cast_mut()).cast::<usize>();
            table.add(CREATE_PD).write(complete_twice as *const () as usize);
            table.add(CREATE_LISTENER).write(request_to_nothing as *const () as usize);
        })
    };
    let mut sim = crate::common::scripted::simulation();
    let host = crate::common::scripted::host(&mut sim);
    host.track_ndk_objects();
    assert_eq!(crate::common::scripted::register(&host, provider(open), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("the adapter starts");
    let body = move || {
        let adapter = miniport.ndk().open(2, 1).expect("the adapter is opened").as_ptr();
        let table = Guest::new(Guest::new(adapter).read().Dispatch.cast_mut()).cast::<usize>();
        // SAFETY: a function of the table; superfluous arguments are ignored.
        let create: Create = unsafe { transmute(table.add(index).read()) };
        let (callback, adapter) = (consumers_callback as *const () as usize, adapter.expose_provenance());
        // SAFETY: the arguments up to the request's context are those of both functions.
        unsafe { create(adapter, callback, 0, callback, 0, kept(0_usize).address()) };
    };
    let _ = host.spawn("consumer", body).join();
    sim.verdict().to_string()
}

#[test]
fn provider_that_calls_back_wrongly_is_reported() {
    let reported = call_provider(CREATE_PD);
    assert!(reported.contains("the provider called a creation's completion twice"), "{reported}");
    let reported = call_provider(CREATE_LISTENER);
    assert!(reported.contains("the provider called a connect event with context 0x1000"), "{reported}");
}

/// An object as a provider makes it: a header, and a dispatch table whose members are those of [`FUNCTIONS`].
fn object(kind: NDK_OBJECT_TYPE) -> usize {
    let object = kept([0_usize; 32]);
    let mut header = NDK_OBJECT_HEADER::zeroed();
    header.ObjectType = kind;
    object.cast().write(header);
    let mut table = [1_usize; 64];
    table[0] = close as *const () as usize;
    for &(_, index, _, function) in FUNCTIONS.iter().filter(|(of_pd, ..)| *of_pd) {
        table[index] = function as *const () as usize;
    }
    object.field::<usize>(size_of::<NDK_OBJECT_HEADER>()).write(kept(table).address());
    object.address()
}

/// Twelve parameters, as many as the longest function has.
type Call = unsafe extern "efiapi" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> i32;

/// The status that [`close`] and the creating functions return.
static STATUS: AtomicI32 = AtomicI32::new(NDIS_STATUS_SUCCESS);

unsafe extern "efiapi" fn close(_: usize, _: usize, _: usize) -> i32 {
    STATUS.load(SeqCst)
}

/// Defines a function that creates an object of a type: the place for the object is its parameter `$out`, the completion is two
/// before. If [`STATUS`] is `STATUS_PENDING`, it calls the completion at once.
macro_rules! creates {
    ($name:ident, $kind:ident, $out:literal) => {
        #[rustfmt::skip]
        unsafe extern "efiapi" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
            g: usize, h: usize, i: usize, j: usize, k: usize, l: usize,
        ) -> i32 {
            let parameters = [a, b, c, d, e, f, g, h, i, j, k, l];
            let (created, status) = (object(NDK_OBJECT_TYPE::$kind), STATUS.load(SeqCst));
            if status == STATUS_PENDING {
                // SAFETY: the completion of the call.
                let completion: unsafe extern "efiapi" fn(usize, i32, usize) = unsafe { transmute(parameters[$out - 2]) };
                // SAFETY: with the context of the call.
                unsafe { completion(parameters[$out - 1], STATUS_SUCCESS, created) };
            } else {
                Guest::<usize>::from_address(parameters[$out]).write(created);
            }
            status
        }
    };
}

creates!(create_cq, NdkObjectTypeCq, 7);
creates!(create_pd, NdkObjectTypePd, 3);
creates!(create_shared_endpoint, NdkObjectTypeSharedEndpoint, 5);
creates!(create_connector, NdkObjectTypeConnector, 3);
creates!(create_listener, NdkObjectTypeListener, 5);
creates!(create_mr, NdkObjectTypeMr, 4);
creates!(create_mw, NdkObjectTypeMw, 3);
creates!(create_srq, NdkObjectTypeSrq, 9);
creates!(create_qp, NdkObjectTypeQp, 11);
creates!(create_qp_with_srq, NdkObjectTypeQp, 10);

/// Whether the function is a PD's and not an adapter's, its index in the dispatch table, the parameter for the object.
const FUNCTIONS: [(bool, usize, usize, Call); 10] = [
    (false, 2, 7, create_cq),
    (false, 3, 3, create_pd),
    (false, 4, 5, create_shared_endpoint),
    (false, 5, 3, create_connector),
    (false, 6, 5, create_listener),
    (true, 2, 4, create_mr),
    (true, 3, 3, create_mw),
    (true, 4, 9, create_srq),
    (true, 5, 11, create_qp),
    (true, 6, 10, create_qp_with_srq),
];

/// The objects that completions named, with the context 7 of the request.
static COMPLETED: Mutex<Vec<(i32, usize)>> = Mutex::new(Vec::new());

unsafe extern "efiapi" fn completed(context: usize, status: i32, object: usize) {
    assert_eq!(context, 7);
    COMPLETED.lock().unwrap().push((status, object));
}

/// Returns a function of an object's dispatch table, as a consumer finds it.
fn function(object: usize, index: usize) -> Call {
    let table = Guest::<u8>::from_address(object).field::<usize>(size_of::<NDK_OBJECT_HEADER>()).read();
    // SAFETY: a function of the table; superfluous arguments are ignored.
    unsafe { transmute(Guest::<usize>::from_address(table).add(index).read()) }
}

/// Calls the function of `parent` that creates an object; returns the status, and the object if it was created inline.
fn create(parent: usize, (_, index, out, _): (bool, usize, usize, Call)) -> (i32, usize) {
    let created = kept(0_usize);
    let mut p = [0; 12];
    (p[0], p[out - 2], p[out - 1], p[out]) = (parent, completed as *const () as usize, 7, created.address());
    let create = function(parent, index);
    // SAFETY: the arguments of the function.
    let status = unsafe { create(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11]) };
    (status, created.read())
}

fn close_object(object: usize) -> i32 {
    // SAFETY: member 0 is `close`, which takes the object, a callback and a context; further arguments are not looked
    // at.
    unsafe { function(object, 0)(object, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
}

#[test]
fn objects_of_consumers_are_counted_below_their_adapter() {
    let open: Open = |out| {
        opened(out, |adapter| {
            let table = Guest::new(adapter.Dispatch.cast_mut()).cast::<usize>();
            for (_, index, _, function) in FUNCTIONS.into_iter().filter(|(of_pd, ..)| !of_pd) {
                table.add(index).write(function as *const () as usize);
            }
        })
    };
    let mut sim = crate::common::scripted::simulation();
    let host = crate::common::scripted::host(&mut sim);
    host.track_ndk_objects();
    assert_eq!(crate::common::scripted::register(&host, provider(open), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("the adapter starts");
    let body = move || {
        let adapters = [(); 2].map(|()| miniport.ndk().open(2, 1).expect("the adapter is opened"));
        let [first, second] = adapters.map(|adapter| adapter.as_ptr().expose_provenance());
        assert_eq!(miniport.ndk().open_objects(), [""; 0]);
        let (status, pd) = create(first, FUNCTIONS[1]);
        assert_eq!((status, miniport.ndk().open_objects()), (STATUS_SUCCESS, vec!["PD"]));
        let mut objects = vec![pd];
        for function in FUNCTIONS {
            let (status, created) = create(if function.0 { pd } else { first }, function);
            assert_eq!(status, STATUS_SUCCESS);
            objects.push(created);
        }
        let all =
            ["CQ", "PD", "PD", "MR", "MW", "SRQ", "QP", "QP", "connector", "listener", "shared endpoint"];
        let mut open = miniport.ndk().open_objects();
        assert_eq!(open.len(), all.len());
        open.retain(|kind| !all.contains(kind));
        assert_eq!(open, [""; 0]);
        assert!(COMPLETED.lock().unwrap().is_empty(), "no creation was pended");
        // A creation that fails makes nothing; a close that fails leaves the object open.
        STATUS.store(NDIS_STATUS_FAILURE, SeqCst);
        assert_eq!(create(first, FUNCTIONS[0]).0, NDIS_STATUS_FAILURE);
        assert_eq!((close_object(pd), miniport.ndk().open_objects().len()), (NDIS_STATUS_FAILURE, all.len()));
        STATUS.store(STATUS_PENDING, SeqCst);
        assert_eq!(create(second, FUNCTIONS[1]), (STATUS_PENDING, 0));
        let (status, pended) = COMPLETED.lock().unwrap().pop().expect("it is completed");
        assert_eq!((status, miniport.ndk().open_objects().len()), (STATUS_SUCCESS, all.len() + 1));
        // While a close pends the object is no longer open.
        assert_eq!((close_object(pended), miniport.ndk().open_objects().len()), (STATUS_PENDING, all.len()));
        STATUS.store(STATUS_SUCCESS, SeqCst);
        let (_, last) = create(second, FUNCTIONS[0]);
        for object in objects {
            assert_eq!(close_object(object), STATUS_SUCCESS);
        }
        assert_eq!(miniport.ndk().open_objects(), ["CQ"]);
        let left = create(first, FUNCTIONS[3]).1;
        miniport.ndk().close(adapters[0]).expect("the adapter is closed");
        assert_eq!(miniport.ndk().open_objects(), ["CQ"], "of the other adapter");
        assert_eq!(close_object(last), STATUS_SUCCESS);
        miniport.ndk().close(adapters[1]).expect("the adapter is closed");
        // It was forgotten with its adapter.
        close_object(left);
    };
    assert!(host.spawn("consumer", body).join().is_err());
    let reported = sim.verdict();
    assert_eq!(reported.violations.len(), 1, "{reported}");
    assert!(reported.violations[0].text.contains("an NDK object was closed twice"), "{reported}");
}
