// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events with handles, which drivers share by their names: each that opens the same name gets the same event, until the last handle is closed
//! and the last reference is released.
//!
//! Names are compared as they are, case included.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use ndk_abi::nt::{
    EVENT_TYPE, KEVENT, OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
    STATUS_INVALID_PARAMETER_4, STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_EXISTS,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_SYNTAX_BAD, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS,
    UNICODE_STRING,
};
use parking_lot::Mutex;

use super::{
    dispatcher,
    handles::{self, Object},
    header, runtime,
};
use crate::{guest::Guest, host::Host, imports, services::Slot, thread::current};

pub(super) static NAMED_EVENTS: Slot<NamedEvents> = Slot::new();

/// Attribute of an object: an object with its name may exist, which is opened then.
const OBJ_OPENIF: u32 = 0x80;

/// The events of a host that are open, by their names and by their addresses.
#[derive(Default)]
pub struct NamedEvents {
    names: Mutex<HashMap<Vec<u16>, Weak<NamedEvent>>>,
    addresses: Mutex<HashMap<usize, Weak<NamedEvent>>>,
}

/// An event with the handles that are open and a reference of drivers, which own it.
struct NamedEvent {
    event: usize,
    kind: EVENT_TYPE,
    uses: Mutex<usize>,
}

impl NamedEvent {
    /// Counts another use, unless the last one has ended: the event has ended then.
    fn open(&self) -> bool {
        let mut uses = self.uses.lock();
        if *uses > 0 {
            *uses += 1;
        }
        *uses > 0
    }

    /// Ends a use. With the last one the event ends: an access to it faults then.
    fn close(&self, host: &Host) {
        let mut uses = self.uses.lock();
        *uses -= 1;
        if *uses == 0 {
            host.state(&NAMED_EVENTS).addresses.lock().remove(&self.event);
            host.memory.free(Guest::from_address(self.event), 1);
        }
    }
}

/// A handle of an event, of a function.
struct EventHandle(Arc<NamedEvent>, &'static str);

impl Object for EventHandle {
    fn kind(&self) -> &'static str {
        self.1
    }

    fn close(&self, host: &Host) {
        self.0.close(host);
    }
}

/// A way to open or create an event.
struct Opening {
    /// The function, for reports.
    function: &'static str,
    kind: EVENT_TYPE,
    /// The state of a new event.
    is_signaled: bool,
    /// An event with the name may exist.
    may_exist: bool,
}

impl Opening {
    /// Opens or creates an event. A new one has no name if `name` is empty. Writes the handle; returns the address of the event, and whether it
    /// is new.
    ///
    /// # Errors
    /// `STATUS_OBJECT_TYPE_MISMATCH` for the name of an event of the other kind, `STATUS_OBJECT_NAME_COLLISION`, or
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn open(&self, name: Vec<u16>, handle: Guest<usize>) -> Result<(usize, bool), i32> {
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        }
        let (opened, is_new) = {
            let mut names = host.state(&NAMED_EVENTS).names.lock();
            let there = names.get(&name).and_then(Weak::upgrade);
            if let Some(there) = there.filter(|there| *there.uses.lock() > 0) {
                if !self.may_exist {
                    return Err(STATUS_OBJECT_NAME_COLLISION);
                }
                if there.kind != self.kind {
                    return Err(STATUS_OBJECT_TYPE_MISMATCH);
                }
                there.open().then_some((there, false)).ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?
            } else {
                let page = host.memory.allocate(1).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
                let number = u8::try_from(self.kind.0).unwrap_or(0);
                header::initialize(page.address(), number, size_of::<KEVENT>(), self.is_signaled);
                let made =
                    Arc::new(NamedEvent { event: page.address(), kind: self.kind, uses: Mutex::new(1) });
                if !name.is_empty() {
                    names.insert(name, Arc::downgrade(&made));
                }
                host.state(&NAMED_EVENTS).addresses.lock().insert(made.event, Arc::downgrade(&made));
                (made, true)
            }
        };
        let event = opened.event;
        handle.write(handles::open(host, Arc::new(EventHandle(opened, self.function))));
        Ok((event, is_new))
    }

    /// Opens or creates an event as the I/O manager does: null if that fails.
    fn open_by_name(&self, name: Guest<UNICODE_STRING>, handle: Guest<usize>) -> Guest<KEVENT> {
        let name = if name.is_null() { Vec::new() } else { runtime::unicode(name) };
        self.open(name, handle).map_or(Guest::null(), |(event, _)| Guest::from_address(event))
    }
}

