// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings for authors of consumers, read from the registry: calls that pend, a create call that fails, callbacks that
//! are held back.
#![allow(unsafe_code, reason = "calls the driver through pointers, as a consumer does")]

use core::ffi::c_void;
use core::ptr::{null, null_mut};
use std::sync::Arc;

use lab::{
    os::SimOs,
    strict_image,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_abi::ndk::*;
use ndk_abi::nt::{
    NTSTATUS, STATUS_CONNECTION_INVALID, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER, STATUS_PENDING,
    STATUS_SUCCESS,
};
use ndk_consumer::{Adapter, FastMemory, Pd};
use ndk_provider::Mistake;
use support::strict::{create_four, run};

#[test]
fn chosen_create_call_fails_and_no_other() {
    for completion in 0..=3 {
        let cases: [(&[(&str, u32)], _); 4] = [
            (&[], [false; 4]),
            (&[("NdkStrictFailCreate", 3)], [false, false, true, false]),
            (&[("NdkStrictFailCreate", 2), ("NdkStrictFailType", 6)], [false, false, false, true]),
            (&[("NdkStrictFailCreate", 1), ("NdkStrictFailType", 3)], [false, true, false, false]),
        ];
        for (settings, expected) in cases {
            let settings = [settings, &[("NdkCreateCompletion", completion)]].concat();
            let Some((failed, _)) = run(&settings, create_four) else { return };
            assert_eq!(failed, expected, "{settings:?}");
        }
    }
}

#[test]
fn callbacks_are_held_back_for_the_set_time() {
    let scenario = |settings: &[(&'static str, u32)]| run(settings, |adapter| drop(Pd::new(adapter)));
    let Some(((), at_once)) = scenario(&[("NdkCreateCompletion", 2)]) else { return };
    let delay = [("NdkCreateCompletion", 2), ("NdkStrictDelay", 200_000)];
    let Some(((), late)) = scenario(&delay) else { return };
    // A create and a close.
    assert!(at_once < 200_000 && late >= 400_000, "{at_once} us, {late} us");
    let random = [delay[0], delay[1], ("NdkStrictDelayRandom", 1)];
    let Some(((), random)) = scenario(&random) else { return };
    assert!(at_once < random && random < late, "{at_once} us, {random} us, {late} us");
}

/// `NdkBuildLAM` pends with one value only. A fast registration calls it twice.
#[test]
fn logical_address_mappings_are_built_inline_unless_all_calls_pend() {
    const DELAY: u32 = 200_000;
    let time = |completion: u32| {
        let settings = [("NdkCreateCompletion", completion), ("NdkStrictDelay", DELAY)];
        let consumer = |adapter: &Arc<Adapter<SimOs>>| {
            let pd = Pd::new(adapter).expect("a protection domain");
            drop(FastMemory::new(&pd, 10_000).expect("a region"));
        };
        run(&settings, consumer).map(|((), took)| took / u128::from(DELAY))
    };
    // Two objects are created and closed, and the region is initialized.
    let Some(pended) = (0..=3).map(time).collect::<Option<Vec<_>>>() else { return };
    assert_eq!(pended, [0, 0, 5, 7]);
}

unsafe extern "efiapi" fn on_create(_: *mut c_void, _: NTSTATUS, _: *mut NDK_OBJECT_HEADER) {}
unsafe extern "efiapi" fn on_close(_: *mut c_void) {}
unsafe extern "efiapi" fn on_cq(_: *mut c_void, _: NTSTATUS) {}

/// Calls a member of an object's dispatch table in the image.
macro_rules! call {
    ($object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        nt_sim::image::call(stringify!($member), || {
            // SAFETY: an object of the provider, perhaps closed: its memory is kept.
            unsafe { ((*(*object).Dispatch).$member.expect("no member is null"))(object.cast() $(, $argument)*) }
        })
    }};
}

/// Creates an object; the call completes inline.
fn create<T>(call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut *mut T) -> NTSTATUS) -> *mut T {
    let mut out = null_mut();
    assert_eq!(call(Some(on_create), &raw mut out), STATUS_SUCCESS);
    out
}

/// Makes mistakes with the objects of an adapter and closes the objects. Returns their names, types and addresses.
fn make_mistakes(adapter: *mut NDK_ADAPTER) -> Vec<(Mistake, u32, u32)> {
    let none = null_mut();
    let pd = create(|done, out| call!(adapter, NdkCreatePd, done, none, out));
    let cq =
        create(|done, out| call!(adapter, NdkCreateCq, 4, Some(on_cq), none, none.cast(), done, none, out));
    let qp = create(|done, out| call!(pd, NdkCreateQp, cq, cq, none, 1, 1, 1, 1, 0, done, none, out));
    let connector = create(|done, out| call!(adapter, NdkCreateConnector, done, none, out));
    let of = |mistake, kind, address: usize| (mistake, kind, address as u32);
    let mut made = Vec::new();
    //= R-QP-4, R-QP-16, R-QP-18, R-QP-43
    assert_eq!(call!(qp, NdkSend, none, null(), 0, 0), STATUS_CONNECTION_INVALID);
    made.push(of(Mistake::NotConnected, 2, qp.addr()));
    let sges = [NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: none },
        Length: 8,
        MemoryRegionToken: 0x4711,
    }; 2];
    assert_eq!(call!(qp, NdkReceive, none, sges.as_ptr(), 2), STATUS_DATA_OVERRUN);
    made.push(of(Mistake::TooManySges, 2, qp.addr()));
    assert_eq!(call!(qp, NdkReceive, none, sges.as_ptr(), 1), STATUS_SUCCESS);
    made.push(of(Mistake::UnknownToken, 2, qp.addr()));
    assert_ne!(call!(qp, NdkReceive, none, null(), 0), STATUS_SUCCESS);
    made.push(of(Mistake::QueueFull, 2, qp.addr()));
    //= R-CONN-28
    let complete = call!(connector, NdkCompleteConnect, None, none, None, none);
    assert_eq!(complete, STATUS_CONNECTION_INVALID);
    made.push(of(Mistake::NoCallback, 8, connector.addr()));
    made.push(of(Mistake::ConnectorState, 8, connector.addr()));
    //= R-CREATE-20, R-CLOSE-37
    let mut out = null_mut();
    let refused =
        call!(adapter, NdkCreateCq, 0, Some(on_cq), none, none.cast(), Some(on_create), none, &raw mut out);
    assert_eq!((refused, out.is_null()), (STATUS_INVALID_PARAMETER, true));
    made.push(of(Mistake::CreateArguments, 1, adapter.addr()));
    let pair = (pd.cast::<NDK_CQ>(), cq);
    let mut out = core::ptr::dangling_mut();
    let done = Some(on_create as NDK_FN_CREATE_COMPLETION);
    let refused = call!(pd, NdkCreateQp, pair.0, pair.1, none, 1, 1, 1, 1, 0, done, none, &raw mut out);
    assert_eq!((refused, out.is_null()), (STATUS_INVALID_PARAMETER, true));
    made.push(of(Mistake::WrongObject, 6, pd.addr()));
    //= R-CLOSE-9, R-CLOSE-12
    let closed = Some(on_close as NDK_FN_CLOSE_COMPLETION);
    assert_eq!(call!(cq, NdkCloseCq, closed, none), STATUS_PENDING);
    made.push(of(Mistake::AntecedentClosed, 3, cq.addr()));
    assert_eq!(call!(qp, NdkCloseQp, closed, none), STATUS_SUCCESS);
    call!(qp, NdkFlush);
    made.push(of(Mistake::UseAfterClose, 2, qp.addr()));
    assert_eq!(call!(connector, NdkCloseConnector, closed, none), STATUS_SUCCESS);
    assert_eq!(call!(pd, NdkClosePd, closed, none), STATUS_SUCCESS);
    made
}

#[test]
fn mistakes_of_a_consumer_are_events_that_name_the_object() {
    let Some(path) = strict_image() else { return };
    let keywords = vec![("NdkStrictReport", Keyword::Text("1".into()))];
    let mut bed = Testbed::new(&path, &Options { keywords, ..Options::default() }).expect("an image");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let miniport = machine.miniport().expect("it has started").clone();
    let consumer = machine.host().spawn("consumer", move || {
        let opened = miniport.ndk().open(2, 0).expect("an adapter");
        let made = make_mistakes(opened.as_ptr());
        miniport.ndk().close(opened).expect("the host lives");
        made
    });
    let made = consumer.join().unwrap_or_else(|_| panic!("{}", bed.violations().join("\n")));
    let log = machine.event_log();
    let logged: Vec<_> =
        log.iter().map(|entry| (entry.code & 0xffff, entry.data[0], entry.data[1])).collect();
    let made: Vec<_> =
        made.into_iter().map(|(mistake, kind, object)| (mistake.number(), kind, object)).collect();
    assert_eq!(logged, made);
    // What is kept of closed objects is freed.
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
