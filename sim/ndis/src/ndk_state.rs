// SPDX-License-Identifier: MIT OR Apache-2.0

//! The open NDK adapters of a miniport adapter, and the NDK events its miniport reported.

use std::sync::atomic::AtomicBool;

use nt_sim::{Event, Host, services::Slot};
use parking_lot::Mutex;

use crate::wait::{wait, wait_until};

/// Whether consumers close their NDK adapters before a halt.
pub(crate) static CLOSED_BEFORE_HALT: Slot<AtomicBool> = Slot::new();

/// A change of state that the miniport reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdkEvent {
    /// NDK adapters can be opened.
    Enable,
    /// Every NDK adapter must be closed.
    Disable,
}

/// The NDK adapters that are open, or being opened.
#[derive(Default)]
struct Opens {
    /// Addresses of the NDK adapters.
    open: Vec<usize>,
    /// Calls of OpenNDKAdapterHandler that have not returned.
    calls: usize,
    /// The adapter is being halted.
    refused: bool,
}

/// The open NDK adapters of one adapter.
pub(crate) struct NdkState {
    opens: Mutex<Opens>,
    pub events: Mutex<Vec<NdkEvent>>,
    /// Set while no NDK adapter is open, nor being opened.
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
            opens: Mutex::default(),
            events: Mutex::default(),
            idle,
            reported: host.event(),
            in_event: Mutex::new(false),
        }
    }

    pub fn events(&self) -> Vec<NdkEvent> {
        self.events.lock().clone()
    }

    /// Begins an open; [`NdkState::end_open`] ends it. Returns `false` if the adapter is being halted.
    pub fn begin_open(&self) -> bool {
        let mut opens = self.opens.lock();
        if opens.refused {
            return false;
        }
        opens.calls += 1;
        self.idle.reset();
        true
    }

    /// Ends an open, which has returned this NDK adapter unless it failed.
    pub fn end_open(&self, opened: Option<usize>) {
        let mut opens = self.opens.lock();
        opens.calls -= 1;
        opens.open.extend(opened);
        self.set_if_idle(&opens);
    }

    /// The NDK adapter at `address` is closed.
    pub fn closed(&self, address: usize) {
        let mut opens = self.opens.lock();
        opens.open.retain(|&other| other != address);
        self.set_if_idle(&opens);
    }

    fn set_if_idle(&self, opens: &Opens) {
        if opens.open.is_empty() && opens.calls == 0 {
            self.idle.set();
        }
    }

    /// Before the adapter is halted: refuses opens from now on, and waits for those in progress. A miniport has no other way to
    /// know that NDIS has not just called its handler with a context that the halt frees.
    pub fn refuse_opens(&self) {
        self.opens.lock().refused = true;
        wait_until(|| self.opens.lock().calls == 0);
    }

    /// Asks the consumers to close their NDK adapters, and waits for them.
    pub fn await_closed(&self) {
        self.report(NdkEvent::Disable);
        wait(&self.idle);
    }

    /// Reports an event to the consumers.
    pub fn report(&self, event: NdkEvent) {
        self.events.lock().push(event);
        self.reported.set();
    }

    /// Returns the addresses of the open NDK adapters.
    pub fn open(&self) -> Vec<usize> {
        self.opens.lock().open.clone()
    }

    pub fn open_count(&self) -> usize {
        self.opens.lock().open.len()
    }
}
