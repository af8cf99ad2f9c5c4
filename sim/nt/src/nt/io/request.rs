// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests, and the calls of the dispatch routines of drivers that got them.

use std::{
    collections::{HashMap, VecDeque},
    mem::offset_of,
    sync::Arc,
};

use ndk_abi::nt::{IO_STACK_LOCATION, IO_STATUS_BLOCK, IRP, KEVENT};
use parking_lot::Mutex;

use super::irp::{self, GuestIrp, RequestMemory};
use crate::{Host, event::Event, guest::Guest, nt::dispatcher, services::Slot, thread::ThreadId};

pub(crate) static REQUESTS: Slot<Requests> = Slot::new();

/// Number of completed requests that are remembered, to recognize one that is completed again.
const REMEMBERED: usize = 1024;

/// The requests of a host, by the address of their IRP.
#[derive(Default)]
pub struct Requests(Mutex<Table>);

#[derive(Default)]
struct Table {
    held: HashMap<usize, Arc<IoRequest>>,
    completed: VecDeque<usize>,
}

/// A request to drivers: of a program, or of a driver that allocated its IRP.
pub struct IoRequest {
    /// Address of its IRP, which is gone with its memory.
    irp: usize,
    state: Mutex<State>,
    done: Event,
}

#[derive(Default)]
struct State {
    memory: Memory,
    completion: Option<Completion>,
    requestor: Option<Requestor>,
    /// In the order of their begin.
    calls: Vec<Call>,
    last_call: u64,
}

/// Owner of the memory of a request, if there is still some.
#[derive(Default)]
pub(super) enum Memory {
    #[default]
    Freed,
    /// A program: its memory is freed when all drivers have completed the request.
    Program(RequestMemory),
    /// A driver, which frees the IRP.
    Driver,
}

/// The driver for which the I/O manager has built a request, and its places for the outcome.
pub(super) struct Requestor {
    /// The function that has built it.
    pub kind: &'static str,
    /// Signaled at the end, unless it is null.
    pub event: Guest<KEVENT>,
    pub status: Guest<IO_STATUS_BLOCK>,
    /// Its buffer to which output is copied, or null.
    pub output: Guest<u8>,
}

impl Requestor {
    /// Writes status and output; the event comes last.
    pub(super) fn deliver(&self, outcome: &Completion) {
        if !self.output.is_null() {
            self.output.write_bytes(&outcome.output);
        }
        let status = self.status.field::<i32>(offset_of!(IO_STATUS_BLOCK, Anonymous.Status));
        status.write(outcome.status);
        self.status.field::<usize>(offset_of!(IO_STATUS_BLOCK, Information)).write(outcome.information);
        if !self.event.is_null() {
            dispatcher::KeSetEvent(self.event, 0, 0);
        }
    }
}

/// A call of a dispatch routine, until it has returned and its driver has completed the request.
struct Call {
    number: u64,
    /// Number of the stack location.
    location: i8,
    thread: ThreadId,
    runs: bool,
    left: Option<Left>,
}

/// State of a stack location when its driver had completed the request.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) is_marked_pending: bool,
    pub(super) status: i32,
}

/// Whereabouts of a request whose driver was called.
pub(super) enum Progress {
    /// The driver has completed it.
    Completed(Left),
    /// The driver has it.
    Held { is_marked_pending: bool },
    /// A driver that was called later has it.
    PassedOn { is_marked_pending: bool },
}

/// A stack location whose driver has completed the request.
pub(super) struct Step {
    pub(super) location: IO_STACK_LOCATION,
    pub(super) left: Left,
    /// The drivers have all completed the request.
    pub(super) is_last: bool,
}

/// Outcome of a request.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    pub status: i32,
    pub information: usize,
    pub output: Vec<u8>,
}

impl IoRequest {
    /// Makes a request that its drivers are about to get.
    pub(super) fn new(host: &Host, irp: Guest<IRP>, memory: Memory) -> Arc<Self> {
        let irp = irp.address();
        let state = Mutex::new(State { memory, ..State::default() });
        let request = Arc::new(Self { irp, state, done: host.event() });
        let mut table = host.state(&REQUESTS).0.lock();
        table.completed.retain(|&completed| completed != irp);
        table.held.insert(irp, request.clone());
        request
    }

    pub(super) fn irp(&self) -> Guest<IRP> {
        Guest::from_address(self.irp)
    }

    /// Names the driver for which the request was built.
    pub(super) fn set_requestor(&self, requestor: Requestor) {
        self.state.lock().requestor = Some(requestor);
    }

    /// Takes the driver for which the request was built, if it was.
    pub(super) fn take_requestor(&self) -> Option<Requestor> {
        self.state.lock().requestor.take()
    }

    /// Returns the outcome once there is one.
    pub(super) fn completion(&self) -> Option<Completion> {
        self.state.lock().completion.clone()
    }

    /// Records the outcome, which ends all waits.
    pub(super) fn finish(&self, completion: Completion) {
        self.state.lock().completion = Some(completion);
        self.done.set();
    }

    /// Blocks until the request is completed, or for no apparent reason.
    pub(super) fn block(&self) {
        self.done.wait_any();
    }

