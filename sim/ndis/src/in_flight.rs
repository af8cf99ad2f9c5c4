// SPDX-License-Identifier: MIT OR Apache-2.0

//! NET_BUFFER_LISTs in flight between the stack and the miniport.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use ndk_abi::ndis::NDIS_STATUS;
use nt_sim::{Event, Host, current, thread::ThreadId};
use parking_lot::Mutex;

use crate::{
    nbl::StackList,
    offload::{ReceivedFrame, SendRequest},
    rules::{self, require},
};

/// Maximum number of frames kept for [`Miniport::received`](crate::Miniport::received); older ones are dropped.
pub(crate) const MAX_RECEIVED: usize = 4096;

/// The lists in flight on one adapter, and the frames it received.
pub(crate) struct InFlight {
    pub state: Mutex<State>,
    /// Set when a send was completed.
    pub changed: Event,
    /// Set when frames were received.
    pub arrived: Event,
}

/// A send of one frame. [`Miniport::send_status`](crate::Miniport::send_status) returns its status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SendId(u64);

/// See [`ProtocolStack::on_received`](crate::ProtocolStack::on_received).
pub(crate) type ReceiveHandler = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// A list that has left the driver it comes from.
///
/// A place is a driver's in the stack of an adapter: 0 is the miniport's, those of the filter modules follow, from the lowest one, and the
/// last one is that of the protocol stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The place of the driver that holds it.
    pub place: usize,
    /// Its `SourceHandle`.
    pub source: usize,
    /// The driver keeps it until it gives it back; otherwise only while it is called. (`NDIS_RECEIVE_FLAGS_RESOURCES`)
    pub keeps: bool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Lists that the stack has sent, by address.
    pub sending: BTreeMap<usize, Sending>,
    /// Sent lists by address, those of filter modules included.
    pub below: BTreeMap<usize, Held>,
    /// Received lists by address, those of filter modules included.
    pub above: BTreeMap<usize, Held>,
    /// Number of sends so far whose status is kept.
    pub sends: u64,
    /// Status of completed sends, until it is read.
    pub statuses: BTreeMap<SendId, NDIS_STATUS>,
    /// Number of sends that were completed with the flag of `DISPATCH_LEVEL`.
    pub flagged_completions: u64,
    /// The adapter is being halted: no protocol driver is bound.
    pub closed: bool,
    /// Number of threads that use the adapter, which must not be halted meanwhile.
    pub bound: u32,
    /// Lists of the miniport that the stack holds.
    pub lent: BTreeSet<usize>,
    /// The stack keeps received lists until it is asked to return them.
    pub keeps_received: bool,
    /// The stack returns received lists during their indication.
    pub returns_at_once: bool,
    /// Number of calls of NdisMIndicateReceiveNetBufferLists in progress.
    pub indications: u32,
    /// Received lists that the stack keeps.
    pub kept: Vec<usize>,
    pub received: VecDeque<ReceivedFrame>,
    /// Called with each received frame, during its indication.
    pub on_received: Option<ReceiveHandler>,
    /// Lists that a receive DPC may still indicate, by its thread.
    pub allowances: BTreeMap<ThreadId, u32>,
}

pub(crate) struct Sending {
    pub list: StackList,
    /// Its number, if its status is kept.
    pub id: Option<SendId>,
    pub request: SendRequest,
}

impl State {
    /// Returns the number of a new send.
    pub fn next_send(&mut self) -> SendId {
        self.sends += 1;
        SendId(self.sends)
    }
}

impl InFlight {
    pub fn new(host: &Host) -> Self {
        Self { state: Mutex::default(), changed: host.event(), arrived: host.event() }
    }

    /// Runs a receive DPC that may indicate `limit` lists.
    pub fn throttled<T>(&self, limit: u32, dpc: impl FnOnce() -> T) -> T {
        let thread = current().id();
        self.state.lock().allowances.insert(thread, limit);
        let result = dpc();
        self.state.lock().allowances.remove(&thread);
        result
    }

    /// Deducts `count` lists from the allowance of the calling DPC; returns `false` when it is exhausted.
    pub fn allows(&self, count: u32) -> bool {
        match self.state.lock().allowances.get_mut(&current().id()) {
            Some(left) if *left < count => false,
            Some(left) => {
                *left -= count;
                true
            }
            None => true,
        }
    }

    /// Removes and returns the frames received so far.
    pub fn take_received(&self) -> Vec<ReceivedFrame> {
        std::mem::take(&mut self.state.lock().received).into()
    }

    /// Runs a call of NdisMIndicateReceiveNetBufferLists.
    pub fn indicating<T>(&self, indication: impl FnOnce() -> T) -> T {
        self.state.lock().indications += 1;
        let result = indication();
        self.state.lock().indications -= 1;
        result
    }

    /// Checks that a pause, which `what` completes, has waited for calls of NdisMIndicateReceiveNetBufferLists.
    pub fn require_no_indication(&self, what: &str) {
        let running = self.state.lock().indications;
        require(running == 0, rules::PAUSED, || {
            format!(
                "{what} completed a pause before {running} calls of NdisMIndicateReceiveNetBufferLists have returned"
            )
        });
    }

    /// Returns the numbers of sends that the miniport has not completed, and of received lists not returned to it.
    pub fn outstanding(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.below.values().filter(|held| held.place == 0).count(), state.lent.len())
    }

    /// Returns whether the stack waits for no send, and holds no received list. `place` is the stack's.
    pub fn is_stack_idle(&self, place: usize) -> bool {
        let state = self.state.lock();
        state.sending.is_empty() && !state.above.values().any(|held| held.place == place && held.keeps)
    }

    /// Returns the numbers of sent and of received lists that the driver at `place` holds, and of lists with the source `handle` that it
    /// has not got back.
    pub fn held_by(&self, place: usize, handle: usize) -> [usize; 3] {
        let state = self.state.lock();
        let count = |map: &BTreeMap<usize, Held>| map.values().filter(|held| held.place == place).count();
        let both = state.below.values().chain(state.above.values());
        [count(&state.below), count(&state.above), both.filter(|held| held.source == handle).count()]
    }
}
