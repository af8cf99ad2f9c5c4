// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cancel-safe queues: requests in a queue of the driver's own, whose cancellation the kernel sees to.
//!
//! The queue's lock is the driver's. While a request is in a queue, `DriverContext[3]` of its IRP refers to the queue, or to the
//! context that the driver gave, which refers to both.

use std::mem::offset_of;

use ndk_abi::nt::{DEVICE_OBJECT, IRP, STATUS_SUCCESS};

use super::{
    cancel_lock,
    irp::GuestIrp,
    request::{self, IoRequest},
};
use crate::{
    Irql,
    guest::Guest,
    image::{self, EntryPoints},
    imports,
    nt::spin_lock,
    services::Slot,
    thread::current,
    verifier::{BugCheck, Rule, broken, rules},
};

/// The cancel routine of requests in queues.
pub(crate) static CANCEL_ROUTINE: Slot<EntryPoints> = Slot::new();

const CANCEL_NAME: &str = "IopCancelQueuedRequest";

const CONTEXT_TYPE: u32 = 1;
const QUEUE_TYPE: u32 = 2;
const EXTENDED_QUEUE_TYPE: u32 = 3;

/// Offsets in `IO_CSQ_IRP_CONTEXT`.
const CONTEXT_IRP: usize = 8;
const CONTEXT_QUEUE: usize = 16;

/// Offset of `DriverContext[3]`.
const OWNER: usize = offset_of!(IRP, Tail.Overlay.DriverContext) + 3 * size_of::<usize>();

type InsertIrp = unsafe extern "efiapi" fn(usize, *mut IRP);
type InsertIrpEx = unsafe extern "efiapi" fn(usize, *mut IRP, usize) -> i32;
type PeekNextIrp = unsafe extern "efiapi" fn(usize, *mut IRP, usize) -> *mut IRP;
type AcquireLock = unsafe extern "efiapi" fn(usize, *mut u8);
type ReleaseLock = unsafe extern "efiapi" fn(usize, u8);

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

fn kind(structure: usize) -> Guest<u32> {
    Guest::from_address(structure)
}

/// Returns the cancel routine of requests in queues.
fn cancel_routine() -> usize {
    current().host().state(&CANCEL_ROUTINE).address(CANCEL_NAME)
}

/// Cancels a request if `routine` is that of requests in queues; returns whether it is.
pub(super) fn cancel(routine: usize, device: Guest<DEVICE_OBJECT>, irp: Guest<IRP>) -> bool {
    let is_mine = routine == cancel_routine();
    if is_mine {
        IopCancelQueuedRequest(device, irp);
    }
    is_mine
}

/// A queue of a driver: an `IO_CSQ`.
#[derive(Clone, Copy)]
struct Queue(usize);

/// The driver's lock of a queue, which is held.
struct Held {
    queue: Queue,
    /// State of the driver's lock.
    level: u8,
    /// State of the thread before: its level, and the number of spin locks that it held.
    before: (Irql, usize),
}

impl Queue {
    /// Returns the queue that a driver passed to `function`.
    fn new(address: usize, function: &str) -> Self {
        if !matches!(kind(address).read(), QUEUE_TYPE | EXTENDED_QUEUE_TYPE) {
            misuse(
                rules::CANCEL_SAFE_QUEUE,
                format!("{function} of a cancel-safe queue that is not initialized"),
            );
        }
        Self(address)
    }

    fn is_extended(self) -> bool {
        kind(self.0).read() == EXTENDED_QUEUE_TYPE
    }

    /// Returns a routine of the driver, by its position in the structure.
    ///
    /// # Safety
    /// `F` is the type of the function pointer at that position.
    unsafe fn routine<F: Copy>(self, what: &str, position: usize) -> F {
        let address: Guest<usize> = Guest::from_address(self.0 + 8 + 8 * position);
        // SAFETY: the driver stored a routine of this type; the caller's promise.
        unsafe { image::function(what, address.read()) }
    }

    fn lock(self) -> Held {
        const WHAT: &str = "CsqAcquireLock";
        // SAFETY: the type of the routine at this position.
        let acquire: AcquireLock = unsafe { self.routine(WHAT, 3) };
        let me = current();
        let before = (me.irql(), me.locks.borrow().len());
        let mut level = 0;
        // SAFETY: the arguments of this routine.
        image::call_changing_level(|| unsafe { acquire(self.0, &raw mut level) });
        Held { queue: self, level, before }
    }

