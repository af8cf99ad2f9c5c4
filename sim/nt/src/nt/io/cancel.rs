// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cancelling requests, and the cancel spin lock.

use std::sync::OnceLock;

use ndk_abi::nt::{DRIVER_CANCEL, IRP, KSPIN_LOCK};

use super::request::{self, IoRequest};
use crate::{
    Host, Irql,
    guest::Guest,
    image, imports,
    nt::spin_lock,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

/// Address of the host's cancel spin lock; made when it is acquired for the first time.
pub(crate) static CANCEL_LOCK: Slot<OnceLock<usize>> = Slot::new();

fn cancel_lock(host: &Host) -> Guest<KSPIN_LOCK> {
    let lock = host.state(&CANCEL_LOCK).get_or_init(|| {
        let page = host.memory.allocate(1).expect("a host has memory for its cancel spin lock");
        page.address()
    });
    Guest::from_address(*lock)
}

fn acquire() -> Irql {
    let me = current();
    let old = me.raise(Irql::DISPATCH_LEVEL);
    spin_lock::acquire(me, cancel_lock(me.host()));
    old
}

fn release(level: Irql) {
    let me = current();
    spin_lock::release(me, cancel_lock(me.host()));
    me.lower(level);
}

/// Cancels a request: calls its cancel routine if it has one; returns `false` when it has none or is completed.
pub(super) fn cancel(request: &IoRequest) -> bool {
    let level = acquire();
    let routine = request.with_irp(|irp| {
        irp.cancel().write(1);
        irp.cancel_irql().write(level.0);
        // The driver exchanges the routine without a lock.
        let routine = spin_lock::exchange(irp.cancel_routine(), 0);
        (routine, irp.device())
    });
    let Some((routine @ 1.., device)) = routine else {
        release(level);
        return false;
    };
    // SAFETY: the driver set it as its cancel routine.
    let routine: DRIVER_CANCEL = unsafe { image::function("a cancel routine", routine) };
    let locks = current().locks.borrow().len().saturating_sub(1);
    image::call_ending("a cancel routine", (level, locks), || {
        // SAFETY: the arguments of a cancel routine.
        unsafe { routine(Guest::from_address(device).as_ptr(), request.irp().as_ptr()) }
    });
    true
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Acquires the lock that protects the cancel routines of all requests.
    [<= DISPATCH_LEVEL]
    fn IoAcquireCancelSpinLock(level: Guest<u8>) {
        level.write(acquire().0);
    }

    /// Releases the cancel spin lock.
    [== DISPATCH_LEVEL]
    fn IoReleaseCancelSpinLock(level: u8) {
        release(Irql(level));
    }

    /// Cancels a request; returns whether it had a cancel routine.
    [<= DISPATCH_LEVEL]
    fn IoCancelIrp(irp: Guest<IRP>) -> u8 {
        let Some(request) = request::find(current().host(), irp.address()) else {
            violation(
                BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
                format!("IoCancelIrp of {:#x}, which is not an IRP that a driver was given", irp.address()),
            );
        };
        cancel(&request).into()
    }
}
