// SPDX-License-Identifier: MIT OR Apache-2.0

//! The I/O manager: devices, requests, cancellation, and the verifier's checks of them.
//!
//! What Windows does is known from the documentation of the functions, of bug check 0xC9 and of Driver Verifier's
//! I/O verification.

use std::{sync::Arc, time::Duration};

use crate::common::TEST_DRIVER;
use ndk_abi::nt::{
    STATUS_ACCESS_DENIED, STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_FILE_CLOSED,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_NO_SUCH_DEVICE, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL,
};
use nt_sim::{
    BugCheck, ClockKind, DriverOptions, Host, Sim, Verdict,
    driver::{Driver, DriverState},
    host::HostOptions,
    nt::io::File,
    sim::SimBuilder,
};

const NAME: &str = r"\DosDevices\Test";

/// An I/O control code of the test driver.
const fn code(function: u32, method: u32) -> u32 {
    0x22 << 16 | (0x800 + function) << 2 | method
}

const REVERSE: u32 = code(0, 0);
const COUNT: u32 = code(1, 0);
const SUM: u32 = code(2, 1);
const FILL: u32 = code(3, 2);
const COPY: u32 = code(4, 3);
const PEND: u32 = code(5, 0);
const COMPLETE: u32 = code(6, 0);
const WARN: u32 = code(7, 0);
const FAIL: u32 = code(8, 0);
const SEND_OWN: u32 = code(9, 0);

fn clocks() -> [SimBuilder; 2] {
    [ClockKind::Threaded, ClockKind::Deterministic { seed: 1 }].map(|clock| Sim::builder().clock(clock))
}

/// Runs `body` on a thread of a host whose test driver was loaded as `service`; returns the verdict.
fn with_driver(
    sim: SimBuilder,
    service: &'static str,
    body: impl FnOnce(&Arc<Host>, &Arc<Driver>) + Send + 'static,
) -> Verdict {
    let mut sim = sim.build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    let path = TEST_DRIVER.as_ref().expect("checked by the test");
    let driver = host.load_driver(path, DriverOptions::new(service)).expect("the test driver loads");
    let this = host.clone();
    let thread = host.spawn("program", move || body(&this, &driver));
    let _ = thread.join();
    sim.verdict()
}

/// Runs `body` with the test driver's device open on both clocks; expects no violation.
fn with_file(body: impl FnOnce(&Arc<Host>, &File) + Clone + Send + 'static) {
    with_file_of("device", body);
}

fn with_file_of(service: &'static str, body: impl FnOnce(&Arc<Host>, &File) + Clone + Send + 'static) {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for sim in clocks() {
        let body = body.clone();
        let verdict = with_driver(sim, service, move |host, driver| {
            assert_eq!(driver.start(), STATUS_SUCCESS);
            let file = host.open_device(NAME).expect("the device opens");
            body(host, &file);
            file.close();
            driver.unload();
            assert_eq!(driver.state(), DriverState::Unloaded);
        });
        assert!(verdict.is_clean(), "{verdict}");
    }
}

#[test]
fn buffered_requests_copy_input_and_as_much_output_as_the_driver_says() {
    with_file(|_, file| {
        let result = file.ioctl(REVERSE, b"abc", 8);
        assert_eq!((result.status, &*result.output), (STATUS_SUCCESS, &b"cba"[..]));
        let result = file.ioctl(REVERSE, b"abcdef", 2);
        assert_eq!((result.information, &*result.output), (2, &b"ba"[..]));
        assert_eq!(file.ioctl(REVERSE, b"", 0).status, STATUS_SUCCESS);
        // A warning has output, an error has none.
        let result = file.ioctl(WARN, b"abcd", 4);
        assert_eq!((result.status, &*result.output), (STATUS_BUFFER_OVERFLOW, &b"abcd"[..]));
        let result = file.ioctl(FAIL, b"abcd", 4);
        assert_eq!((result.status, result.output.len()), (STATUS_UNSUCCESSFUL, 0));
        assert_eq!(file.ioctl(code(0x7f, 0), b"", 0).status, STATUS_INVALID_DEVICE_REQUEST);
    });
}