    fn insert(self, irp: Guest<IRP>, context: usize) -> i32 {
        const WHAT: &str = "CsqInsertIrp";
        if self.is_extended() {
            // SAFETY: the type of the routine at this position of an extended queue.
            let insert: InsertIrpEx = unsafe { self.routine(WHAT, 0) };
            // SAFETY: the arguments of this routine.
            return image::call(WHAT, || unsafe { insert(self.0, irp.as_ptr(), context) });
        }
        // SAFETY: the type of the routine at this position.
        let insert: InsertIrp = unsafe { self.routine(WHAT, 0) };
        // SAFETY: the arguments of this routine.
        image::call(WHAT, || unsafe { insert(self.0, irp.as_ptr()) });
        STATUS_SUCCESS
    }

    /// Removes a request, which belongs to no queue afterwards.
    fn remove(self, irp: Guest<IRP>) {
        const WHAT: &str = "CsqRemoveIrp";
        // SAFETY: the type of the routine at this position.
        let remove: InsertIrp = unsafe { self.routine(WHAT, 1) };
        // SAFETY: the arguments of this routine.
        image::call(WHAT, || unsafe { remove(self.0, irp.as_ptr()) });
        disown(irp);
    }

    fn peek(self, after: Guest<IRP>, context: usize) -> Guest<IRP> {
        const WHAT: &str = "CsqPeekNextIrp";
        // SAFETY: the type of the routine at this position.
        let peek: PeekNextIrp = unsafe { self.routine(WHAT, 2) };
        // SAFETY: the arguments of this routine.
        Guest::new(image::call(WHAT, || unsafe { peek(self.0, after.as_ptr(), context) }))
    }

    fn complete_canceled(self, irp: Guest<IRP>) {
        const WHAT: &str = "CsqCompleteCanceledIrp";
        // SAFETY: the type of the routine at this position.
        let complete: InsertIrp = unsafe { self.routine(WHAT, 5) };
        // SAFETY: the arguments of this routine.
        image::call(WHAT, || unsafe { complete(self.0, irp.as_ptr()) });
    }
}

impl Held {
    fn unlock(self) {
        const WHAT: &str = "CsqReleaseLock";
        // SAFETY: the type of the routine at this position.
        let release: ReleaseLock = unsafe { self.queue.routine(WHAT, 4) };
        // SAFETY: the arguments of this routine.
        image::call_ending(WHAT, self.before, || unsafe { release(self.queue.0, self.level) });
    }
}

fn owner(irp: Guest<IRP>) -> Guest<usize> {
    irp.field(OWNER)
}

/// Ends the reference of an IRP to its queue, and that of its context to the IRP.
fn disown(irp: Guest<IRP>) {
    let place = owner(irp).read();
    owner(irp).write(0);
    if place != 0 && kind(place).read() == CONTEXT_TYPE {
        Guest::<usize>::from_address(place + CONTEXT_IRP).write(0);
    }
}

/// Returns the queue of an IRP.
fn queue_of(irp: Guest<IRP>) -> Queue {
    let place = owner(irp).read();
    let queue = match place {
        0 => 0,
        context if kind(context).read() == CONTEXT_TYPE => {
            Guest::<usize>::from_address(context + CONTEXT_QUEUE).read()
        }
        queue => queue,
    };
    if queue == 0 || !matches!(kind(queue).read(), QUEUE_TYPE | EXTENDED_QUEUE_TYPE) {
        misuse(rules::CANCEL_SAFE_QUEUE, "DriverContext[3] of an IRP in a cancel-safe queue was changed");
    }
    Queue(queue)
}

fn initialize(queue: usize, extended: bool, routines: [usize; 6]) -> i32 {
    kind(queue).write(if extended { EXTENDED_QUEUE_TYPE } else { QUEUE_TYPE });
    for (position, routine) in routines.into_iter().enumerate() {
        Guest::<usize>::from_address(queue + 8 + 8 * position).write(routine);
    }
    Guest::<usize>::from_address(queue + 56).write(0);
    STATUS_SUCCESS
}

/// Returns the request that a driver is to insert.
fn given(irp: Guest<IRP>, function: &str) -> std::sync::Arc<IoRequest> {
    request::find(current().host(), irp.address()).unwrap_or_else(|| {
        misuse(
            rules::REQUEST,
            format!("{function} of {:#x}, which is not an IRP that a driver was given", irp.address()),
        )
    })
}

