// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event tracing: registration of providers, and their events. A session of a provider is started by [`Host::start_trace`].

use ndk_abi::nt::{
    EVENT_DATA_DESCRIPTOR, EVENT_DESCRIPTOR, EVENT_INFO_CLASS, GUID, STATUS_INVALID_HANDLE, STATUS_NO_MEMORY,
    STATUS_SUCCESS,
};

use super::{
    trace_logging::{self, Content},
    trace_sessions::{Event, Provider, SESSIONS},
};
use crate::{
    guest::Guest,
    host::Host,
    imports,
    thread::current,
    verifier::{BugCheck, Rule, broken, rules},
};

const REGISTRATION: &str = "EtwRegister";

/// Most data descriptors of an event. (`evntprov.h`: `MAX_EVENT_DATA_DESCRIPTORS`)
const MOST_DATA: u32 = 128;

/// Types of data descriptors. (`evntprov.h`: `EVENT_DATA_DESCRIPTOR_TYPE_*`)
const DATA: u32 = 0;
const EVENT_METADATA: u32 = 1;
const PROVIDER_METADATA: u32 = 2;

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

/// Returns the status of a call for a provider: 0 is an invalid handle, any other one must be registered.
fn status(function: &str, handle: u64) -> i32 {
    if handle == 0 {
        return STATUS_INVALID_HANDLE;
    }
    if !current().host().objects.contains(REGISTRATION, usize::try_from(handle).unwrap_or(0)) {
        misuse(
            rules::TRACE,
            format!("{function} of handle {handle:#x}, which is not that of a registered provider"),
        );
    }
    STATUS_SUCCESS
}

fn register(provider: Provider, handle: Guest<u64>) -> i32 {
    let me = current();
    let host = me.host();
    if host.low_resources.fails() {
        return STATUS_NO_MEMORY;
    }
    let registration = host.new_handle();
    host.objects.add(REGISTRATION, registration);
    // A session may call the provider before it knows its handle.
    host.state(&SESSIONS).register(registration as u64, provider);
    handle.write(registration as u64);
    STATUS_SUCCESS
}

/// Checks an event, and gives it to the session that wants it.
fn write(handle: u64, event: Guest<EVENT_DESCRIPTOR>, activity: Guest<GUID>, count: u32, data: usize) -> i32 {
    let result = status("EtwWrite", handle);
    let me = current();
    let host = me.host();
    let Some(provider) = host.state(&SESSIONS).provider(handle) else { return result };
    if count > MOST_DATA {
        misuse(
            rules::TRACE,
            format!("an event with {count} data descriptors; at most {MOST_DATA} are allowed"),
        );
    }
    let descriptor = event.read();
    let parts: Vec<_> = (0..count as usize)
        .map(|index| {
            let part = Guest::<EVENT_DATA_DESCRIPTOR>::from_address(data).add(index).read();
            let mut bytes = vec![0; part.Size as usize];
            Guest::<u8>::from_address(part.Ptr as usize).read_bytes(&mut bytes);
            // The lowest byte; the others are reserved.
            (part.Reserved & 0xFF, bytes)
        })
        .collect();
    let content = if descriptor.Channel == trace_logging::CHANNEL {
        content(&provider, &parts).unwrap_or_else(|error| {
            misuse(rules::TRACE, format!("a malformed event of TraceLogging: {error}"))
        })
    } else {
        Content { name: descriptor.Id.to_string(), fields: Vec::new() }
    };
    if host.state(&SESSIONS).wants(provider.id, &descriptor) {
        host.state(&SESSIONS).record(Event {
            time: host.world().clock.now(),
            irql: me.irql(),
            provider: GUID::from_u128(provider.id),
            level: descriptor.Level,
            keyword: descriptor.Keyword,
            activity: (!activity.is_null()).then(|| activity.read()),
            content,
        });
    }
    result
}

/// Reads an event of TraceLogging: metadata of the provider, of the event, values.
fn content(provider: &Provider, parts: &[(u32, Vec<u8>)]) -> Result<Content, String> {
    let [(PROVIDER_METADATA, traits), (EVENT_METADATA, metadata), values @ ..] = parts else {
        return Err("the metadata of provider and event do not come first".to_owned());
    };
    if values.iter().any(|(kind, _)| *kind != DATA) {
        return Err("there is more metadata behind the values".to_owned());
    }
    trace_logging::provider(traits)?;
    if !provider.traits.is_empty() && provider.traits != *traits {
        return Err("the traits are not those of EtwSetInformation".to_owned());
    }
    Content::read(metadata, &values.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect::<Vec<_>>())
}

/// Sets the traits of a provider.
fn set_information(host: &Host, handle: u64, class: i32, information: usize, length: u32) -> i32 {
    let result = status("EtwSetInformation", handle);
    if result == STATUS_SUCCESS && class == EVENT_INFO_CLASS::EventProviderSetTraits.0 {
        let mut traits = vec![0; length as usize];
        Guest::<u8>::from_address(information).read_bytes(&mut traits);
        if let Err(error) = trace_logging::provider(&traits) {
            misuse(rules::TRACE, format!("EtwSetInformation of malformed traits: {error}"));
        }
        host.state(&SESSIONS).set_traits(handle, traits);
    }
    result
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Registers a provider.
    [<= PASSIVE_LEVEL]
    fn EtwRegister(provider: Guest<GUID>, callback: usize, context: usize, handle: Guest<u64>) -> i32 {
        let provider = Provider { id: provider.read().to_u128(), callback, context, traits: Vec::new() };
        register(provider, handle)
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
        let _ = (kind, callback);
        let provider = Provider { id: provider.read().to_u128(), callback: 0, context, traits: Vec::new() };
        register(provider, handle)
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
        let result = status("EtwUnregister", handle);
        let me = current();
        let _ = me.host().objects.remove(REGISTRATION, usize::try_from(handle).unwrap_or(0));
        me.host().state(&SESSIONS).unregister(handle);
        result
    }

    /// Sets information about a provider.
    [<= PASSIVE_LEVEL]
    fn EtwSetInformation(handle: u64, class: i32, information: usize, length: u32) -> i32 {
        set_information(current().host(), handle, class, information, length)
    }

    /// Returns whether a session has enabled an event.
    [any]
    fn EtwEventEnabled(handle: u64, event: Guest<EVENT_DESCRIPTOR>) -> u8 {
        let me = current();
        let sessions = me.host().state(&SESSIONS);
        sessions.provider(handle).is_some_and(|provider| sessions.wants(provider.id, &event.read())).into()
    }

    /// Returns whether a session has enabled a provider.
    [any]
    fn EtwProviderEnabled(handle: u64, level: u8, keyword: u64) -> u8 {
        let event =
            EVENT_DESCRIPTOR { Id: 0, Version: 0, Channel: 0, Level: level, Opcode: 0, Task: 0, Keyword: keyword };
        let me = current();
        let sessions = me.host().state(&SESSIONS);
        sessions.provider(handle).is_some_and(|provider| sessions.wants(provider.id, &event)).into()
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
        write(handle, event, activity, count, data)
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
        let _ = related;
        write(handle, event, activity, count, data)
    }
}
