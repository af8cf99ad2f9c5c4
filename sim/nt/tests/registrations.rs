// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registrations with the kernel of which nothing comes here: bug check callbacks, providers of traces; and bit maps.

use crate::kernel::{clocks, on_a_thread};
use ndk_abi::nt::{GUID, STATUS_INVALID_HANDLE, STATUS_SUCCESS};
use nt_sim::{
    current,
    guest::Guest,
    nt::{etw, runtime},
};

fn kept<T>(value: T) -> Guest<T> {
    Guest::new(Box::leak(Box::new(value)))
}

/// Returns the kinds of what drivers of this host hold.
fn held() -> Vec<&'static str> {
    current().host().objects.list().into_iter().map(|object| object.kind).collect()
}

/// (windows-driver-docs-ddi: wdm/nf-wdm-keregisterbugcheckreasoncallback: TRUE if the record is registered, FALSE if it was already)
#[test]
fn bug_check_callbacks_are_registered_once_and_held_until_they_are_removed() {
    for clock in clocks() {
        on_a_thread(clock, || {
            let record = kept([0_u8; 48]).address();
            let register = || runtime::KeRegisterBugCheckReasonCallback(record, 0x1000, 1, Guest::null());
            assert_eq!([register(), register()], [1, 0]);
            assert_eq!(held(), ["KeRegisterBugCheckReasonCallback"]);
            let remove = || runtime::KeDeregisterBugCheckReasonCallback(record);
            assert_eq!([remove(), remove()], [1, 0]);
            assert!(held().is_empty());
        });
    }
}

#[test]
fn provider_of_a_wpp_trace_is_registered_and_has_no_session() {
    for clock in clocks() {
        on_a_thread(clock, || {
            let (provider, handle) = (kept(GUID::from_u128(1)), kept(0_u64));
            assert_eq!(etw::EtwRegisterClassicProvider(provider, 0, 0, 0, handle), STATUS_SUCCESS);
            assert_eq!(held(), ["EtwRegister"]);
            assert_eq!(etw::WmiTraceMessage(1, 0, provider, 10), STATUS_INVALID_HANDLE);
            assert_eq!(etw::WmiQueryTraceInformation(0, 0, 0, Guest::null(), 0), STATUS_INVALID_HANDLE);
            assert_eq!(etw::EtwUnregister(handle.read()), STATUS_SUCCESS);
            assert!(held().is_empty());
        });
    }
}

/// RTL_BITMAP: `ULONG SizeOfBitMap; PULONG Buffer`. (wdm.h)
#[test]
fn bit_map_has_its_size_and_its_words() {
    for clock in clocks() {
        on_a_thread(clock, || {
            let (map, bits) = (kept([u64::MAX; 2]), kept([0_u32; 4]));
            runtime::RtlInitializeBitMap(map.cast(), bits.address(), 100);
            assert_eq!(map.cast::<u32>().read(), 100);
            assert_eq!(map.read()[1], bits.address() as u64);
        });
    }
}
