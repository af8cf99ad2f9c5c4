// SPDX-License-Identifier: MIT OR Apache-2.0

//! The trace to ETW: the registration of the provider, and the writes. The events are those of [`table`].
//!
//! While no session wants an event, a write is one test and a branch. Events that a session has no room for are counted by ETW.
#![allow(unsafe_code, reason = "calls ETW")]

pub use viordma_inf::tracing::table;

use core::ffi::c_void;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

use ndk_abi::nt::{
    EVENT_DATA_DESCRIPTOR, EVENT_DESCRIPTOR, EVENT_FILTER_DESCRIPTOR, EVENT_INFO_CLASS, EtwRegister,
    EtwSetInformation, EtwUnregister, EtwWriteTransfer, GUID, NT_SUCCESS, NTSTATUS, STATUS_SUCCESS,
};
use viordma_inf::tracing::value::Payload;
use viordma_inf::tracing::{self, Event, Row, keywords};

static PROVIDER: GUID = GUID::from_u128(tracing::GUID);
static TRAITS: [u8; tracing::TRAITS.len()] = tracing::TRAITS;

/// The handle from `EtwRegister`; 0 if there is none.
static REGISTRATION: AtomicU64 = AtomicU64::new(0);
/// Why the provider is not registered.
static FAILURE: AtomicI32 = AtomicI32::new(STATUS_SUCCESS);
/// Keywords that a session wants; 0 without a session.
static SELECTED: AtomicU64 = AtomicU64::new(0);
/// Highest level that a session wants.
static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Part of the activities' GUIDs: the time of the registration.
static SALT: AtomicU64 = AtomicU64::new(0);

/// Types of data descriptors. (`evntprov.h`: `EVENT_DATA_DESCRIPTOR_TYPE_*`)
const DATA: u32 = 0;
const EVENT_METADATA: u32 = 1;
const PROVIDER_METADATA: u32 = 2;

/// Control codes of [`changed`]. (`evntrace.h`: `EVENT_CONTROL_CODE_*`)
const DISABLE: u32 = 0;
const ENABLE: u32 = 1;

/// The activity of a connection: an adapter's interface and a queue pair.
#[derive(Clone, Copy)]
pub struct Activity {
    pub interface: u32,
    pub queue_pair: u32,
}

impl Activity {
    fn guid(self) -> GUID {
        let [a, b, c, d, ..] = self.interface.to_be_bytes();
        GUID {
            Data1: self.queue_pair,
            Data2: u16::from_be_bytes([c, d]),
            // Version 8 of RFC 9562: the rest is the driver's own.
            Data3: 0x8000 | u16::from_be_bytes([a & 0xF, b]),
            Data4: ((SALT.load(Ordering::Relaxed) & (u64::MAX >> 2)) | 1 << 63).to_be_bytes(),
        }
    }
}

/// Registers the provider. Without it, the driver works, and [`failure`] says why there is none. `PASSIVE_LEVEL`, by `DriverEntry`.
pub fn register() {
    SALT.store(nt::time::now(), Ordering::Relaxed);
    let mut handle = 0;
    // SAFETY: the GUID is static, the callback takes no context, and the handle is a variable of this function.
    let status = unsafe { EtwRegister(&raw const PROVIDER, Some(changed), null_mut(), &raw mut handle) };
    FAILURE.store(status, Ordering::Relaxed);
    if !NT_SUCCESS(status) {
        return;
    }
    // Has the name of the provider known without an event. An older system refuses it, and events have the name anyway.
    let traits = (&raw const TRAITS).cast::<c_void>().cast_mut();
    let class = EVENT_INFO_CLASS::EventProviderSetTraits;
    // SAFETY: the handle is registered; the traits are static, as long as stated, and only read.
    let _ = unsafe { EtwSetInformation(handle, class, traits, TRAITS.len() as u32) };
    REGISTRATION.store(handle, Ordering::Release);
}

/// Unregisters the provider. No adapter is left. `PASSIVE_LEVEL`, before the driver is unloaded.
pub fn unregister() {
    let handle = REGISTRATION.swap(0, Ordering::AcqRel);
    if handle != 0 {
        // SAFETY: the handle of the one registration, given back once.
        let _ = unsafe { EtwUnregister(handle) };
    }
    SELECTED.store(0, Ordering::Relaxed);
}

/// Returns the status of a registration that failed.
pub fn failure() -> Option<NTSTATUS> {
    Some(FAILURE.load(Ordering::Relaxed)).filter(|&status| !NT_SUCCESS(status))
}

/// Returns whether a session wants events of a keyword. Any IRQL.
#[inline]
pub fn wants(keyword: u64) -> bool {
    SELECTED.load(Ordering::Relaxed) & keyword != 0
}

/// Writes the event that `make` returns, if a session wants it. Any IRQL up to `DISPATCH_LEVEL`, any lock held.
#[inline]
pub fn write<E: Event>(activity: Option<Activity>, make: impl FnOnce() -> E) {
    if wants(const { E::ROW.keyword }) {
        write_wanted(activity, &make());
    }
}

#[cold]
#[inline(never)]
fn write_wanted<E: Event>(activity: Option<Activity>, event: &E) {
    let row = const { &E::ROW };
    if row.level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let mut payload = Payload::new();
    event.put(&mut payload);
    emit(row, payload.bytes(), activity);
}

fn emit(row: &'static Row, payload: &[u8], activity: Option<Activity>) {
    let handle = REGISTRATION.load(Ordering::Acquire);
    if handle == 0 {
        return;
    }
    let descriptor = EVENT_DESCRIPTOR {
        Id: 0,
        Version: 0,
        Channel: tracing::CHANNEL,
        Level: row.level as u8,
        Opcode: 0,
        Task: 0,
        Keyword: row.keyword,
    };
    let mut data = [
        describe(&TRAITS, PROVIDER_METADATA),
        describe(row.metadata, EVENT_METADATA),
        describe(payload, DATA),
    ];
    let activity = activity.map(Activity::guid);
    let activity = activity.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: the provider is registered, because no adapter is left when it is unregistered; descriptor, activity and data are valid for the
    // call, in nonpaged memory, and as many as stated.
    let _ = unsafe {
        EtwWriteTransfer(
            handle,
            &raw const descriptor,
            activity,
            null(),
            data.len() as u32,
            data.as_mut_ptr(),
        )
    };
}

fn describe(bytes: &[u8], kind: u32) -> EVENT_DATA_DESCRIPTOR {
    EVENT_DATA_DESCRIPTOR { Ptr: bytes.as_ptr() as u64, Size: bytes.len() as u32, Reserved: kind }
}

/// Called when sessions begin or end to want events, also within `EtwRegister`. `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn changed(
    _source: *const GUID,
    control: u32,
    level: u8,
    any: u64,
    _all: u64,
    _filter: *mut EVENT_FILTER_DESCRIPTOR,
    _context: *mut c_void,
) {
    match control {
        ENABLE => {
            // 0 stands for all levels.
            LEVEL.store(if level == 0 { u8::MAX } else { level }, Ordering::Relaxed);
            SELECTED.store(keywords::selected(any), Ordering::Relaxed);
        }
        DISABLE => SELECTED.store(0, Ordering::Relaxed),
        _ => {}
    }
}
