// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event tracing: which events a session gets, and what is wrong with calls and events.

use crate::{
    kernel::{clocks, on_a_thread},
    on_host::violates,
};
use ndk_abi::nt::{EVENT_DATA_DESCRIPTOR, EVENT_DESCRIPTOR, GUID, STATUS_INVALID_HANDLE, STATUS_SUCCESS};
use nt_sim::{
    BugCheck, current,
    guest::Guest,
    nt::{etw, trace_sessions::Session},
};

const TRAITS: &[u8] = b"\x05\0Pr\0";
const METADATA: &[u8] = b"\x09\0\0Ev\0Q\0\x08";

/// A part of an event: kind and bytes.
type Part = (u32, &'static [u8]);

fn kept<T>(value: T) -> Guest<T> {
    Guest::new(Box::leak(Box::new(value)))
}

fn event(level: u8, keyword: u64) -> Guest<EVENT_DESCRIPTOR> {
    kept(EVENT_DESCRIPTOR {
        Id: 0,
        Version: 0,
        Channel: 11,
        Level: level,
        Opcode: 0,
        Task: 0,
        Keyword: keyword,
    })
}

fn registered(id: GUID) -> u64 {
    let handle = kept(0_u64);
    assert_eq!(etw::EtwRegister(kept(id), 0, 0, handle), STATUS_SUCCESS);
    handle.read()
}

fn set_traits(handle: u64, length: u32) -> i32 {
    etw::EtwSetInformation(handle, 2, TRAITS.as_ptr().expose_provenance(), length)
}

fn write(handle: u64, event: Guest<EVENT_DESCRIPTOR>, activity: Guest<GUID>, parts: &[Part]) -> i32 {
    let parts = parts.iter().map(|&(kind, bytes)| EVENT_DATA_DESCRIPTOR {
        Ptr: bytes.as_ptr().expose_provenance() as u64,
        Size: bytes.len() as u32,
        Reserved: kind,
    });
    let parts: Vec<_> = parts.collect();
    let (count, data) = (parts.len() as u32, parts.as_ptr().expose_provenance());
    etw::EtwWriteTransfer(handle, event, activity, Guest::null(), count, data)
}

/// (windows-driver-docs-ddi: wdm/nf-wdm-etwwrite; `EnableTraceEx2` of the Windows SDK)
#[test]
fn session_gets_the_events_that_it_wants_until_it_ends() {
    for clock in clocks() {
        on_a_thread(clock, || {
            let id = GUID::from_u128(7);
            assert_eq!(write(0, event(4, 1), Guest::null(), &[]), STATUS_INVALID_HANDLE);
            let handle = registered(id);
            assert_eq!(set_traits(handle, 5), STATUS_SUCCESS);
            let write = |level, keyword, number: u32| {
                let values: &'static [u8] = Box::leak(Box::new(number.to_le_bytes()));
                let activity = kept(GUID::from_u128(u128::from(number)));
                let parts = [(2, TRAITS), (1, METADATA), (0, values)];
                assert_eq!(write(handle, event(level, keyword), activity, &parts), STATUS_SUCCESS);
            };
            let me = current();
            let host = me.host();
            write(4, 1, 0);
            host.start_trace(id, Session { level: 4, any: 0b110, all: 0b100 });
            for (number, (level, keyword)) in
                [(4, 4), (5, 4), (4, 2), (4, 1), (4, 6), (4, 0)].into_iter().enumerate()
            {
                write(level, keyword, number as u32 + 1);
                let wants = etw::EtwEventEnabled(handle, event(level, keyword));
                assert_eq!(wants, etw::EtwProviderEnabled(handle, level, keyword));
            }
            host.stop_trace(id);
            write(4, 4, 9);
            let seen = host.trace();
            let fields = seen.iter().map(|event| event.content.field("Q").unwrap().to_string());
            assert_eq!(fields.collect::<Vec<_>>(), ["1", "5", "6"]);
            assert!(seen.iter().all(|event| event.content.name == "Ev" && event.provider.to_u128() == 7));
            assert_eq!(seen[1].activity.map(|activity| activity.to_u128()), Some(5));
            assert_eq!(etw::EtwUnregister(handle), STATUS_SUCCESS);
        });
    }
}

#[track_caller]
fn reported(text: &'static str, offence: fn()) {
    violates(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text, move |_| offence());
}

fn write_parts(parts: &[Part]) {
    let _ = write(registered(GUID::from_u128(1)), event(4, 1), Guest::null(), parts);
}

/// (windows-driver-docs-ddi: wdm/nf-wdm-etwwritetransfer, wdm/nf-wdm-etwunregister; `TraceLoggingProvider.h`)
#[test]
fn misuse_of_event_tracing_is_reported() {
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        ", which is not that of a registered provider",
        |_| _ = etw::EtwUnregister(0x1234),
    );
    reported("EtwWrite of handle 0x1234", || _ = write(0x1234, event(4, 1), Guest::null(), &[]));
    reported("EtwSetInformation of handle 0x9", || _ = set_traits(9, 5));
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "an event with 129 data descriptors; at most 128 are allowed",
        |_| write_parts(&[(0, b"" as &[u8]); 129]),
    );
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a malformed event of TraceLogging: the metadata of provider and event do not come first",
        |_| write_parts(&[(1, METADATA), (2, TRAITS), (0, b"1234")]),
    );
    reported("TraceLogging: field Q: number is cut", || {
        write_parts(&[(2, TRAITS), (1, METADATA), (0, b"123")]);
    });
    reported("there is more metadata behind the values", || {
        write_parts(&[(2, TRAITS), (1, METADATA), (1, METADATA)]);
    });
    reported("the traits are not those of EtwSetInformation", || {
        let handle = registered(GUID::from_u128(1));
        _ = set_traits(handle, 5);
        _ = write(handle, event(4, 1), Guest::null(), &[(2, b"\x05\0Qr\0"), (1, METADATA), (0, b"1234")]);
    });
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "EtwSetInformation of malformed traits: traits of 4 bytes say that they have 5",
        |_| _ = set_traits(registered(GUID::from_u128(1)), 4),
    );
}