#[test]
fn direct_requests_map_the_second_buffer() {
    with_file(|_, file| {
        let second: Vec<u8> = (0..5000).map(|index| u8::try_from(index % 7).unwrap()).collect();
        let sum: usize = second.iter().map(|&byte| usize::from(byte)).sum();
        let result = file.start_ioctl(SUM, &[1, 2], second).wait();
        assert_eq!((result.status, result.information), (STATUS_SUCCESS, sum + 3));
        let result = file.ioctl(FILL, b"", 5000);
        assert_eq!(result.output, vec![0x5a; 5000]);
    });
}

#[test]
fn requests_without_a_method_pass_the_requestors_buffers() {
    with_file(|_, file| assert_eq!(file.ioctl(COPY, b"raw", 3).output, b"raw"));
}

#[test]
fn a_pending_request_is_completed_by_another_one() {
    with_file(|_, file| {
        let pending = file.start_ioctl(PEND, &[], vec![0; 4]);
        assert!(!pending.is_done());
        assert_eq!(pending.wait_for(Duration::from_millis(1)), None);
        assert_eq!(file.ioctl(COMPLETE, b"", 0).status, STATUS_SUCCESS);
        assert!(!pending.cancel(), "it is completed");
        let result = pending.wait();
        assert_eq!((result.status, result.output), (STATUS_SUCCESS, vec![7]));
    });
}

