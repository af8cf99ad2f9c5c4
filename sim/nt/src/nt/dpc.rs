// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deferred procedure calls.

use std::{collections::HashMap, sync::Arc};

use ndk_abi::nt::{
    KDEFERRED_ROUTINE, KDPC, KDPC_IMPORTANCE, PROCESSOR_NUMBER, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};
use parking_lot::Mutex;

use super::time;
use crate::{
    Event, Host, Irql,
    cpu::{CpuId, dpc::Dpc},
    guest::Guest,
    image::{self, Image},
    imports,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

const TYPE: usize = 0;
const IMPORTANCE: usize = 1;
const NUMBER: usize = 2;
const ROUTINE: usize = 24;
const CONTEXT: usize = 32;
const ARGUMENT1: usize = 40;
const ARGUMENT2: usize = 48;
const DATA: usize = 56;

/// Type of a DPC object.
const DPC_OBJECT: u8 = 0x13;
/// Added to the processor's number when the target was set.
const TARGETED: u16 = 0x500;
/// Length of a queue that is processed at once, whatever the importance of its DPCs.
const MAX_LENGTH: usize = 4;
/// Value of `DpcData` while the DPC is queued.
const QUEUED: usize = 1;

pub(super) static DPCS: Slot<Queued> = Slot::new();

/// The queued DPCs and their CPUs.
#[derive(Default)]
pub struct Queued(Mutex<HashMap<usize, CpuId>>);

impl Queued {
    /// Returns a queued DPC inside `memory`.
    pub fn find(&self, memory: &std::ops::Range<usize>) -> Option<usize> {
        self.0.lock().keys().copied().filter(|dpc| memory.contains(dpc)).min()
    }

    /// Returns whether a DPC is queued that runs code of the image.
    pub fn is_queued_by(&self, image: &Image) -> bool {
        let queued: Vec<usize> = self.0.lock().keys().copied().collect();
        queued.into_iter().any(|dpc| image.contains(routine(dpc)))
    }
}

/// Returns the address of a DPC's routine.
fn routine(dpc: usize) -> usize {
    Guest::<u8>::from_address(dpc).field::<usize>(ROUTINE).read()
}

/// Queues a DPC object on its target CPU; returns `false` when it is queued already.
pub(crate) fn insert(
    host: &Arc<Host>,
    here: CpuId,
    dpc: Guest<KDPC>,
    arguments: Option<(usize, usize)>,
) -> bool {
    if dpc.field::<u8>(TYPE).read() != DPC_OBJECT {
        violation(
            BugCheck::TIMER_OR_DPC_INVALID,
            "KeInsertQueueDpc of a DPC object that was not initialized with KeInitializeDpc",
        );
    }
    let number = dpc.field::<u16>(NUMBER).read();
    let cpu = number.checked_sub(TARGETED).map_or(here, |target| CpuId(u32::from(target)));
    {
        let mut queued = host.state(&DPCS).0.lock();
        if queued.contains_key(&dpc.address()) {
            return false;
        }
        queued.insert(dpc.address(), cpu);
        dpc.field::<usize>(DATA).write(QUEUED);
        if let Some((first, second)) = arguments {
            dpc.field::<usize>(ARGUMENT1).write(first);
            dpc.field::<usize>(ARGUMENT2).write(second);
        }
    }
    let importance = KDPC_IMPORTANCE(dpc.field::<u8>(IMPORTANCE).read().into());
    let entry = Dpc { key: dpc.address(), routine: Box::new(move || run(dpc)) };
    let length = host.cpus.dpcs(cpu).push(entry, importance == KDPC_IMPORTANCE::HighImportance);
    if length > MAX_LENGTH || starts_processing(importance, cpu == here) {
        host.request_dispatch(cpu);
    } else {
        let this = host.clone();
        host.at(time::next_tick(host.world().now()), move || this.request_dispatch(cpu));
    }
    true
}

/// Returns whether a DPC makes the CPU process its queue at once, and not only at its next clock tick or when it is
/// idle.
fn starts_processing(importance: KDPC_IMPORTANCE, on_this_cpu: bool) -> bool {
    match importance {
        KDPC_IMPORTANCE::HighImportance | KDPC_IMPORTANCE::MediumHighImportance => true,
        KDPC_IMPORTANCE::LowImportance => false,
        _ => on_this_cpu,
    }
}

/// Runs at `DISPATCH_LEVEL` on the CPU of the queue.
fn run(dpc: Guest<KDPC>) {
    let me = current();
    let (routine, context, first, second) = {
        let mut queued = me.host().state(&DPCS).0.lock();
        queued.remove(&dpc.address());
        dpc.field::<usize>(DATA).write(0);
        (
            dpc.field::<usize>(ROUTINE).read(),
            dpc.field::<usize>(CONTEXT).read(),
            dpc.field::<usize>(ARGUMENT1).read(),
            dpc.field::<usize>(ARGUMENT2).read(),
        )
    };
    // SAFETY: the routine of an initialized DPC object is a KDEFERRED_ROUTINE.
    let routine: KDEFERRED_ROUTINE = unsafe { image::function("a DPC routine", routine) };
    let pointer = std::ptr::with_exposed_provenance_mut;
    image::call("a DPC routine", || {
        // SAFETY: the arguments that the image passed for this call.
        unsafe { routine(dpc.as_ptr(), pointer(context), pointer(first), pointer(second)) }
    });
}

fn initialize(dpc: Guest<KDPC>, routine: usize, context: usize) {
    dpc.field::<u8>(TYPE).write(DPC_OBJECT);
    dpc.field::<u16>(NUMBER).write(0);
    dpc.field::<usize>(DATA).write(0);
    let importance = u8::try_from(KDPC_IMPORTANCE::MediumImportance.0).unwrap_or(1);
    dpc.field::<u8>(IMPORTANCE).write(importance);
    dpc.field::<usize>(ROUTINE).write(routine);
    dpc.field::<usize>(CONTEXT).write(context);
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a DPC object.
    [any]
    fn KeInitializeDpc(dpc: Guest<KDPC>, routine: usize, context: usize) {
        initialize(dpc, routine, context);
    }

    /// Initializes a threaded DPC object. Threaded DPCs are disabled, so that it is an ordinary one.
    [any]
    fn KeInitializeThreadedDpc(dpc: Guest<KDPC>, routine: usize, context: usize) {
        initialize(dpc, routine, context);
    }

    /// Queues a DPC; `FALSE` when it is queued already. One for this CPU has run when this returns below
    /// `DISPATCH_LEVEL`, unless it has low importance.
    [any]
    fn KeInsertQueueDpc(dpc: Guest<KDPC>, first: usize, second: usize) -> u8 {
        let me = current();
        let old = me.irql();
        if old < Irql::DISPATCH_LEVEL {
            me.raise(Irql::DISPATCH_LEVEL);
        }
        let inserted = insert(me.host(), me.cpu(), dpc, Some((first, second)));
        if old < Irql::DISPATCH_LEVEL {
            me.lower(old);
        }
        inserted.into()
    }

    /// Removes a DPC from its queue; returns `FALSE` when it is not queued.
    [any]
    fn KeRemoveQueueDpc(dpc: Guest<KDPC>) -> u8 {
        let me = current();
        let host = me.host();
        let Some(cpu) = host.state(&DPCS).0.lock().remove(&dpc.address()) else { return 0 };
        dpc.field::<usize>(DATA).write(0);
        host.cpus.dpcs(cpu).remove(dpc.address()).is_some().into()
    }

    /// Sets a DPC's importance.
    [any]
    fn KeSetImportanceDpc(dpc: Guest<KDPC>, importance: KDPC_IMPORTANCE) {
        dpc.field::<u8>(IMPORTANCE).write(u8::try_from(importance.0).unwrap_or(0));
    }

    /// Sets the CPU a DPC runs on.
    [any]
    fn KeSetTargetProcessorDpcEx(dpc: Guest<KDPC>, processor: Guest<PROCESSOR_NUMBER>) -> i32 {
        let Some(cpu) = current().host().cpus.groups().cpu(processor.read()) else {
            return STATUS_INVALID_PARAMETER;
        };
        dpc.field::<u16>(NUMBER).write(TARGETED + cpu.0 as u16);
        STATUS_SUCCESS
    }

    /// Waits until every DPC that was queued before has run.
    [<= APC_LEVEL]
    fn KeFlushQueuedDpcs() {
        let me = current();
        let host = me.host();
        let events: Vec<Event> = (0..host.cpus.count())
            .map(|cpu| {
                let event = host.event();
                let done = event.clone();
                host.queue_dpc(CpuId(cpu), move || done.set());
                event
            })
            .collect();
        for event in events {
            while !event.is_set() {
                event.wait_any();
            }
        }
    }
}
