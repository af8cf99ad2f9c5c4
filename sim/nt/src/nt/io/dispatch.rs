// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handing a request to a driver, with the checks of what the dispatch routine returns.

use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_DISPATCH, IO_STACK_LOCATION, IRP, SL_PENDING_RETURNED, STATUS_PENDING,
};

use super::{
    device::{self, DEFAULT_DISPATCH, DEVICES},
    irp::GuestIrp,
    request::{self, IoRequest, Progress},
};
use crate::{
    guest::Guest,
    image, imports,
    thread::{Thread, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

fn iomanager(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, text)
}

fn name(major: u8) -> &'static str {
    const NAMES: [&str; 28] = [
        "IRP_MJ_CREATE",
        "IRP_MJ_CREATE_NAMED_PIPE",
        "IRP_MJ_CLOSE",
        "IRP_MJ_READ",
        "IRP_MJ_WRITE",
        "IRP_MJ_QUERY_INFORMATION",
        "IRP_MJ_SET_INFORMATION",
        "IRP_MJ_QUERY_EA",
        "IRP_MJ_SET_EA",
        "IRP_MJ_FLUSH_BUFFERS",
        "IRP_MJ_QUERY_VOLUME_INFORMATION",
        "IRP_MJ_SET_VOLUME_INFORMATION",
        "IRP_MJ_DIRECTORY_CONTROL",
        "IRP_MJ_FILE_SYSTEM_CONTROL",
        "IRP_MJ_DEVICE_CONTROL",
        "IRP_MJ_INTERNAL_DEVICE_CONTROL",
        "IRP_MJ_SHUTDOWN",
        "IRP_MJ_LOCK_CONTROL",
        "IRP_MJ_CLEANUP",
        "IRP_MJ_CREATE_MAILSLOT",
        "IRP_MJ_QUERY_SECURITY",
        "IRP_MJ_SET_SECURITY",
        "IRP_MJ_POWER",
        "IRP_MJ_SYSTEM_CONTROL",
        "IRP_MJ_DEVICE_CHANGE",
        "IRP_MJ_QUERY_QUOTA",
        "IRP_MJ_SET_QUOTA",
        "IRP_MJ_PNP",
    ];
    NAMES.get(usize::from(major)).copied().unwrap_or("an IRP")
}

/// Calls the driver of `device` with a request that moves to its next stack location; returns the status of the dispatch routine.
pub(super) fn call_driver(me: &Thread, device: usize, request: &IoRequest) -> i32 {
    let host = me.host();
    let irp = GuestIrp(request.irp());
    let location = irp.current() - 1;
    if location < 1 {
        violation(
            BugCheck::NO_MORE_IRP_STACK_LOCATIONS,
            format!(
                "IoCallDriver of an IRP with {} stack locations, all of which are in use",
                irp.locations()
            ),
        );
    }
    let major = irp.location_at(location).read().MajorFunction;
    let entry = host.state(&DEVICES).lock().entry(device, major);
    let Some(entry) = entry else {
        iomanager(rules::REQUEST_PASSED, format!("IoCallDriver for {device:#x}, which is no device"));
    };
    let call = request.begin_call(location, device, me.id());
    let guest_device = Guest::<DEVICE_OBJECT>::from_address(device);
    let returned = if entry == host.state(&DEFAULT_DISPATCH).address("IopInvalidDeviceRequest") {
        device::IopInvalidDeviceRequest(guest_device, irp.0)
    } else {
        // SAFETY: the driver stored its dispatch routine there.
        let routine: DRIVER_DISPATCH = unsafe { image::function(name(major), entry) };
        // SAFETY: the arguments of a dispatch routine.
        image::call(name(major), || unsafe { routine(guest_device.as_ptr(), irp.0.as_ptr()) })
    };
    let progress = request.end_call(call);
    if me.verifies()
        && let Some(text) = objection(&progress, returned)
    {
        iomanager(rules::REQUEST_DISPATCHED, format!("the dispatch routine of {} {text}", name(major)));
    }
    returned
}

/// Returns what is wrong with the status that a dispatch routine returned.
fn objection(progress: &Progress, returned: i32) -> Option<String> {
    let is_pending = returned == STATUS_PENDING;
    let unmarked = || Some("returned STATUS_PENDING without a call of IoMarkIrpPending".to_owned());
    let marked =
        || Some(format!("called IoMarkIrpPending and returned {returned:#x} instead of STATUS_PENDING"));
    match *progress {
        Progress::Completed(left) if left.is_marked_pending != is_pending => {
            if is_pending {
                unmarked()
            } else {
                marked()
            }
        }
        Progress::Completed(left) if !is_pending && left.status != returned => {
            Some(format!("returned {returned:#x} for a request that it completed with {:#x}", left.status))
        }
        Progress::Held { is_marked_pending: false } if is_pending => unmarked(),
        Progress::Held { is_marked_pending: true } | Progress::PassedOn { is_marked_pending: true }
            if !is_pending =>
        {
            marked()
        }
        Progress::Held { .. } if !is_pending => {
            Some(format!("returned {returned:#x}, but neither completed the request nor made it pending"))
        }
        Progress::PassedOn { .. } if !is_pending => Some(format!(
            "returned {returned:#x}, but a driver to which it passed the request on still has it"
        )),
        Progress::Completed(_) | Progress::Held { .. } | Progress::PassedOn { .. } => None,
    }
}

/// Returns what is wrong with passing on a request in its present state.
fn misuse_of(request: &IoRequest) -> Option<&'static str> {
    request.with_irp(|irp| {
        let current = irp.current();
        if irp.cancel_routine().read() != 0 {
            return Some("while its cancel routine is set");
        }
        if current <= 1 {
            return None;
        }
        let next = irp.location_at(current - 1).read();
        if next.Control & SL_PENDING_RETURNED != 0 {
            return Some(
                "whose next stack location is marked pending; a driver that calls IoMarkIrpPending must copy its location to the next",
            );
        }
        if current > irp.locations() || next.CompletionRoutine.is_none() {
            return None;
        }
        let own = irp.location().read();
        let address = |location: &IO_STACK_LOCATION| {
            (location.CompletionRoutine.map(|routine| routine as *const () as usize), location.Context)
        };
        (own.DeviceObject == next.DeviceObject && address(&own) == address(&next)).then_some(
            "whose next stack location has the completion routine of the driver above; use IoCopyCurrentIrpStackLocationToNext",
        )
    })?
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Sends a request to a driver, in its next stack location; returns the status of the dispatch routine.
    [<= DISPATCH_LEVEL]
    fn IofCallDriver(device: Guest<DEVICE_OBJECT>, irp: Guest<IRP>) -> i32 {
        let me = current();
        let Some(request) = request::find(me.host(), irp.address()) else {
            iomanager(rules::REQUEST, format!("IoCallDriver of {:#x}, which is not an IRP", irp.address()));
        };
        if me.verifies() {
            if request.is_below_call_of(me.id()) {
                iomanager(rules::REQUEST_PASSED, "IoCallDriver of a request that the driver passed on and does not have");
            }
            if let Some(text) = misuse_of(&request) {
                iomanager(rules::REQUEST_PASSED, format!("IoCallDriver of a request {text}"));
            }
        }
        call_driver(&me, device.address(), &request)
    }
}
