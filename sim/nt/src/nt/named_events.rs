// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that drivers share by their names: each that opens the same name gets the same event, until the last handle is closed.
//!
//! Names are compared as they are, case included.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use ndk_abi::nt::{EVENT_TYPE, KEVENT, UNICODE_STRING};
use parking_lot::Mutex;

use super::{
    handles::{self, Object},
    header, runtime,
};
use crate::{guest::Guest, host::Host, imports, services::Slot, thread::current};

pub(super) static NAMED_EVENTS: Slot<NamedEvents> = Slot::new();

/// The events of a host that are open, by their names.
#[derive(Default)]
pub struct NamedEvents(Mutex<HashMap<Vec<u16>, Weak<NamedEvent>>>);

/// An event with the handles that are open, which own it.
struct NamedEvent {
    event: usize,
    kind: EVENT_TYPE,
    handles: Mutex<usize>,
}

impl NamedEvent {
    /// Counts another handle, unless the last one is closed: the event has ended then.
    fn open(&self) -> bool {
        let mut handles = self.handles.lock();
        if *handles > 0 {
            *handles += 1;
        }
        *handles > 0
    }
}

/// A handle of an event.
struct EventHandle(Arc<NamedEvent>);

impl Object for EventHandle {
    fn kind(&self) -> &'static str {
        match self.0.kind {
            EVENT_TYPE::SynchronizationEvent => "IoCreateSynchronizationEvent",
            _ => "IoCreateNotificationEvent",
        }
    }

    /// With the last handle the event ends: an access to it faults then.
    fn close(&self, host: &Host) {
        let mut handles = self.0.handles.lock();
        *handles -= 1;
        if *handles == 0 {
            host.memory.free(Guest::from_address(self.0.event), 1);
        }
    }
}

/// Opens or creates an event. A new one is signaled, and has no name if `name` is null. Null if there is an event of the other kind with the
/// name, or no memory.
fn open(name: Guest<UNICODE_STRING>, handle: Guest<usize>, kind: EVENT_TYPE) -> Guest<KEVENT> {
    let name = if name.is_null() { Vec::new() } else { runtime::unicode(name) };
    let me = current();
    let host = me.host();
    if host.low_resources.fails() {
        return Guest::null();
    }
    let opened = {
        let mut names = host.state(&NAMED_EVENTS).0.lock();
        let there = names.get(&name).and_then(Weak::upgrade);
        if there.as_ref().is_some_and(|there| there.kind != kind && *there.handles.lock() > 0) {
            return Guest::null();
        }
        if let Some(there) = there.filter(|there| there.kind == kind && there.open()) {
            there
        } else {
            let Some(page) = host.memory.allocate(1) else { return Guest::null() };
            let number = u8::try_from(kind.0).unwrap_or(0);
            header::initialize(page.address(), number, size_of::<KEVENT>(), true);
            let made = Arc::new(NamedEvent { event: page.address(), kind, handles: Mutex::new(1) });
            if !name.is_empty() {
                names.insert(name, Arc::downgrade(&made));
            }
            made
        }
    };
    let event = Guest::from_address(opened.event);
    handle.write(handles::open(host, Arc::new(EventHandle(opened))));
    event
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Opens or creates a notification event by its name.
    [== PASSIVE_LEVEL]
    fn IoCreateNotificationEvent(name: Guest<UNICODE_STRING>, handle: Guest<usize>) -> Guest<KEVENT> {
        open(name, handle, EVENT_TYPE::NotificationEvent)
    }

    /// Opens or creates a synchronization event by its name.
    [== PASSIVE_LEVEL]
    fn IoCreateSynchronizationEvent(name: Guest<UNICODE_STRING>, handle: Guest<usize>) -> Guest<KEVENT> {
        open(name, handle, EVENT_TYPE::SynchronizationEvent)
    }
}
