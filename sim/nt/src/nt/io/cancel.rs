// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cancelling requests.

use ndk_abi::nt::{DRIVER_CANCEL, IRP};

use super::{
    cancel_lock::{acquire, release},
    csq,
    request::{self, IoRequest},
};
use crate::{
    guest::Guest,
    image, imports,
    nt::spin_lock,
    thread::current,
    verifier::{BugCheck, broken, rules},
};

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
    if csq::cancel(routine, Guest::from_address(device), request.irp()) {
        return true;
    }
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
    /// Cancels a request; returns whether it had a cancel routine.
    [<= DISPATCH_LEVEL]
    fn IoCancelIrp(irp: Guest<IRP>) -> u8 {
        let Some(request) = request::find(current().host(), irp.address()) else {
            broken(rules::REQUEST, BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
                format!("IoCancelIrp of {:#x}, which is not an IRP that a driver was given", irp.address()),
            );
        };
        cancel(&request).into()
    }
}
