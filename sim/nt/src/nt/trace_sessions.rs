// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions of event tracing, and the events that providers have written to them.

use std::{collections::HashMap, ffi::c_void};

use ndk_abi::nt::{ETWENABLECALLBACK, EVENT_DESCRIPTOR, GUID};
use parking_lot::Mutex;

use super::trace_logging::Content;
use crate::{host::Host, image, irql::Irql, services::Slot};

pub(super) static SESSIONS: Slot<Sessions> = Slot::new();

/// Codes that a callback gets. (`evntrace.h`: `EVENT_CONTROL_CODE_*`)
const DISABLE: u32 = 0;
const ENABLE: u32 = 1;

/// A session wants events of one provider.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// The highest level; 0 for all.
    pub level: u8,
    /// An event has one of these keywords; 0 for any.
    pub any: u64,
    /// And all of these.
    pub all: u64,
}

impl Session {
    /// All events of a provider.
    pub const ALL: Self = Self { level: 0, any: u64::MAX, all: 0 };

    fn wants(&self, event: &EVENT_DESCRIPTOR) -> bool {
        (self.level == 0 || event.Level <= self.level)
            && (event.Keyword == 0
                || (self.any == 0 || event.Keyword & self.any != 0) && event.Keyword & self.all == self.all)
    }
}

/// An event that a session has got.
#[derive(Clone, Debug)]
pub struct Event {
    /// Nanoseconds since boot.
    pub time: u64,
    pub irql: Irql,
    pub provider: GUID,
    pub level: u8,
    pub keyword: u64,
    pub activity: Option<GUID>,
    /// Of other events than those of TraceLogging: the identifier as name, and no fields.
    pub content: Content,
}

/// A registered provider.
#[derive(Clone)]
pub(super) struct Provider {
    pub id: u128,
    pub callback: usize,
    pub context: usize,
    /// Set by `EtwSetInformation`.
    pub traits: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Sessions(Mutex<State>);

#[derive(Default)]
struct State {
    /// By handle.
    providers: HashMap<u64, Provider>,
    /// By provider.
    sessions: HashMap<u128, Session>,
    events: Vec<Event>,
}

impl Sessions {
    /// Adds a provider, and enables it if a session wants its events.
    pub(super) fn register(&self, handle: u64, provider: Provider) {
        let session = self.0.lock().sessions.get(&provider.id).copied();
        if session.is_none() {
            self.0.lock().providers.insert(handle, provider);
            return;
        }
        self.0.lock().providers.insert(handle, provider.clone());
        notify(&provider, session);
    }

    /// Removes a provider. Returns whether it was there.
    pub(super) fn unregister(&self, handle: u64) -> bool {
        self.0.lock().providers.remove(&handle).is_some()
    }

    pub(super) fn provider(&self, handle: u64) -> Option<Provider> {
        self.0.lock().providers.get(&handle).cloned()
    }

    pub(super) fn set_traits(&self, handle: u64, traits: Vec<u8>) {
        if let Some(provider) = self.0.lock().providers.get_mut(&handle) {
            provider.traits = traits;
        }
    }

    /// Returns whether a session wants an event of a provider.
    pub(super) fn wants(&self, id: u128, event: &EVENT_DESCRIPTOR) -> bool {
        self.0.lock().sessions.get(&id).is_some_and(|session| session.wants(event))
    }

    /// Gives an event to the session.
    pub(super) fn record(&self, event: Event) {
        self.0.lock().events.push(event);
    }
}

/// Calls the callback of a provider, if it has one. `PASSIVE_LEVEL`.
fn notify(provider: &Provider, session: Option<Session>) {
    if provider.callback == 0 {
        return;
    }
    // SAFETY: what a driver registers as its callback.
    let callback = unsafe { image::function::<ETWENABLECALLBACK>("an ETW callback", provider.callback) };
    let source = GUID::from_u128(0);
    let (code, Session { level, any, all }) = match session {
        Some(session) => (ENABLE, session),
        None => (DISABLE, Session { level: 0, any: 0, all: 0 }),
    };
    let context: *mut c_void = std::ptr::with_exposed_provenance_mut(provider.context);
    let filter = std::ptr::null_mut();
    image::call("an ETW callback", || {
        // SAFETY: a callback of this type, with pointers that are valid for the call or null.
        unsafe { callback(&raw const source, code, level, any, all, filter, context) }
    });
}

impl Host {
    /// Starts a session that wants events of a provider, or changes the one there is. On a thread of this host if the provider is registered.
    pub fn start_trace(&self, provider: GUID, session: Session) {
        self.state(&SESSIONS).0.lock().sessions.insert(provider.to_u128(), session);
        self.notify_providers(provider, Some(session));
    }

    /// Ends the session of a provider. On a thread of this host if the provider is registered.
    pub fn stop_trace(&self, provider: GUID) {
        self.state(&SESSIONS).0.lock().sessions.remove(&provider.to_u128());
        self.notify_providers(provider, None);
    }

    fn notify_providers(&self, id: GUID, session: Option<Session>) {
        let providers: Vec<_> = self.state(&SESSIONS).0.lock().providers.values().cloned().collect();
        for provider in providers.iter().filter(|provider| provider.id == id.to_u128()) {
            notify(provider, session);
        }
    }

    /// Returns the events that sessions have got, oldest first.
    #[must_use]
    pub fn trace(&self) -> Vec<Event> {
        self.state(&SESSIONS).0.lock().events.clone()
    }
}
