// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system event log. [`table`] defines the events; this module maps failures to them and writes them.
#![allow(unsafe_code, reason = "writes to the event log through NDIS")]

mod limits;

pub use viordma_inf::events as table;

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_STATUS, NDIS_STATUS_ADAPTER_NOT_FOUND, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_DEVICE_FAILED, NDIS_STATUS_RESOURCES, NdisWriteErrorLogEntry,
};
use virtio_net::{Error, Structure};
#[cfg(feature = "strict")]
use {
    ndk_provider::{Mistake, MistakeReport},
    nt::Owner,
};

use self::limits::Limits;
use self::table::Event;
use crate::debug;
use crate::etw;
use crate::trace::interface_of;

/// Why an adapter did not start.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// Pool or another resource is exhausted.
    NoResources,
    /// The registry key could not be opened.
    Configuration(NDIS_STATUS),
    /// NDIS refused a request; see [`Request`].
    Ndis(Request, NDIS_STATUS),
    /// The device failed.
    Device(Error),
}

/// The requests to NDIS that can fail while an adapter starts, numbered for the event's data.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    RegistrationAttributes = 1,
    GeneralAttributes = 2,
    NdkAttributes = 3,
    RegisterDma = 4,
    MapRegisters = 5,
    RegisterInterrupt = 6,
    ReceivePool = 7,
    OffloadAttributes = 8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NoMemory => Self::NoResources,
            error => Self::Device(error),
        }
    }
}

impl Failure {
    /// Returns the status for `MiniportInitializeEx`.
    pub fn status(self) -> NDIS_STATUS {
        match self {
            Self::NoResources => NDIS_STATUS_RESOURCES,
            Self::Configuration(status) | Self::Ndis(_, status) => status,
            Self::Device(Error::Removed) => NDIS_STATUS_ADAPTER_REMOVED,
            Self::Device(
                Error::NoCapabilities
                | Error::BrokenCapabilityList
                | Error::MissingStructure(_)
                | Error::NoVersion1
                | Error::BypassesIommu,
            ) => NDIS_STATUS_ADAPTER_NOT_FOUND,
            Self::Device(_) => NDIS_STATUS_DEVICE_FAILED,
        }
    }

    /// Returns the event that reports the failure, and its data.
    fn event(self) -> (Event, [u32; 2]) {
        match self {
            Self::NoResources => (table::NO_RESOURCES, [0, 0]),
            Self::Configuration(status) => (table::CONFIGURATION, [0, status.cast_unsigned()]),
            Self::Ndis(request, status) => (table::NDIS_REFUSED, [request as u32, status.cast_unsigned()]),
            Self::Device(error) => device_event(error),
        }
    }
}

/// Returns the event that reports a device's error, and its data.
fn device_event(error: Error) -> (Event, [u32; 2]) {
    match error {
        Error::Removed => (table::REMOVED, [0, 0]),
        Error::NoCapabilities => (table::NO_CAPABILITIES, [0, 0]),
        Error::BrokenCapabilityList => (table::BROKEN_CAPABILITIES, [0, 0]),
        Error::MissingStructure(which) => (table::MISSING_STRUCTURE, [cfg_type(which), 0]),
        Error::ResetTimeout => (table::RESET_LATE, [0, 0]),
        Error::NoVersion1 => (table::NO_VERSION_1, [0, 0]),
        Error::BypassesIommu => (table::BYPASSES_IOMMU, [0, 0]),
        Error::FeaturesRejected => (table::FEATURES_REJECTED, [0, 0]),
        Error::NoQueue(index) => (table::NO_QUEUE, [u32::from(index), 0]),
        Error::BadQueueSize(size) => (table::BAD_QUEUE_SIZE, [u32::from(size), 0]),
        Error::VectorRefused => (table::VECTOR_REFUSED, [0, 0]),
        Error::NotifyOutOfRange(index) => (table::NOTIFY_OUT_OF_RANGE, [u32::from(index), 0]),
        Error::NoMemory => (table::NO_RESOURCES, [0, 0]),
        Error::BrokenRing(fault) => (table::BROKEN_RING, [fault as u32, 0]),
        Error::NeedsReset => (table::NEEDS_RESET, [0, 0]),
        Error::Changed => (table::CHANGED, [0, 0]),
        Error::UnsteadyConfig => (table::UNSTEADY_CONFIG, [0, 0]),
        Error::CommandRefused => (table::COMMAND_REFUSED, [0, 0]),
        Error::OutOfOrder => (table::OUT_OF_ORDER, [0, 0]),
    }
}

