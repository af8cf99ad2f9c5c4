// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calling imports on a thread of a host, as a driver does.

pub mod served;

use std::{ffi::c_void, sync::Arc};

use ndk_abi::nt::{KWAIT_REASON, LARGE_INTEGER, STATUS_SUCCESS, UNICODE_STRING};
use nt_sim::{
    BugCheck, ClockKind, Host, Sim, Verdict,
    guest::Guest,
    host::HostOptions,
    nt::{dispatcher::KeWaitForSingleObject, thread_objects::PsCreateSystemThread},
    sim::SimBuilder,
};

fn clocks() -> [SimBuilder; 2] {
    [ClockKind::Threaded, ClockKind::Deterministic { seed: 1 }].map(|clock| Sim::builder().clock(clock))
}

/// Runs `body` on a thread of a host; returns the verdict.
pub fn on_host(sim: SimBuilder, body: impl FnOnce(&Arc<Host>) + Send + 'static) -> Verdict {
    let mut sim = sim.build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    let this = host.clone();
    let _ = host.spawn("driver", move || body(&this)).join();
    sim.verdict()
}

/// Runs `body` on both clocks; expects no violation.
pub fn correct(body: impl FnOnce(&Arc<Host>) + Clone + Send + 'static) {
    for sim in clocks() {
        let verdict = on_host(sim, body.clone());
        assert!(verdict.is_clean(), "{verdict}");
    }
}

/// A violation whose text contains `text`.
pub fn violates(code: BugCheck, text: &str, body: impl FnOnce(&Arc<Host>) + Send + 'static) {
    let verdict = on_host(Sim::builder().clock(ClockKind::Deterministic { seed: 1 }), body);
    let report = verdict.violations.first().unwrap_or_else(|| panic!("'{text}' was not reported"));
    assert_eq!(report.code, code, "{report}");
    assert!(report.text.contains(text), "{report}");
}

pub fn memory<T>(host: &Host) -> Guest<T> {
    host.memory.allocate(1).expect("the host has memory").cast()
}

/// A counted string with room for `room` characters.
pub fn counted(host: &Host, text: &str, room: usize) -> Guest<UNICODE_STRING> {
    let string = memory::<UNICODE_STRING>(host);
    let buffer: Guest<u16> = string.add(1).cast();
    let characters: Vec<u16> = text.encode_utf16().collect();
    for (index, &character) in characters.iter().enumerate() {
        buffer.add(index).write(character);
    }
    let bytes = |count: usize| u16::try_from(2 * count).expect("a short string");
    let (length, maximum) = (bytes(characters.len()), bytes(room.max(characters.len())));
    string.write(UNICODE_STRING { Length: length, MaximumLength: maximum, Buffer: buffer.as_ptr() });
    string
}

/// Returns the characters of a counted string.
pub fn text(string: Guest<UNICODE_STRING>) -> String {
    String::from_utf16_lossy(&nt_sim::nt::runtime::unicode(string))
}

/// Terminated wide text.
pub fn wide(host: &Host, text: &str) -> Guest<u16> {
    let buffer = memory::<u16>(host);
    for (index, character) in text.encode_utf16().chain([0]).enumerate() {
        buffer.add(index).write(character);
    }
    buffer
}

/// Terminated narrow text.
pub fn narrow(host: &Host, text: &str) -> Guest<u8> {
    let buffer = memory::<u8>(host);
    buffer.write_bytes(text.as_bytes());
    buffer.add(text.len()).write(0);
    buffer
}

/// The routine of a driver's thread.
pub type Routine = unsafe extern "efiapi" fn(*mut c_void);

/// Starts a thread; returns its handle.
pub fn create_thread(host: &Host, routine: Routine, context: usize) -> usize {
    let handle: Guest<usize> = memory(host);
    let routine = routine as *const () as usize;
    assert_eq!(PsCreateSystemThread(handle, 0, 0, 0, 0, routine, context), STATUS_SUCCESS);
    handle.read()
}

/// Waits for an object, at most for `timeout` units of 100 ns, a negative number; returns the status.
pub fn wait(object: usize, timeout: Option<i64>) -> i32 {
    let mut time = LARGE_INTEGER { QuadPart: timeout.unwrap_or(0) };
    let pointer = if timeout.is_some() { Guest::new(&raw mut time) } else { Guest::null() };
    KeWaitForSingleObject(object, KWAIT_REASON::Executive, 0, 0, pointer)
}

/// Waits until another thread has written to this place.
pub fn until_written(place: Guest<u32>) {
    while place.read() == 0 {
        nt_sim::nt::time::sleep(1_000_000);
    }
}
