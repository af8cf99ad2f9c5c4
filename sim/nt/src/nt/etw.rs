// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event tracing: no session is active; registrations must be balanced.

use ndk_abi::nt::{EVENT_DESCRIPTOR, GUID, STATUS_INVALID_HANDLE, STATUS_NO_MEMORY, STATUS_SUCCESS};

use crate::{guest::Guest, imports, thread::current};

const REGISTRATION: &str = "EtwRegister";

fn known(handle: u64) -> bool {
    current().host().objects.contains(REGISTRATION, usize::try_from(handle).unwrap_or(0))
}

fn status(handle: u64) -> i32 {
    if known(handle) { STATUS_SUCCESS } else { STATUS_INVALID_HANDLE }
}

fn register(handle: Guest<u64>) -> i32 {
    let me = current();
    let host = me.host();
    if host.low_resources.fails() {
        return STATUS_NO_MEMORY;
    }
    let registration = host.new_handle();
    host.objects.add(REGISTRATION, registration);
    handle.write(registration as u64);
    STATUS_SUCCESS
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Registers a provider.
    [<= PASSIVE_LEVEL]
    fn EtwRegister(provider: Guest<GUID>, callback: usize, context: usize, handle: Guest<u64>) -> i32 {
        let _ = (provider, callback, context);
        register(handle)
    }

    /// Registers a provider of the older kind, as drivers with WPP traces do.
    [<= PASSIVE_LEVEL]
    fn EtwRegisterClassicProvider(
        provider: Guest<GUID>,
        kind: u32,
        callback: usize,
        context: usize,
        handle: Guest<u64>,
    ) -> i32 {
        let _ = (provider, kind, callback, context);
        register(handle)
    }

    /// Writes a message of a WPP trace to a session; its arguments follow the ones listed. There is no session.
    [any]
    fn WmiTraceMessage(session: u64, flags: u32, message: Guest<GUID>, number: u16) -> i32 {
        let _ = (session, flags, message, number);
        STATUS_INVALID_HANDLE
    }

    /// Returns information about a session. There is none.
    [any]
    fn WmiQueryTraceInformation(
        class: i32,
        information: usize,
        length: u32,
        required: Guest<u32>,
        buffer: usize,
    ) -> i32 {
        let _ = (class, information, length, required, buffer);
        STATUS_INVALID_HANDLE
    }

    /// Unregisters a provider.
    [<= PASSIVE_LEVEL]
    fn EtwUnregister(handle: u64) -> i32 {
        let removed = current().host().objects.remove(REGISTRATION, usize::try_from(handle).unwrap_or(0));
        if removed { STATUS_SUCCESS } else { STATUS_INVALID_HANDLE }
    }

    /// Sets information about a provider.
    [<= PASSIVE_LEVEL]
    fn EtwSetInformation(handle: u64, class: i32, information: usize, length: u32) -> i32 {
        let _ = (class, information, length);
        status(handle)
    }

    /// Returns whether a session has enabled an event: none has.
    [any]
    fn EtwEventEnabled(handle: u64, event: Guest<EVENT_DESCRIPTOR>) -> u8 {
        let _ = (handle, event);
        0
    }

    /// Returns whether a session has enabled a provider: none has.
    [any]
    fn EtwProviderEnabled(handle: u64, level: u8, keyword: u64) -> u8 {
        let _ = (handle, level, keyword);
        0
    }

    /// Writes an event.
    [any]
    fn EtwWrite(
        handle: u64,
        event: Guest<EVENT_DESCRIPTOR>,
        activity: Guest<GUID>,
        count: u32,
        data: usize,
    ) -> i32 {
        let _ = (event, activity, count, data);
        status(handle)
    }

    /// Writes an event that is related to another.
    [any]
    fn EtwWriteTransfer(
        handle: u64,
        event: Guest<EVENT_DESCRIPTOR>,
        activity: Guest<GUID>,
        related: Guest<GUID>,
        count: u32,
        data: usize,
    ) -> i32 {
        let _ = (event, activity, related, count, data);
        status(handle)
    }
}