/// The upper device passes requests on with a completion routine.
#[test]
fn a_driver_attaches_a_device_to_its_other_one() {
    with_file_of("device stack", |_, file| {
        assert_eq!(file.ioctl(REVERSE, b"abc", 8).output, b"cba");
        assert_eq!(file.ioctl(COUNT, b"", 3).output, [1, 0, 0]);
        let pending = file.start_ioctl(PEND, &[], vec![0; 4]);
        assert_eq!(file.ioctl(COMPLETE, b"", 0).status, STATUS_SUCCESS);
        assert_eq!(pending.wait().output, vec![7]);
        let pending = file.start_ioctl(PEND, &[], vec![0; 4]);
        assert!(pending.cancel());
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

#[test]
fn a_driver_sends_a_request_to_itself() {
    with_file(|_, file| assert_eq!(file.ioctl(SEND_OWN, b"", 2).information, 2));
}

#[test]
fn cancelling_calls_the_cancel_routine() {
    with_file(|_, file| {
        let pending = file.start_ioctl(PEND, &[], vec![0; 4]);
        assert!(pending.cancel());
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

#[test]
fn a_file_is_cleaned_up_then_closed_and_its_requests_are_cancelled() {
    with_file(|host, file| {
        assert_eq!(file.ioctl(COUNT, b"", 3).output, [1, 0, 0]);
        let other = host.open_device(r"\\.\test").expect("a second file");
        let pending = other.start_ioctl(PEND, &[], vec![0; 4]);
        other.close();
        other.close();
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        assert_eq!(file.ioctl(COUNT, b"", 3).output, [2, 1, 1]);
        assert_eq!(other.ioctl(COUNT, b"", 3).status, STATUS_FILE_CLOSED);
    });
}

#[test]
fn an_open_that_the_driver_refuses_leaves_nothing() {
    with_file(|host, file| {
        assert_eq!(host.open_device(r"\\.\Test\inside").err(), Some(STATUS_ACCESS_DENIED));
        assert_eq!(host.open_device(r"\\.\Other").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(file.ioctl(COUNT, b"", 3).output, [2, 0, 0]);
    });
}

#[test]
fn unloading_waits_for_the_last_file_and_refuses_new_ones() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for sim in clocks() {
        let verdict = with_driver(sim, "device", |host, driver| {
            driver.start();
            let file = host.open_device(NAME).unwrap();
            driver.unload();
            assert_eq!(driver.state(), DriverState::Started);
            assert_eq!(host.open_device(NAME).err(), Some(STATUS_NO_SUCH_DEVICE));
            assert_eq!(file.ioctl(REVERSE, b"ab", 2).output, b"ba");
            file.close();
            assert_eq!(driver.state(), DriverState::Unloaded);
            assert_eq!(file.ioctl(REVERSE, b"ab", 2).status, STATUS_FILE_CLOSED);
            assert_eq!(host.open_device(NAME).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        });
        assert!(verdict.is_clean(), "{verdict}");
    }
}

#[test]
fn an_exclusive_device_has_one_file() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let verdict = with_driver(Sim::builder(), "exclusive device", |host, driver| {
        driver.start();
        let file = host.open_device(NAME).unwrap();
        assert_eq!(host.open_device(NAME).err(), Some(STATUS_ACCESS_DENIED));
        file.close();
        host.open_device(NAME).unwrap().close();
        driver.unload();
    });
    assert!(verdict.is_clean(), "{verdict}");
}

#[test]
fn entries_that_a_driver_clears_fail_requests() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let verdict = with_driver(Sim::builder(), "entries cleared", |host, driver| {
        driver.start();
        assert_eq!(host.open_device(NAME).err(), Some(STATUS_INVALID_DEVICE_REQUEST));
        driver.unload();
    });
    assert!(verdict.is_clean(), "{verdict}");
}

#[test]
fn a_driver_whose_entry_fails_leaves_no_device() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let verdict = with_driver(Sim::builder(), "device in a failing entry", |host, driver| {
        assert_eq!(driver.start(), STATUS_UNSUCCESSFUL);
        assert_eq!(driver.state(), DriverState::Unloaded);
        assert_eq!(host.open_device(NAME).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
    });
    assert!(verdict.is_clean(), "{verdict}");
}

#[test]
fn devices_and_links_that_a_driver_leaves_are_reported() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for (service, kind) in [("device leak", "IoCreateDevice"), ("link leak", "IoCreateSymbolicLink")] {
        let verdict = with_driver(Sim::builder(), service, |host, driver| {
            driver.start();
            driver.unload();
            assert!(host.open_device(NAME).is_err());
        });
        let report = verdict.violations.first().expect("the leak is reported");
        assert!(report.text.contains(kind), "{report}");
    }
}

const IO: BugCheck = BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION;

/// Function of the code, bug check, text of the report.
const VIOLATIONS: &[(u32, BugCheck, &str)] = &[
    (0x20, BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, "was completed a second time"),
    (0x21, IO, "completed with the status 0x103, which is not final"),
    (
        0x22,
        IO,
        "the dispatch routine of IRP_MJ_DEVICE_CONTROL returned STATUS_PENDING without a call of IoMarkIrpPending",
    ),
    (0x23, IO, "called IoMarkIrpPending and returned 0x0 instead of STATUS_PENDING"),
    (0x24, IO, "returned 0x0, but neither completed the request nor made it pending"),
    (0x25, IO, "returned 0xc0000001 for a request that it completed with 0x0"),
    (0x26, IO, "completed while its cancel routine was set"),
    (0x27, IO, "completed with 9 bytes of output; its output buffer has 8"),
    (
        0x28,
        BugCheck::BAD_POOL_HEADER,
        "0 bytes beyond the end of block 3 of 8 bytes, tag 'IoSB' was written to",
    ),
    (0x29, BugCheck::DRIVER_PAGE_FAULT_IN_FREED_SPECIAL_POOL, "tag 'Irp ', which was freed"),
    (
        0x2a,
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "IoCompleteRequest was called with 1 spin lock(s) held; release them first",
    ),
    (0x2b, IO, "which is not an IRP that a driver was given"),
    (0x2c, BugCheck::IRQL_UNEXPECTED_VALUE, "a cancel routine returned at DISPATCH_LEVEL"),
    (0x2d, IO, "a request was not completed within 30 s after IRP_MJ_CLEANUP and its cancellation"),
    (0x2e, IO, "returned STATUS_PENDING without a call of IoMarkIrpPending"),
    (0x2f, BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "beyond the end of a mapping"),
    (
        0x30,
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a cancel routine returned with 1 spin locks held; it must return with 0",
    ),
    (0x31, BugCheck::BAD_POOL_HEADER, "memory 1 bytes before block"),
];

#[test]
fn violations_of_the_rules_of_requests_are_reported() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for &(function, expected, text) in VIOLATIONS {
        let sim = Sim::builder().clock(ClockKind::Deterministic { seed: 1 });
        let verdict = with_driver(sim, "device", move |host, driver| {
            driver.start();
            let file = host.open_device(NAME).unwrap();
            let _pending = file.start_ioctl(code(function, 0), &[0; 8], vec![0; 8]);
            file.close();
            driver.unload();
        });
        let report = verdict.violations.first().unwrap_or_else(|| panic!("{function:#x} was not reported"));
        assert_eq!(report.code, expected, "{function:#x}: {report}");
        assert!(report.text.contains(text), "{function:#x}: {report}");
    }
}
