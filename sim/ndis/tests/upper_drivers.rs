// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protocol and filter drivers that a miniport driver registers (WDK, `NdisRegisterProtocolDriver`, `NdisFRegisterFilterDriver`, and the
//! pages of their characteristics).

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::common::scripted::{Script, assert_all_reported, in_initialize, kept, verdict};
use ndis_sim::upper_drivers::{
    NdisCloseAdapterEx, NdisDeregisterProtocolDriver, NdisFDeregisterFilterDriver, NdisFRegisterFilterDriver,
    NdisOidRequest, NdisOpenAdapterEx, NdisReEnumerateProtocolBindings, NdisRegisterProtocolDriver,
    NdisReturnNetBufferLists, NdisSendNetBufferLists,
};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_STATUS, NDIS_STATUS_BAD_CHARACTERISTICS, NDIS_STATUS_BAD_VERSION, NDIS_STATUS_FAILURE,
    NDIS_STATUS_SUCCESS,
};
use nt_sim::{current, guest::Guest};

static OPTIONS: AtomicU32 = AtomicU32::new(0);

/// `SetOptions`, with the context 42; it fails with another one.
unsafe extern "efiapi" fn set_options(driver: NDIS_HANDLE, context: NDIS_HANDLE) -> NDIS_STATUS {
    assert!(!driver.is_null());
    OPTIONS.fetch_add(1, SeqCst);
    if context.addr() == 42 { NDIS_STATUS_SUCCESS } else { NDIS_STATUS_FAILURE }
}

/// Characteristics with all handlers: type, size, and offset of the first handler.
fn characteristics((kind, size, first): (u8, u16, usize)) -> Guest<u8> {
    let memory: Guest<u8> = kept([0_u64; 32]).cast();
    memory.write_bytes(&[kind, 1]);
    memory.field::<u16>(2).write(size);
    memory.add(4).write_bytes(&[6, 85]);
    for offset in (first..size.into()).step_by(8) {
        memory.field::<usize>(offset).write(set_options as *const () as usize);
    }
    memory
}

const PROTOCOL: (u8, u16, usize) = (0x95, 120, 32);
const FILTER: (u8, u16, usize) = (0x8b, 200, 64);

/// Registers a protocol driver or a filter driver; returns status and handle.
fn register(is_filter: bool, context: usize, edit: impl FnOnce(Guest<u8>)) -> (NDIS_STATUS, usize) {
    let from = characteristics(if is_filter { FILTER } else { PROTOCOL });
    edit(from);
    let handle = kept(0_usize);
    let status = if is_filter {
        NdisFRegisterFilterDriver(Guest::null(), context, from, handle)
    } else {
        NdisRegisterProtocolDriver(context, from, handle)
    };
    (status, handle.read())
}

#[test]
fn a_miniport_driver_registers_protocol_and_filter_drivers() {
    let options = |_| {
        let before = OPTIONS.load(SeqCst);
        for is_filter in [false, true] {
            let (status, handle) = register(is_filter, 42, |_| ());
            assert_eq!(status, NDIS_STATUS_SUCCESS);
            let function = if is_filter { "NdisFRegisterFilterDriver" } else { "NdisRegisterProtocolDriver" };
            assert!(current().host().objects.contains(function, handle), "a leak is reported");
            if is_filter {
                NdisFDeregisterFilterDriver(handle);
            } else {
                NdisReEnumerateProtocolBindings(handle);
                NdisDeregisterProtocolDriver(handle);
            }
            assert!(!current().host().objects.contains(function, handle));
        }
        assert!(OPTIONS.load(SeqCst) >= before + 2);
    };
    assert_eq!(verdict(Script { options: Some(options), ..Script::default() }), "no violation");
}

#[test]
fn wrong_characteristics_are_refused() {
    let body = |_| {
        for (is_filter, mandatory) in [(false, [40, 48, 56, 64]), (true, [80, 88, 96, 104])] {
            let status = |edit: &dyn Fn(Guest<u8>)| register(is_filter, 42, edit).0;
            assert_eq!(status(&|from| from.write(0x80)), NDIS_STATUS_BAD_CHARACTERISTICS);
            assert_eq!(status(&|from| from.add(1).write(0)), NDIS_STATUS_BAD_CHARACTERISTICS);
            assert_eq!(status(&|from| from.add(2).write(100)), NDIS_STATUS_BAD_CHARACTERISTICS);
            assert_eq!(status(&|from| from.add(4).write(5)), NDIS_STATUS_BAD_VERSION);
            assert_eq!(status(&|from| from.add(5).write(99)), NDIS_STATUS_BAD_VERSION);
            for offset in mandatory {
                let lacking = |from: Guest<u8>| from.field::<usize>(offset).write(0);
                assert_eq!(status(&lacking), NDIS_STATUS_BAD_CHARACTERISTICS);
            }
            assert_eq!(register(is_filter, 7, |_| ()).0, NDIS_STATUS_FAILURE, "of SetOptions");
        }
        assert!(!current().host().objects.list().iter().any(|object| object.kind.contains("Register")
            && (object.kind.contains("Filter") || object.kind.contains("Protocol"))));
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn handles_of_other_drivers_are_reported() {
    assert_all_reported(&[
        (|_| NdisDeregisterProtocolDriver(0x1234), "0x1234 is not a handle of NdisRegisterProtocolDriver"),
        (|_| NdisFDeregisterFilterDriver(0x1234), "0x1234 is not a handle of NdisFRegisterFilterDriver"),
        (
            |_| {
                let (_, handle) = register(true, 42, |_| ());
                NdisReEnumerateProtocolBindings(handle);
            },
            "is not a handle of NdisRegisterProtocolDriver",
        ),
    ]);
}

/// Nothing binds a protocol driver: the functions of bindings are there so that a miniport that imports them is loaded.
#[test]
fn functions_of_bindings_are_reported_without_a_binding() {
    const BINDING: &str = "0x1234 is not a handle of NdisOpenAdapterEx";
    assert_all_reported(&[
        (
            |_| _ = NdisOpenAdapterEx(1, 2, 3, 0x1234, kept(0)),
            "0x1234 is not a BindContext of ProtocolBindAdapterEx",
        ),
        (|_| _ = NdisCloseAdapterEx(0x1234), BINDING),
        (|_| _ = NdisOidRequest(0x1234, 0), BINDING),
        (|_| NdisSendNetBufferLists(0x1234, 0, 0, 0), BINDING),
        (|_| NdisReturnNetBufferLists(0x1234, 0, 0), BINDING),
    ]);
}
