// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cancel spin lock.

use std::sync::OnceLock;

use ndk_abi::nt::KSPIN_LOCK;

use crate::{Host, Irql, guest::Guest, imports, nt::spin_lock, services::Slot, thread::current};

/// Address of the host's cancel spin lock; made when it is acquired for the first time.
pub(crate) static CANCEL_LOCK: Slot<OnceLock<usize>> = Slot::new();

fn cancel_lock(host: &Host) -> Guest<KSPIN_LOCK> {
    let lock = host.state(&CANCEL_LOCK).get_or_init(|| {
        let page = host.memory.allocate(1).expect("a host has memory for its cancel spin lock");
        page.address()
    });
    Guest::from_address(*lock)
}

pub(super) fn acquire() -> Irql {
    let me = current();
    let old = me.raise(Irql::DISPATCH_LEVEL);
    spin_lock::acquire(me, cancel_lock(me.host()));
    old
}

pub(super) fn release(level: Irql) {
    let me = current();
    spin_lock::release(me, cancel_lock(me.host()));
    me.lower(level);
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
}
