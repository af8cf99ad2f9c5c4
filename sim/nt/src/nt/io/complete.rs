// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completing requests: the completion routines of the drivers above, from the lowest to the highest, and then the requestor.

use ndk_abi::nt::{
    IO_COMPLETION_ROUTINE, IO_STACK_LOCATION, IRP, IRP_MJ_DEVICE_CONTROL, SL_INVOKE_ON_CANCEL,
    SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, STATUS_MORE_PROCESSING_REQUIRED, STATUS_PENDING,
};

use super::{
    irp::{GuestIrp, RequestMemory},
    request::{self, Completion, IoRequest, Memory, Step},
};
use crate::{
    Host,
    guest::Guest,
    image, imports,
    nt::mdl,
    thread::{Thread, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

/// A status of severity "error". A request that ends with one has no output.
fn is_error(status: i32) -> bool {
    status.cast_unsigned() >> 30 == 3
}

fn iomanager(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, text)
}

fn completed_again(irp: usize) -> ! {
    violation(BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, format!("IRP {irp:#x} was completed a second time"))
}

/// Returns what is wrong with completing a request in its present state.
fn objection(request: &IoRequest) -> Option<String> {
    request.with_irp(|irp| {
        let status = irp.status().0;
        if matches!(status, STATUS_PENDING | -1) {
            return Some(format!("a request was completed with the status {status:#x}, which is not final"));
        }
        (irp.cancel_routine().read() != 0)
            .then(|| "a request was completed while its cancel routine was set".to_owned())
    })?
}

/// Returns what is wrong with the output of a program's request.
fn output_objection(request: &IoRequest) -> Option<String> {
    let irp = GuestIrp(request.irp());
    request.with_memory(|memory| {
        let (status, information) = irp.status();
        let is_control = irp.location().read().MajorFunction == IRP_MJ_DEVICE_CONTROL;
        let is_copied = is_control && memory.is_buffered() && !is_error(status);
        (is_copied && information > memory.output_length()).then(|| {
            format!(
                "a request was completed with {information} bytes of output; its output buffer has {}",
                memory.output_length()
            )
        })
    })?
}

fn check(me: &Thread, request: &IoRequest) {
    let held = me.locks.borrow().len();
    if held != 0 {
        broken(
            rules::LOCKS_AT_COMPLETION,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("IoCompleteRequest was called with {held} spin lock(s) held; release them first"),
        );
    }
    if request.is_below_call_of(me.id()) {
        iomanager(
            rules::REQUEST_COMPLETED,
            "a request was completed by a driver that passed it on and does not have it",
        );
    }
    let is_with_a_driver = request.with_irp(|irp| irp.current() <= irp.locations()).unwrap_or(false);
    if !is_with_a_driver {
        return;
    }
    if let Some(text) = objection(request).or_else(|| output_objection(request)) {
        iomanager(rules::REQUEST_COMPLETED, text);
    }
}

/// Returns whether the routine in a location is to be called.
fn is_invoked(irp: GuestIrp, location: &IO_STACK_LOCATION, status: i32) -> bool {
    let on_status = if status >= 0 { SL_INVOKE_ON_SUCCESS } else { SL_INVOKE_ON_ERROR };
    let is_cancelled = location.Control & SL_INVOKE_ON_CANCEL != 0 && irp.cancel().read() != 0;
    location.CompletionRoutine.is_some() && (location.Control & on_status != 0 || is_cancelled)
}

/// Calls the completion routine that the driver above a location has set. Returns `false` when that driver keeps the request.
fn call_routine(me: &Thread, request: &IoRequest, step: &Step) -> bool {
    const WHAT: &str = "a completion routine";
    let irp = GuestIrp(request.irp());
    let address = step.location.CompletionRoutine.map_or(0, |routine| routine as *const () as usize);
    // SAFETY: the driver set it as its completion routine.
    let routine: IO_COMPLETION_ROUTINE = unsafe { image::function(WHAT, address) };
    let device = Guest::from_address(irp.device());
    let context = step.location.Context;
    // SAFETY: the arguments of a completion routine.
    let returned = image::call(WHAT, || unsafe { routine(device.as_ptr(), irp.0.as_ptr(), context) });
    if returned == STATUS_MORE_PROCESSING_REQUIRED {
        return false;
    }
    let is_marked = request.with_irp(|irp| step.is_last || irp.is_pending_at(irp.current()));
    match is_marked {
        None => iomanager(
            rules::COMPLETION_ROUTINE,
            format!(
                "a completion routine freed its IRP and returned {returned:#x} instead of STATUS_MORE_PROCESSING_REQUIRED"
            ),
        ),
        Some(false) if me.verifies() && step.left.is_marked_pending => iomanager(
            rules::COMPLETION_ROUTINE,
            "a completion routine did not call IoMarkIrpPending although PendingReturned was set in its IRP",
        ),
        Some(_) => true,
    }
}

/// Completes a request: of the driver that has it, and of those above as far as they do not keep it.
pub(super) fn complete(irp: Guest<IRP>) {
    let me = current();
    let host = me.host();
    let address = irp.address();
    let Some(request) = request::find(host, address) else {
        if request::is_completed(host, address) {
            completed_again(address);
        }
        iomanager(
            rules::REQUEST,
            format!("{address:#x} was completed, which is not an IRP that a driver was given"),
        );
    };
    if me.verifies() {
        check(&me, &request);
    }
    loop {
        let Some(step) = request.leave_location() else { completed_again(address) };
        let guest = GuestIrp(irp);
        if is_invoked(guest, &step.location, step.left.status) {
            if !call_routine(&me, &request, &step) {
                return;
            }
        } else if step.left.is_marked_pending && !step.is_last {
            guest.mark_pending();
        }
        if step.is_last {
            break;
        }
    }
    match request.take_memory() {
        Memory::Program(memory) => finish(host, &request, memory),
        Memory::Freed => {}
        Memory::Driver => iomanager(
            rules::OWN_REQUEST,
            "an IRP of IoAllocateIrp was completed by all drivers; its completion routine must keep it (STATUS_MORE_PROCESSING_REQUIRED)",
        ),
    }
}

/// Completes a request of a driver for a part of the kernel to which it was passed without [`IofCallDriver`], in the next stack location.
///
/// [`IofCallDriver`]: super::dispatch::IofCallDriver
pub fn complete_next(irp: Guest<IRP>) {
    let me = current();
    if let Some(request) = request::find(me.host(), irp.address()) {
        let next = request.with_irp(|irp| irp.current() - 1).unwrap_or(0);
        if next < 1 {
            violation(
                BugCheck::NO_MORE_IRP_STACK_LOCATIONS,
                "an IRP was passed to the kernel that has no stack location for it",
            );
        }
        let _ = request.with_irp(|irp| irp.set_current(next));
    }
    complete(irp);
}

/// Gives the output of a request to its requestor, and frees its memory.
fn finish(host: &Host, request: &IoRequest, mut memory: RequestMemory) {
    request::forget_completed(host, request.irp().address());
    let (status, information) = GuestIrp(memory.irp).status();
    let output = if is_error(status) { Vec::new() } else { memory.output(information) };
    if let Some(output) = memory.take_mdl() {
        mdl::MmUnlockPages(output);
        mdl::IoFreeMdl(output);
    }
    if let Err(misuse) = memory.free(host) {
        violation(misuse.code, misuse.text);
    }
    let outcome = Completion { status, information, output };
    if let Some(requestor) = request.take_requestor() {
        let _ = host.objects.remove(requestor.kind, request.irp().address());
        requestor.deliver(&outcome);
    }
    request.finish(outcome);
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Completes a request. The IRP must not be used afterwards.
    [<= DISPATCH_LEVEL]
    fn IofCompleteRequest(irp: Guest<IRP>, boost: i8) {
        let _ = boost;
        complete(irp);
    }
}