fn insert(queue: usize, irp: Guest<IRP>, context: usize, insert_context: usize, function: &str) -> i32 {
    let queue = Queue::new(queue, function);
    let _ = given(irp, function);
    let guest = GuestIrp(irp);
    if context != 0 {
        kind(context).write(CONTEXT_TYPE);
        Guest::<usize>::from_address(context + CONTEXT_IRP).write(irp.address());
        Guest::<usize>::from_address(context + CONTEXT_QUEUE).write(queue.0);
    }
    let held = queue.lock();
    owner(irp).write(if context == 0 { queue.0 } else { context });
    let is_inserted = guest.cancel().read() == 0;
    let status = if is_inserted { queue.insert(irp, insert_context) } else { STATUS_SUCCESS };
    if status < 0 {
        disown(irp);
        held.unlock();
        return status;
    }
    guest.mark_pending();
    spin_lock::exchange(guest.cancel_routine(), cancel_routine());
    // A cancellation that came before has found no routine.
    let is_mine = guest.cancel().read() != 0 && spin_lock::exchange(guest.cancel_routine(), 0) != 0;
    if is_mine {
        if is_inserted {
            queue.remove(irp);
        } else {
            disown(irp);
        }
    }
    held.unlock();
    if is_mine {
        queue.complete_canceled(irp);
    }
    status
}

/// Takes a request out of its queue, unless it is being cancelled.
fn take(queue: Queue, irp: Guest<IRP>) -> bool {
    let _ = queue_of(irp);
    let is_mine = spin_lock::exchange(GuestIrp(irp).cancel_routine(), 0) != 0;
    if is_mine {
        queue.remove(irp);
    }
    is_mine
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a cancel-safe queue.
    [any]
    fn IoCsqInitialize(
        queue: usize,
        insert_irp: usize,
        remove_irp: usize,
        peek_next_irp: usize,
        acquire_lock: usize,
        release_lock: usize,
        complete_canceled_irp: usize,
    ) -> i32 {
        initialize(
            queue,
            false,
            [insert_irp, remove_irp, peek_next_irp, acquire_lock, release_lock, complete_canceled_irp],
        )
    }

    /// Initializes a cancel-safe queue whose insertion can fail.
    [any]
    fn IoCsqInitializeEx(
        queue: usize,
        insert_irp: usize,
        remove_irp: usize,
        peek_next_irp: usize,
        acquire_lock: usize,
        release_lock: usize,
        complete_canceled_irp: usize,
    ) -> i32 {
        initialize(
            queue,
            true,
            [insert_irp, remove_irp, peek_next_irp, acquire_lock, release_lock, complete_canceled_irp],
        )
    }

    /// Inserts a request into a queue, and marks it pending; completes it if it is cancelled.
    [<= DISPATCH_LEVEL]
    fn IoCsqInsertIrp(queue: usize, irp: Guest<IRP>, context: usize) {
        insert(queue, irp, context, 0, "IoCsqInsertIrp");
    }

    /// Inserts a request as [`IoCsqInsertIrp`] does; returns what the driver's routine returns.
    [<= DISPATCH_LEVEL]
    fn IoCsqInsertIrpEx(queue: usize, irp: Guest<IRP>, context: usize, insert_context: usize) -> i32 {
        insert(queue, irp, context, insert_context, "IoCsqInsertIrpEx")
    }

    /// Removes the request of a context; returns null if it is cancelled.
    [<= DISPATCH_LEVEL]
    fn IoCsqRemoveIrp(queue: usize, context: usize) -> Guest<IRP> {
        let queue = Queue::new(queue, "IoCsqRemoveIrp");
        let held = queue.lock();
        let irp: Guest<IRP> =
            Guest::from_address(Guest::<usize>::from_address(context + CONTEXT_IRP).read());
        let is_removed = !irp.is_null() && take(queue, irp);
        held.unlock();
        if is_removed { irp } else { Guest::null() }
    }

    /// Removes the next request that the driver's routine finds and that is not cancelled; returns null if there is none.
    [<= DISPATCH_LEVEL]
    fn IoCsqRemoveNextIrp(queue: usize, peek_context: usize) -> Guest<IRP> {
        let queue = Queue::new(queue, "IoCsqRemoveNextIrp");
        let held = queue.lock();
        let mut irp = queue.peek(Guest::null(), peek_context);
        while !irp.is_null() && !take(queue, irp) {
            irp = queue.peek(irp, peek_context);
        }
        held.unlock();
        irp
    }
}

imports! { ROUTINES: "ntoskrnl.exe" =>
    /// Cancels a request that is in a queue: removes it, and lets the driver complete it. The cancel spin lock is held.
    [== DISPATCH_LEVEL]
    fn IopCancelQueuedRequest(device: Guest<DEVICE_OBJECT>, irp: Guest<IRP>) {
        let _ = device;
        let level = GuestIrp(irp).cancel_irql().read();
        cancel_lock::IoReleaseCancelSpinLock(level);
        let queue = queue_of(irp);
        let held = queue.lock();
        queue.remove(irp);
        held.unlock();
        queue.complete_canceled(irp);
    }
}
