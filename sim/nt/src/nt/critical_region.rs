// SPDX-License-Identifier: MIT OR Apache-2.0

//! Critical and guarded regions, in which a thread gets no normal kernel APCs. There are none; functions that require a region check it.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{
    Irql, imports,
    services::Slot,
    thread::{Thread, ThreadId, current},
    verifier::{BugCheck, broken, rules, violation},
};

pub(super) static REGIONS: Slot<Regions> = Slot::new();

/// How many regions each thread of a host is in.
#[derive(Default)]
pub struct Regions(Mutex<HashMap<ThreadId, u32>>);

pub(super) fn enter(me: &Thread) {
    *me.host().state(&REGIONS).0.lock().entry(me.id()).or_default() += 1;
}

pub(super) fn leave(me: &Thread, function: &str) {
    let is_left = {
        let mut regions = me.host().state(&REGIONS).0.lock();
        let count = regions.get_mut(&me.id());
        let is_left = count.is_some();
        if let Some(count) = count {
            *count -= 1;
            if *count == 0 {
                regions.remove(&me.id());
            }
        }
        is_left
    };
    if !is_left && me.verifies() {
        broken(
            rules::REGION_LEFT,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{function} by a thread that is in no critical region"),
        );
    }
}

/// Returns whether a thread gets no normal kernel APCs: in a region, or at `APC_LEVEL` and above.
pub(super) fn is_inside(me: &Thread) -> bool {
    me.irql() >= Irql::APC_LEVEL || me.host().state(&REGIONS).0.lock().contains_key(&me.id())
}

/// Reports that a thread ends in a region.
pub(super) fn check_left(me: &Thread) {
    let regions = me.host().state(&REGIONS).0.lock().remove(&me.id());
    if let Some(count) = regions
        && me.verifies()
    {
        violation(
            BugCheck::KERNEL_APC_PENDING_DURING_EXIT,
            format!("a thread ended in {count} critical or guarded region(s)"),
        );
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Keeps normal kernel APCs from the thread.
    [<= APC_LEVEL]
    fn KeEnterCriticalRegion() {
        enter(&current());
    }

    /// Undoes [`KeEnterCriticalRegion`].
    [<= APC_LEVEL]
    fn KeLeaveCriticalRegion() {
        leave(&current(), "KeLeaveCriticalRegion");
    }

    /// Keeps all kernel APCs from the thread.
    [<= APC_LEVEL]
    fn KeEnterGuardedRegion() {
        enter(&current());
    }

    /// Undoes [`KeEnterGuardedRegion`].
    [<= APC_LEVEL]
    fn KeLeaveGuardedRegion() {
        leave(&current(), "KeLeaveGuardedRegion");
    }

    /// Returns whether the thread gets no normal kernel APCs.
    [<= DISPATCH_LEVEL]
    fn KeAreApcsDisabled() -> u8 {
        is_inside(&current()).into()
    }
}
