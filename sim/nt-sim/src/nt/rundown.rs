// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rundown protection: bit 0 of the count is set when rundown has begun; the rest is twice the number of owners.

use ndk_abi::nt::EX_RUNDOWN_REF;

use super::dispatcher::DISPATCHER;
use crate::{
    guest::Guest,
    imports,
    thread::current,
    verifier::{BugCheck, violation},
};

const ACTIVE: usize = 1;
const ONE: usize = 2;

fn count(reference: Guest<EX_RUNDOWN_REF>) -> Guest<usize> {
    reference.field(0)
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a rundown reference.
    [<= APC_LEVEL]
    fn ExInitializeRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(0);
    }

    /// Reinitializes a reference that was run down.
    [<= APC_LEVEL]
    fn ExReInitializeRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(0);
    }

    /// Acquires protection; returns `FALSE` once rundown has begun.
    [<= DISPATCH_LEVEL]
    fn ExAcquireRundownProtection(reference: Guest<EX_RUNDOWN_REF>) -> u8 {
        let count = count(reference);
        current().host().state(&DISPATCHER).locked(|| {
            let value = count.read();
            if value & ACTIVE != 0 {
                return 0;
            }
            count.write(value + ONE);
            1
        })
    }

    /// Releases protection.
    [<= DISPATCH_LEVEL]
    fn ExReleaseRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        let me = current();
        let count = count(reference);
        let held = me.host().state(&DISPATCHER).signal(&me, reference.address(), || {
            let value = count.read();
            let held = value >= ONE;
            if held {
                count.write(value - ONE);
            }
            held
        });
        if !held {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "ExReleaseRundownProtection without a matching ExAcquireRundownProtection",
            );
        }
    }

    /// Begins rundown and waits until all protection is released.
    [<= APC_LEVEL]
    fn ExWaitForRundownProtectionRelease(reference: Guest<EX_RUNDOWN_REF>) {
        let me = current();
        let count = count(reference);
        me.host().state(&DISPATCHER).wait(&me, &[reference.address()], None, || {
            count.write(count.read() | ACTIVE);
            count.read() == ACTIVE
        });
    }

    /// Marks rundown as complete.
    [<= APC_LEVEL]
    fn ExRundownCompleted(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(ACTIVE);
    }
}