/// Returns the name and the flags of object attributes; names below an open directory are not simulated.
fn named(attributes: Guest<OBJECT_ATTRIBUTES>) -> Result<(Vec<u16>, u32), i32> {
    if attributes.is_null() {
        return Ok((Vec::new(), 0));
    }
    let given = attributes.read();
    if given.Length as usize != size_of::<OBJECT_ATTRIBUTES>() || !given.RootDirectory.is_null() {
        return Err(STATUS_INVALID_PARAMETER);
    }
    if given.ObjectName.is_null() {
        return Ok((Vec::new(), given.Attributes));
    }
    let name = runtime::unicode(Guest::new(given.ObjectName));
    if name.first() != Some(&u16::from(b'\\')) {
        return Err(STATUS_OBJECT_PATH_SYNTAX_BAD);
    }
    Ok((name, given.Attributes))
}

/// Returns the address of the event of a handle.
///
/// # Errors
/// The status of [`handles::find`].
pub(super) fn of_handle(host: &Host, handle: usize) -> Result<usize, i32> {
    handles::find::<EventHandle>(host, handle).map(|found| found.0.event)
}

fn at(host: &Host, address: usize) -> Option<Arc<NamedEvent>> {
    host.state(&NAMED_EVENTS).addresses.lock().get(&address).and_then(Weak::upgrade)
}

/// Keeps an event while drivers have references to it. Does nothing for other objects.
pub(super) fn keep(host: &Host, address: usize) {
    if let Some(event) = at(host, address) {
        let _ = event.open();
    }
}

/// Ends what [`keep`] has begun.
pub(super) fn release(host: &Host, address: usize) {
    if let Some(event) = at(host, address) {
        event.close(host);
    }
}

fn create(
    handle: Guest<usize>,
    attributes: Guest<OBJECT_ATTRIBUTES>,
    kind: EVENT_TYPE,
    is_signaled: bool,
) -> Result<i32, i32> {
    if ![EVENT_TYPE::NotificationEvent, EVENT_TYPE::SynchronizationEvent].contains(&kind) {
        return Err(STATUS_INVALID_PARAMETER_4);
    }
    let (name, flags) = named(attributes)?;
    let may_exist = flags & OBJ_OPENIF != 0;
    let opening = Opening { function: "ZwCreateEvent", kind, is_signaled, may_exist };
    let (_, is_new) = opening.open(name, handle)?;
    Ok(if is_new { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_EXISTS })
}

fn open_existing(handle: Guest<usize>, attributes: Guest<OBJECT_ATTRIBUTES>) -> Result<(), i32> {
    let me = current();
    let host = me.host();
    let (name, _) = named(attributes)?;
    let there = host.state(&NAMED_EVENTS).names.lock().get(&name).and_then(Weak::upgrade);
    let there = there.filter(|there| there.open()).ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?;
    handle.write(handles::open(host, Arc::new(EventHandle(there, "ZwOpenEvent"))));
    Ok(())
}

const NOTIFICATION: Opening = Opening {
    function: "IoCreateNotificationEvent",
    kind: EVENT_TYPE::NotificationEvent,
    is_signaled: true,
    may_exist: true,
};

const SYNCHRONIZATION: Opening = Opening {
    function: "IoCreateSynchronizationEvent",
    kind: EVENT_TYPE::SynchronizationEvent,
    is_signaled: true,
    may_exist: true,
};

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Opens or creates a notification event by its name.
    [== PASSIVE_LEVEL]
    fn IoCreateNotificationEvent(name: Guest<UNICODE_STRING>, handle: Guest<usize>) -> Guest<KEVENT> {
        NOTIFICATION.open_by_name(name, handle)
    }

    /// Opens or creates a synchronization event by its name.
    [== PASSIVE_LEVEL]
    fn IoCreateSynchronizationEvent(name: Guest<UNICODE_STRING>, handle: Guest<usize>) -> Guest<KEVENT> {
        SYNCHRONIZATION.open_by_name(name, handle)
    }

    /// Creates an event, or opens the one with its name if the attributes allow that.
    [== PASSIVE_LEVEL]
    fn ZwCreateEvent(
        handle: Guest<usize>,
        access: u32,
        attributes: Guest<OBJECT_ATTRIBUTES>,
        kind: EVENT_TYPE,
        state: u8,
    ) -> i32 {
        let _ = access;
        create(handle, attributes, kind, state != 0).unwrap_or_else(|status| status)
    }

    /// Opens an event by its name.
    [== PASSIVE_LEVEL]
    fn ZwOpenEvent(handle: Guest<usize>, access: u32, attributes: Guest<OBJECT_ATTRIBUTES>) -> i32 {
        let _ = access;
        open_existing(handle, attributes).err().unwrap_or(STATUS_SUCCESS)
    }

    /// Signals the event of a handle.
    [== PASSIVE_LEVEL]
    fn ZwSetEvent(handle: usize, previous: Guest<i32>) -> i32 {
        let me = current();
        match of_handle(me.host(), handle) {
            Ok(event) => {
                let state = dispatcher::set(&me, event);
                if !previous.is_null() {
                    previous.write(state);
                }
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }
}
