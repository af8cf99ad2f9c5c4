// SPDX-License-Identifier: MIT OR Apache-2.0

//! The open NDK adapters of a miniport adapter, and the NDK events its miniport reported.

use nt_sim::{Event, Host};
use parking_lot::Mutex;

/// A change of state that the miniport reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdkEvent {
    /// NDK adapters can be opened.
    Enable,
    /// Every NDK adapter must be closed.
    Disable,
}

/// The open NDK adapters of one adapter.
pub(crate) struct NdkState {
    pub open: Mutex<Vec<usize>>,
    pub events: Mutex<Vec<NdkEvent>>,
    /// Set while no NDK adapter is open.
    pub idle: Event,
    /// Set when an event was reported.
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
