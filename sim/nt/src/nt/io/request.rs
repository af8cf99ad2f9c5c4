// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that drivers hold, and completing them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use ndk_abi::nt::{IRP, IRP_MJ_DEVICE_CONTROL, STATUS_PENDING};
use parking_lot::Mutex;

use super::irp::{GuestIrp, RequestMemory};
use crate::{
    Host,
    event::Event,
    guest::Guest,
    imports,
    nt::mdl,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

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

/// A request to a driver.
pub struct IoRequest {
    /// Address of its IRP, which is gone after completion.
    irp: usize,
    /// `IRP_MJ_*`.
    major: u8,
    state: Mutex<State>,
    done: Event,
}

#[derive(Default)]
struct State {
    /// Until completion.
    memory: Option<RequestMemory>,
    completion: Option<Completion>,
}

/// Outcome of a request.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    pub status: i32,
    pub information: usize,
    pub output: Vec<u8>,
    /// The driver had called `IoMarkIrpPending`.
    pub(super) marked_pending: bool,
}

/// A status of severity "error". A request that ends with one has no output.
fn is_error(status: i32) -> bool {
    status.cast_unsigned() >> 30 == 3
}

impl IoRequest {
    /// Makes a request that its driver is about to get.
    pub(super) fn new(host: &Host, major: u8, memory: RequestMemory) -> Arc<Self> {
        let irp = memory.irp.address();
        let state = Mutex::new(State { memory: Some(memory), completion: None });
        let request = Arc::new(Self { irp, major, state, done: host.event() });
        let mut table = host.state(&REQUESTS).0.lock();
        table.completed.retain(|&completed| completed != irp);
        table.held.insert(irp, request.clone());
        request
    }

    pub(super) fn irp(&self) -> Guest<IRP> {
        Guest::from_address(self.irp)
    }

    /// Returns the outcome once there is one.
    pub(super) fn completion(&self) -> Option<Completion> {
        self.state.lock().completion.clone()
    }

    /// Blocks until the request is completed, or for no apparent reason.
    pub(super) fn block(&self) {
        self.done.wait_any();
    }

    pub(super) fn wait(&self, timeout: std::time::Duration) -> bool {
        self.done.wait(timeout)
    }

    /// Calls `access` with the IRP unless the request is completed. No other thread completes it meanwhile, so that
    /// `access` must neither block nor report a violation.
    pub(super) fn with_irp<T>(&self, access: impl FnOnce(GuestIrp) -> T) -> Option<T> {
        let state = self.state.lock();
        state.memory.as_ref().map(|memory| access(GuestIrp(memory.irp)))
    }
}

/// Returns the request with an IRP.
pub(super) fn find(host: &Host, irp: usize) -> Option<Arc<IoRequest>> {
    host.state(&REQUESTS).0.lock().held.get(&irp).cloned()
}

fn iomanager(text: String) -> ! {
    violation(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, text)
}

fn not_held(host: &Host, irp: usize) -> ! {
    let again = host.state(&REQUESTS).0.lock().completed.contains(&irp);
    if again {
        violation(
            BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS,
            format!("IRP {irp:#x} was completed a second time"),
        );
    }
    iomanager(format!("{irp:#x} was completed, which is not an IRP that a driver was given"));
}

/// Returns what is wrong with completing the request in its present state.
fn objection(request: &IoRequest, memory: &RequestMemory) -> Option<String> {
    let irp = GuestIrp(memory.irp);
    let (status, information) = irp.status();
    if matches!(status, STATUS_PENDING | -1) {
        return Some(format!("a request was completed with the status {status:#x}, which is not final"));
    }
    if irp.cancel_routine().read() != 0 {
        return Some("a request was completed while its cancel routine was set".to_owned());
    }
    let copied = request.major == IRP_MJ_DEVICE_CONTROL && memory.is_buffered() && !is_error(status);
    (copied && information > memory.output_length()).then(|| {
        format!(
            "a request was completed with {information} bytes of output; its output buffer has {}",
            memory.output_length()
        )
    })
}

/// Completes a request: its output goes to the requestor, its memory is freed.
pub(super) fn complete(irp: Guest<IRP>) {
    let me = current();
    let host = me.host();
    let Some(request) = find(host, irp.address()) else { not_held(host, irp.address()) };
    if me.verifies() {
        let held = me.locks.borrow().len();
        if held != 0 {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("IoCompleteRequest was called with {held} spin lock(s) held; release them first"),
            );
        }
        let objection = request.state.lock().memory.as_ref().and_then(|memory| objection(&request, memory));
        if let Some(text) = objection {
            iomanager(text);
        }
    }
    let Some(mut memory) = request.state.lock().memory.take() else { not_held(host, irp.address()) };
    {
        let mut table = host.state(&REQUESTS).0.lock();
        table.held.remove(&irp.address());
        if table.completed.len() == REMEMBERED {
            table.completed.pop_front();
        }
        table.completed.push_back(irp.address());
    }
    let (status, information) = GuestIrp(memory.irp).status();
    let completion = Completion {
        status,
        information,
        output: if is_error(status) { Vec::new() } else { memory.output(information) },
        marked_pending: GuestIrp(memory.irp).is_marked_pending(),
    };
    if let Some(output) = memory.take_mdl() {
        mdl::MmUnlockPages(output);
        mdl::IoFreeMdl(output);
    }
    if let Err(misuse) = memory.free(host) {
        violation(misuse.code, misuse.text);
    }
    request.state.lock().completion = Some(completion);
    request.done.set();
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Completes a request. The IRP must not be used afterwards.
    [<= DISPATCH_LEVEL]
    fn IofCompleteRequest(irp: Guest<IRP>, boost: i8) {
        let _ = boost;
        complete(irp);
    }
}
