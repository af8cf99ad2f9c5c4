// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executive resources: locks that one thread holds exclusively, or several share.
//!
//! The state is the host's; `ERESOURCE` is opaque to drivers, and its memory is not used. Source: WDK, `ExAcquireResourceExclusiveLite`,
//! `ExAcquireResourceSharedLite`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use ndk_abi::nt::STATUS_SUCCESS;
use parking_lot::Mutex;

use super::{
    critical_region::{enter, is_inside, leave},
    dispatcher::DISPATCHER,
};
use crate::{
    imports,
    services::Slot,
    thread::{Thread, ThreadId, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

pub(super) static RESOURCES: Slot<Resources> = Slot::new();

/// The resources of a host that are initialized, by address.
#[derive(Default)]
pub struct Resources(Mutex<BTreeMap<usize, State>>);

#[derive(Default)]
struct State {
    is_exclusive: bool,
    /// How often each thread holds it: one thread while it is exclusive.
    holders: HashMap<ThreadId, u32>,
    exclusive_waiters: u32,
    shared_waiters: u32,
}

/// Access that a thread asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Exclusive,
    Shared,
    /// Shared, also while another thread waits for exclusive access.
    SharedBeforeExclusive,
}

impl State {
    /// Lets a thread hold the resource once more, if it may.
    fn acquire(&mut self, thread: ThreadId, access: Access) -> bool {
        let holds = self.holders.contains_key(&thread);
        let is_granted = match access {
            Access::Exclusive => self.holders.is_empty() || self.is_exclusive && holds,
            _ if holds => true,
            Access::Shared => !self.is_exclusive && self.exclusive_waiters == 0,
            Access::SharedBeforeExclusive => !self.is_exclusive,
        };
        if is_granted {
            self.is_exclusive |= access == Access::Exclusive;
            *self.holders.entry(thread).or_default() += 1;
        }
        is_granted
    }

    fn waiters(&mut self, access: Access) -> &mut u32 {
        if access == Access::Exclusive { &mut self.exclusive_waiters } else { &mut self.shared_waiters }
    }

    fn is_used(&self) -> bool {
        !self.holders.is_empty() || self.exclusive_waiters + self.shared_waiters > 0
    }

    fn release(&mut self, thread: ThreadId) -> bool {
        let Some(count) = self.holders.get_mut(&thread) else { return false };
        *count -= 1;
        if *count == 0 {
            self.holders.remove(&thread);
            self.is_exclusive = false;
        }
        true
    }
}

impl Resources {
    /// Returns the first resource in `memory`.
    pub(super) fn find(&self, memory: &Range<usize>) -> Option<usize> {
        self.0.lock().range(memory.clone()).next().map(|(&resource, _)| resource)
    }
}

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

/// Changes the state of a resource, which must be initialized.
fn with<T>(me: &Thread, resource: usize, function: &str, change: impl FnOnce(&mut State) -> T) -> T {
    let changed = me.host().state(&RESOURCES).0.lock().get_mut(&resource).map(change);
    changed.unwrap_or_else(|| {
        misuse(rules::RESOURCE_LIFE, format!("{function} of a resource that is not initialized"))
    })
}

fn check_region(me: &Thread, function: &str) {
    if me.verifies() && !is_inside(me) {
        misuse(
            rules::RESOURCE_REGION,
            format!("{function} outside of a critical region; call KeEnterCriticalRegion first"),
        );
    }
}

fn acquire(resource: usize, wait: u8, access: Access, function: &str) -> u8 {
    let me = current();
    let thread = me.id();
    check_region(&me, function);
    let is_acquired = with(&me, resource, function, |state| state.acquire(thread, access));
    if is_acquired || wait == 0 {
        return is_acquired.into();
    }
    if access == Access::Exclusive
        && with(&me, resource, function, |state| state.holders.contains_key(&thread))
    {
        misuse(
            rules::RESOURCE_ACCESS,
            format!("{function} by a thread that holds the resource shared: deadlock"),
        );
    }
    with(&me, resource, function, |state| *state.waiters(access) += 1);
    me.host().state(&DISPATCHER).wait(&me, resource, || {
        with(&me, resource, function, |state| {
            let is_acquired = state.acquire(thread, access);
            *state.waiters(access) -= u32::from(is_acquired);
            is_acquired
        })
    });
    1
}

/// Changes the state of a resource, and wakes the threads that wait for it.
fn signal<T>(me: &Thread, resource: usize, function: &str, change: impl FnOnce(&mut State) -> T) -> T {
    // The change itself must not fail: it is made under a lock.
    with(me, resource, function, |_| ());
    me.host().state(&DISPATCHER).signal(me, resource, || with(me, resource, function, change))
}

fn release(resource: usize, function: &str) {
    let me = current();
    check_region(&me, function);
    if !signal(&me, resource, function, |state| state.release(me.id())) {
        violation(
            BugCheck::RESOURCE_NOT_OWNED,
            format!("{function} of a resource that the thread does not hold"),
        );
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a resource.
    [<= DISPATCH_LEVEL]
    fn ExInitializeResourceLite(resource: usize) -> i32 {
        let me = current();
        let host = me.host();
        if host.state(&RESOURCES).0.lock().insert(resource, State::default()).is_some() {
            misuse(rules::RESOURCE_LIFE, "ExInitializeResourceLite of a resource that is initialized");
        }
        host.objects.add("ExInitializeResourceLite", resource);
        STATUS_SUCCESS
    }

    /// Deletes a resource, which no thread may hold or wait for.
    [<= APC_LEVEL]
    fn ExDeleteResourceLite(resource: usize) -> i32 {
        let me = current();
        if with(&me, resource, "ExDeleteResourceLite", |state| state.is_used()) {
            misuse(rules::RESOURCE_LIFE, "ExDeleteResourceLite of a resource that a thread holds or waits for");
        }
        me.host().state(&RESOURCES).0.lock().remove(&resource);
        let _ = me.host().objects.remove("ExInitializeResourceLite", resource);
        STATUS_SUCCESS
    }

    /// Acquires a resource for one thread alone; without `wait`, returns `FALSE` if others hold it.
    [<= APC_LEVEL]
    fn ExAcquireResourceExclusiveLite(resource: usize, wait: u8) -> u8 {
        acquire(resource, wait, Access::Exclusive, "ExAcquireResourceExclusiveLite")
    }

    /// Acquires a resource together with others; without `wait`, returns `FALSE` if a thread has or waits for exclusive access.
    [<= APC_LEVEL]
    fn ExAcquireResourceSharedLite(resource: usize, wait: u8) -> u8 {
        acquire(resource, wait, Access::Shared, "ExAcquireResourceSharedLite")
    }

    /// Acquires a resource together with others, also while a thread waits for exclusive access.
    [<= APC_LEVEL]
    fn ExAcquireSharedStarveExclusive(resource: usize, wait: u8) -> u8 {
        acquire(resource, wait, Access::SharedBeforeExclusive, "ExAcquireSharedStarveExclusive")
    }

    /// Enters a critical region, and acquires a resource exclusively.
    [<= APC_LEVEL]
    fn ExEnterCriticalRegionAndAcquireResourceExclusive(resource: usize) -> usize {
        enter(&current());
        acquire(resource, 1, Access::Exclusive, "ExEnterCriticalRegionAndAcquireResourceExclusive");
        0
    }

    /// Enters a critical region, and acquires a resource together with others.
    [<= APC_LEVEL]
    fn ExEnterCriticalRegionAndAcquireResourceShared(resource: usize) -> usize {
        enter(&current());
        acquire(resource, 1, Access::Shared, "ExEnterCriticalRegionAndAcquireResourceShared");
        0
    }

    /// Releases a resource once.
    [<= DISPATCH_LEVEL]
    fn ExReleaseResourceLite(resource: usize) {
        release(resource, "ExReleaseResourceLite");
    }

    /// Releases a resource once, and leaves a critical region.
    [<= APC_LEVEL]
    fn ExReleaseResourceAndLeaveCriticalRegion(resource: usize) {
        release(resource, "ExReleaseResourceAndLeaveCriticalRegion");
        leave(&current(), "ExReleaseResourceAndLeaveCriticalRegion");
    }

    /// Shares a resource that the thread holds exclusively.
    [<= APC_LEVEL]
    fn ExConvertExclusiveToSharedLite(resource: usize) {
        let me = current();
        let is_shared = signal(&me, resource, "ExConvertExclusiveToSharedLite", |state| {
            let is_held = state.is_exclusive && state.holders.contains_key(&me.id());
            state.is_exclusive &= !is_held;
            is_held
        });
        if !is_shared {
            misuse(rules::RESOURCE_ACCESS, "ExConvertExclusiveToSharedLite of a resource that the thread does not hold exclusively");
        }
    }

    /// Returns whether the thread holds a resource exclusively.
    [<= DISPATCH_LEVEL]
    fn ExIsResourceAcquiredExclusiveLite(resource: usize) -> u8 {
        let me = current();
        let is_held = |state: &mut State| state.is_exclusive && state.holders.contains_key(&me.id());
        with(&me, resource, "ExIsResourceAcquiredExclusiveLite", is_held).into()
    }

    /// Returns how often the thread holds a resource.
    [<= DISPATCH_LEVEL]
    fn ExIsResourceAcquiredSharedLite(resource: usize) -> u32 {
        let me = current();
        let count = |state: &mut State| state.holders.get(&me.id()).copied().unwrap_or(0);
        with(&me, resource, "ExIsResourceAcquiredSharedLite", count)
    }
}
