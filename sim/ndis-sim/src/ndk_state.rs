//! What is open on an adapter, and the NDK events its miniport reported.

use nt_sim::{Event, Host};
use parking_lot::Mutex;

/// A change of state that the miniport reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdkEvent {
    /// NDK adapters can be opened.
    Enable,
    /// Every NDK adapter has to be closed.
    Disable,
}

/// What is open on one adapter.
pub(crate) struct NdkState {
    pub open: Mutex<Vec<usize>>,
    pub events: Mutex<Vec<NdkEvent>>,
    /// Nothing is open.
    pub idle: Event,
    /// An event was reported.
    pub reported: Event,
    pub in_event: Mutex<bool>,
}

impl NdkState {
    pub fn new(host: &Host) -> Self {
        let idle = host.event();
        idle.set();
        Self {
            open: Mutex::default(),
            events: Mutex::default(),
            idle,
            reported: host.event(),
            in_event: Mutex::new(false),
        }
    }

    pub fn events(&self) -> Vec<NdkEvent> {
        self.events.lock().clone()
    }

    pub fn open_count(&self) -> usize {
        self.open.lock().len()
    }
}
