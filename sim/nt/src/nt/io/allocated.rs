// SPDX-License-Identifier: MIT OR Apache-2.0

//! IRPs that drivers allocate, send and free.

use ndk_abi::nt::IRP;

use super::{
    irp::{self, GuestIrp},
    request::{self, IoRequest, Memory},
};
use crate::{
    guest::Guest,
    imports,
    thread::{Thread, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

const IRP_OBJECT: &str = "IoAllocateIrp";

fn iomanager(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, text)
}

/// Returns the request of an IRP that a driver allocated and that no driver has.
fn idle(me: &Thread, irp: Guest<IRP>, function: &str) -> std::sync::Arc<IoRequest> {
    let address = irp.address();
    let Some(request) = request::find(me.host(), address) else {
        iomanager(rules::REQUEST, format!("{function} of {address:#x}, which is not an IRP"));
    };
    if !request.is_of_a_driver() {
        iomanager(rules::OWN_REQUEST, format!("{function} of an IRP that IoAllocateIrp has not returned"));
    }
    if request.is_in_use() {
        iomanager(rules::OWN_REQUEST, format!("{function} of an IRP that is in use by a driver"));
    }
    request
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Allocates an IRP, which its driver frees; returns null when memory is exhausted.
    [<= DISPATCH_LEVEL]
    fn IoAllocateIrp(locations: i8, charge_quota: u8) -> Guest<IRP> {
        let _ = charge_quota;
        let me = current();
        let host = me.host();
        if locations < 1 {
            iomanager(rules::OWN_REQUEST, format!("IoAllocateIrp with {locations} stack locations"));
        }
        if host.low_resources.fails() {
            return Guest::null();
        }
        let Some(GuestIrp(irp)) = irp::allocate_irp(host, locations) else { return Guest::null() };
        let _ = IoRequest::new(host, irp, Memory::Driver);
        host.objects.add(IRP_OBJECT, irp.address());
        irp
    }

    /// Frees an IRP of [`IoAllocateIrp`], which no driver must have.
    [<= DISPATCH_LEVEL]
    fn IoFreeIrp(irp: Guest<IRP>) {
        let me = current();
        let host = me.host();
        let request = idle(&me, irp, "IoFreeIrp");
        let _ = request.take_memory();
        request::forget(host, irp.address());
        let _ = host.objects.remove(IRP_OBJECT, irp.address());
        if let Err(misuse) = irp::free_irp(host, irp) {
            violation(misuse.code, misuse.text);
        }
    }

    /// Makes an IRP of [`IoAllocateIrp`] as it was when it was allocated, with this status.
    [<= DISPATCH_LEVEL]
    fn IoReuseIrp(irp: Guest<IRP>, status: i32) {
        let request = idle(&current(), irp, "IoReuseIrp");
        let _ = request.with_irp(|irp| {
            irp.initialize(irp.locations());
            irp.set_status(status, 0);
        });
    }
}
