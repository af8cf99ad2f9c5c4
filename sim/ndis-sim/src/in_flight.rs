//! NET_BUFFER_LISTs in flight between the stack and the miniport.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ndk_abi::ndis::NDIS_STATUS;
use nt_sim::{Event, Host, current, thread::ThreadId};
use parking_lot::Mutex;

use crate::nbl::StackList;

/// Most frames kept for [`Miniport::received`](crate::Miniport::received); older ones are dropped.
pub(crate) const MAX_RECEIVED: usize = 4096;

/// The lists in flight on one adapter, and the frames it received.
pub(crate) struct InFlight {
    pub state: Mutex<State>,
    /// Something was completed, received or returned.
    pub changed: Event,
}

#[derive(Default)]
pub(crate) struct State {
    /// Lists the miniport holds, by address.
    pub sending: BTreeMap<usize, Sending>,
    /// How lists that somebody waits for were completed.
    pub statuses: BTreeMap<usize, NDIS_STATUS>,
    /// Threads of the IP stack that are about something with the adapter.
    pub bound: u32,
    /// Lists of the miniport that the stack holds.
    pub lent: BTreeSet<usize>,
    pub received: VecDeque<Vec<u8>>,
    /// Lists that a receive DPC may still indicate, by its thread.
    pub allowances: BTreeMap<ThreadId, u32>,
}

pub(crate) struct Sending {
    pub list: StackList,
    /// Somebody waits for its status.
    pub attended: bool,
}

impl InFlight {
    pub fn new(host: &Host) -> Self {
        Self { state: Mutex::default(), changed: host.event() }
    }

    /// Runs a receive DPC that may indicate `limit` lists.
    pub fn throttled<T>(&self, limit: u32, dpc: impl FnOnce() -> T) -> T {
        let thread = current().id();
        self.state.lock().allowances.insert(thread, limit);
        let result = dpc();
        self.state.lock().allowances.remove(&thread);
        result
    }

    /// Takes `count` lists from the allowance of the DPC that indicates them; `false` when it is exhausted.
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

    /// Frames received so far; they are taken out.
    pub fn take_received(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state.lock().received).into()
    }

    /// Lists that the miniport has not completed, and lists that it lent and has not got back.
    pub fn outstanding(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.sending.len(), state.lent.len())
    }
}