    pub(super) fn wait(&self, timeout: std::time::Duration) -> bool {
        self.done.wait(timeout)
    }

    /// Calls `access` with the IRP while it exists. No driver completes it meanwhile, so that `access` must neither block nor
    /// report a violation.
    pub(super) fn with_irp<T>(&self, access: impl FnOnce(GuestIrp) -> T) -> Option<T> {
        let state = self.state.lock();
        (!matches!(state.memory, Memory::Freed)).then(|| access(GuestIrp(self.irp())))
    }

    /// Calls `access` with the memory of a program's request.
    pub(super) fn with_memory<T>(&self, access: impl FnOnce(&RequestMemory) -> T) -> Option<T> {
        match &self.state.lock().memory {
            Memory::Program(memory) => Some(access(memory)),
            Memory::Freed | Memory::Driver => None,
        }
    }

    /// Takes the memory, so that the IRP is no longer accessed.
    pub(super) fn take_memory(&self) -> Memory {
        std::mem::take(&mut self.state.lock().memory)
    }

    pub(super) fn is_of_a_driver(&self) -> bool {
        matches!(self.state.lock().memory, Memory::Driver)
    }

    /// Returns whether a driver was given the request, and has not completed it.
    pub(super) fn is_in_use(&self) -> bool {
        self.state.lock().calls.iter().any(|call| call.left.is_none())
    }

    /// Records that the driver of a stack location is about to be called, with which the request is at this location. Returns a
    /// number for [`Self::end_call`].
    pub(super) fn begin_call(&self, location: i8, device: usize, thread: ThreadId) -> u64 {
        let mut state = self.state.lock();
        let irp = GuestIrp(self.irp());
        irp.set_current(location);
        irp::device(irp.location()).write(device);
        state.last_call += 1;
        let number = state.last_call;
        state.calls.push(Call { number, location, thread, runs: true, left: None });
        number
    }

    /// Records that a dispatch routine has returned; returns what has become of the request.
    pub(super) fn end_call(&self, number: u64) -> Progress {
        let mut state = self.state.lock();
        let is_passed_on = state.calls.iter().any(|call| call.number > number && call.left.is_none());
        let Some(index) = state.calls.iter().position(|call| call.number == number) else {
            unreachable!("a call is recorded until it has returned")
        };
        if let Some(left) = state.calls[index].left {
            state.calls.remove(index);
            return Progress::Completed(left);
        }
        state.calls[index].runs = false;
        let is_marked_pending = GuestIrp(self.irp()).is_pending_at(state.calls[index].location);
        if is_passed_on {
            Progress::PassedOn { is_marked_pending }
        } else {
            Progress::Held { is_marked_pending }
        }
    }

    /// Returns whether a thread is in a dispatch routine, and a driver below has the request.
    pub(super) fn is_below_call_of(&self, thread: ThreadId) -> bool {
        let state = self.state.lock();
        let mut calls = state.calls.iter().rev();
        let innermost = calls.find(|call| call.thread == thread && call.runs);
        innermost.is_some_and(|mine| {
            mine.left.is_none()
                && state.calls.iter().any(|call| {
                    call.number > mine.number && call.left.is_none() && call.location < mine.location
                })
        })
    }

    /// Takes the request out of the location of the driver that has it, to the location above. Returns `None` when no driver has
    /// it.
    pub(super) fn leave_location(&self) -> Option<Step> {
        let mut state = self.state.lock();
        if matches!(state.memory, Memory::Freed) {
            return None;
        }
        let irp = GuestIrp(self.irp());
        let (current, locations) = (irp.current(), irp.locations());
        if !(1..=locations).contains(&current) {
            return None;
        }
        let location = irp.location().read();
        let is_marked_pending = irp.is_pending_at(current);
        let left = Left { is_marked_pending, status: irp.status().0 };
        irp.pending_returned().write(is_marked_pending.into());
        irp::control(irp.location()).write(0);
        irp.set_current(current + 1);
        for call in &mut state.calls {
            if call.location <= current && call.left.is_none() {
                call.left = Some(left);
            }
        }
        state.calls.retain(|call| call.runs || call.left.is_none());
        Some(Step { location, left, is_last: current == locations })
    }
}

/// Returns the request with an IRP.
pub(super) fn find(host: &Host, irp: usize) -> Option<Arc<IoRequest>> {
    host.state(&REQUESTS).0.lock().held.get(&irp).cloned()
}

/// Forgets a request that has no memory any longer.
pub(super) fn forget(host: &Host, irp: usize) {
    host.state(&REQUESTS).0.lock().held.remove(&irp);
}

/// Forgets a program's request that all drivers have completed, and remembers the address of its IRP.
pub(super) fn forget_completed(host: &Host, irp: usize) {
    let mut table = host.state(&REQUESTS).0.lock();
    table.held.remove(&irp);
    if table.completed.len() == REMEMBERED {
        table.completed.pop_front();
    }
    table.completed.push_back(irp);
}

/// Returns whether the IRP at an address was one of a program's request that all drivers have completed.
pub(super) fn is_completed(host: &Host, irp: usize) -> bool {
    host.state(&REQUESTS).0.lock().completed.contains(&irp)
}