/// Returns the structure's `cfg_type` in the PCI capability (virtio 1.2, 4.1.4).
const fn cfg_type(which: Structure) -> u32 {
    match which {
        Structure::Common => 1,
        Structure::Notify => 2,
        Structure::Isr => 3,
        Structure::Device => 4,
    }
}

/// Logs why the adapter `handle` did not start. IRQL <= `DISPATCH_LEVEL`.
pub fn not_started(handle: NDIS_HANDLE, failure: Failure) {
    let (event, data) = failure.event();
    write(handle, event, data);
}

/// Logs that the device has corrupted the ring of a queue of pair `number`, which is reset alone. IRQL <= `DISPATCH_LEVEL`.
pub fn queue_failed(handle: NDIS_HANDLE, number: u32, error: Error) {
    let (_, [fault, _]) = device_event(error);
    write(handle, table::QUEUE_CORRUPT, [number, fault]);
}

/// Logs the error of a running device. IRQL <= `DISPATCH_LEVEL`.
pub fn device_failed(handle: NDIS_HANDLE, error: Error) {
    let (event, data) = device_event(error);
    write(handle, event, data);
}

/// Logs a mistake of an NDK consumer. `owner` is the adapter's handle. IRQL <= `DISPATCH_LEVEL`.
#[cfg(feature = "strict")]
pub fn consumer_mistake(owner: Owner, report: &MistakeReport) {
    let id = table::CONSUMER_WRONG_IRQL.id - Mistake::WrongIrql.number() + report.mistake.number();
    let object_type = u32::from(report.object_type);
    trace_event(owner.handle(), id & 0xFFFF, [object_type, report.object]);
    // SAFETY: the handle is the adapter's, and as many 32-bit values follow as the count says.
    unsafe { NdisWriteErrorLogEntry(owner.handle(), id, 3, object_type, report.object, report.detail) };
}

/// The events of an adapter that has started: each is written a few times at once, then [seldom](driver_states::rate_limit). What was left
/// out is reported by the next event with that number, or when this is dropped. The trace has all of them.
pub struct AdapterEvents {
    handle: NDIS_HANDLE,
    limits: Limits,
}

impl AdapterEvents {
    /// Begins to limit the events of the adapter `handle`.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(handle: NDIS_HANDLE) -> Result<Self, Failure> {
        let limits = Limits::new(handle).map_err(|_| Failure::NoResources)?;
        Ok(Self { handle, limits })
    }
}

impl Drop for AdapterEvents {
    fn drop(&mut self) {
        self.limits.take_omitted(|number, omitted| {
            log(self.handle, table::OMITTED, [number, omitted], 0);
        });
    }
}

/// Writes one event with its data. Returns whether it was written: an event that comes too often is counted instead, see
/// [`AdapterEvents`]. IRQL <= `DISPATCH_LEVEL`. Not inlined: events are rare, and their callers' stack frames are large.
#[cold]
#[inline(never)]
pub fn write(handle: NDIS_HANDLE, event: Event, data: [u32; 2]) -> bool {
    let [first, second] = data;
    debug::event(handle, event, data);
    trace_event(handle, event.number(), [first, second]);
    let omitted = limits::admit(handle, event.number());
    if let Some(omitted) = omitted {
        log(handle, event, data, omitted);
    }
    omitted.is_some()
}

/// Writes an event to the log. If events were left out before, their number is a third value.
fn log(handle: NDIS_HANDLE, event: Event, [first, second]: [u32; 2], omitted: u32) {
    let count = if omitted == 0 { 2 } else { 3 };
    // SAFETY: the handle is the adapter's, and as many 32-bit values follow as the count says, or one more.
    unsafe { NdisWriteErrorLogEntry(handle, event.id, count, first, second, omitted) };
}

/// Writes an event of the log to the trace, too.
fn trace_event(handle: NDIS_HANDLE, number: u32, [first, second]: [u32; 2]) {
    etw::write(None, || etw::table::EventLogged { interface: interface_of(handle), number, first, second });
}
