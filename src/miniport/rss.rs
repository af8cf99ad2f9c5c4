// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling (RSS): the hash of each received frame, and the processor on which it is indicated. (WDK: receive side scaling;
//! `OID_GEN_RECEIVE_SCALE_PARAMETERS`)
//!
//! The device may steer a frame to any queue pair. The pair's DPC processes RDMA frames. It hands other frames over to the processor that
//! the indirection table names ([`ReceiveLanes`](super::receive_lanes::ReceiveLanes)), unless it runs there itself. The frames of a flow
//! keep their order.
//!
//! A protocol driver can request hashes without RSS (`OID_GEN_RECEIVE_HASH`). Each frame then has a hash, and is indicated on the
//! processor that received it.

use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{
    NDIS_HASH_FUNCTION_MASK, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_RSS_CAPABILITIES,
    NDIS_OBJECT_TYPE_RSS_PARAMETERS, NDIS_OID_REQUEST_SET, NDIS_RECEIVE_SCALE_CAPABILITIES,
    NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3, NDIS_RECEIVE_SCALE_PARAMETERS as Parameters,
    NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2, NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_3,
    NDIS_RSS_CAPS_CLASSIFICATION_AT_DPC, NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6,
    NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4, NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6,
    NDIS_RSS_CAPS_MESSAGE_SIGNALED_INTERRUPTS, NDIS_RSS_CAPS_SUPPORTS_MSI_X, NDIS_RSS_CAPS_USING_MSI_X,
    NDIS_RSS_INDIRECTION_TABLE_MAX_SIZE_REVISION_2, NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED,
    NDIS_RSS_PARAM_FLAG_DISABLE_RSS, NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED,
    NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED, NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED,
    NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3, NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_2,
    NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_3, NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
    NdisHashFunctionToeplitz,
};
use ndk_abi::nt::PROCESSOR_NUMBER;
use nt::SpinLock;
use virtio_net::HashTypes;

use super::receive_hash::{self, ReceiveHash, Request};
use crate::config::Configuration;
use crate::events::Failure;
use crate::nic::port::Port;

/// Length of an entry of the indirection table, in bytes.
const ENTRY_LEN: usize = size_of::<PROCESSOR_NUMBER>();
/// Largest number of entries of an indirection table in NDIS.
const MAX_ENTRIES: usize = NDIS_RSS_INDIRECTION_TABLE_MAX_SIZE_REVISION_2 as usize / ENTRY_LEN;
/// Smallest length of a request, in bytes.
const LEAST: usize = NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_2 as usize;

/// The parameters in force.
pub struct Scaling {
    pub hash: ReceiveHash,
    /// `None` if hashes are requested without RSS.
    pub indirection: Option<Indirection>,
}

/// The processors that indicate received frames.
pub struct Indirection {
    /// A processor index for each value of the hash's low bits. Its length is a power of two.
    pub table: Vec<u32>,
    /// The index of the processor for frames without a hash.
    pub default_processor: u32,
}

/// The hash of a received frame for NDIS, and its processor.
#[derive(Clone, Copy)]
pub struct Scaled {
    /// `NetBufferListHashInfo`: function and type; 0 without a hash.
    pub hash_info: u32,
    /// `NetBufferListHashValue`
    pub hash_value: u32,
    /// Index of the processor that indicates the frame; `None` for the one that received it.
    pub processor: Option<u32>,
}

impl Scaling {
    /// Returns hash and processor of a frame. `reported` is the device's hash, if it reported one.
    pub fn of(&self, frame: &[u8], reported: Option<(HashTypes, u32)>) -> Scaled {
        let hash = self.hash.of(frame, reported);
        let (hash_info, hash_value) = hash.unwrap_or_default();
        let processor =
            self.indirection.as_ref().map(|indirection| indirection.processor(hash.map(|(_, value)| value)));
        Scaled { hash_info, hash_value, processor }
    }

    /// Parses a request of at least [`LEAST`] bytes, which may leave parts of `current` unchanged. `None` if it disables RSS.
    /// `PASSIVE_LEVEL`.
    fn parse(
        request: &Request<'_>,
        current: Option<(&ReceiveHash, &Indirection)>,
        processors: u32,
    ) -> Result<Option<Self>, NDIS_STATUS> {
        let invalid = NDIS_STATUS_INVALID_PARAMETER;
        request.check_header(
            NDIS_OBJECT_TYPE_RSS_PARAMETERS,
            NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2,
            LEAST,
        )?;
        let flags = request.half(offset_of!(Parameters, Flags))?;
        let information = request.word(offset_of!(Parameters, HashInformation))?;
        if flags & NDIS_RSS_PARAM_FLAG_DISABLE_RSS != 0 || information & NDIS_HASH_FUNCTION_MASK == 0 {
            return Ok(None);
        }
        if information & NDIS_HASH_FUNCTION_MASK != NdisHashFunctionToeplitz {
            return Err(invalid);
        }
        // A part flagged as unchanged must be in the request if there are no current parameters.
        let is_changed = |flag: u16| current.is_none() || flags & flag == 0;
        let unchanged = |flag: u16| current.filter(|_| flags & flag != 0).map(|(_, indirection)| indirection);
        let table = match unchanged(NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED) {
            Some(current) => copied(&current.table)?,
            None => processors_of(table(request)?, processors)?,
        };
        let key = is_changed(NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED).then(|| key(request)).transpose()?;
        let size = request.half(offset_of!(NDIS_OBJECT_HEADER, Size))?;
        let has_default = request.revision()? >= NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_3
            && size >= NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_3;
        let default_processor = match unchanged(NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED) {
            Some(current) => current.default_processor,
            None if has_default => {
                let number = request.array(offset_of!(Parameters, DefaultProcessorNumber))?;
                processor(number, processors).ok_or(invalid)?
            }
            None => table.first().copied().ok_or(invalid)?,
        };
        let information = is_changed(NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED).then_some(information);
        let hash = ReceiveHash::new(information, key, current.map(|(hash, _)| hash))?;
        Ok(Some(Self { hash, indirection: Some(Indirection { table, default_processor }) }))
    }
}

impl Indirection {
    /// Returns the processor of a frame with or without a hash.
    fn processor(&self, hash: Option<u32>) -> u32 {
        let entry = hash.and_then(|hash| self.table.get(hash as usize & self.table.len().wrapping_sub(1)));
        entry.copied().unwrap_or(self.default_processor)
    }
}

/// Returns the indices of the processors of an indirection table.
fn processors_of(table: &[u8], processors: u32) -> Result<Vec<u32>, NDIS_STATUS> {
    let (entries, rest) = table.as_chunks::<ENTRY_LEN>();
    if !rest.is_empty() || !entries.len().is_power_of_two() || entries.len() > MAX_ENTRIES {
        return Err(NDIS_STATUS_INVALID_PARAMETER);
    }
    let mut indices = vec::with_capacity(entries.len()).map_err(|_| NDIS_STATUS_RESOURCES)?;
    for &entry in entries {
        let index = processor(entry, processors).ok_or(NDIS_STATUS_INVALID_PARAMETER)?;
        vec::push_within_capacity(&mut indices, index).map_err(|_| NDIS_STATUS_RESOURCES)?;
    }
    Ok(indices)
}

/// Returns the index, less than `processors`, of the processor of a `PROCESSOR_NUMBER`. A processor that was added since the start has no
/// lane: the frames that NDIS wants there are indicated on another one.
fn processor([low, high, number, _]: [u8; ENTRY_LEN], processors: u32) -> Option<u32> {
    nt::processor::index(u16::from_le_bytes([low, high]), number)?.checked_rem(processors)
}

fn copied(table: &[u32]) -> Result<Vec<u32>, NDIS_STATUS> {
    let mut copy = Vec::new();
    vec::extend(&mut copy, table).map_err(|_| NDIS_STATUS_RESOURCES)?;
    Ok(copy)
}

fn table<'a>(request: &Request<'a>) -> Result<&'a [u8], NDIS_STATUS> {
    request.part(offset_of!(Parameters, IndirectionTableOffset), offset_of!(Parameters, IndirectionTableSize))
}

fn key<'a>(request: &Request<'a>) -> Result<&'a [u8], NDIS_STATUS> {
    request.part(offset_of!(Parameters, HashSecretKeyOffset), offset_of!(Parameters, HashSecretKeySize))
}

/// RSS by the device; see [`super::device_rss`].
#[derive(Default)]
pub struct DeviceScaling {
    /// The device has accepted NDIS's parameters.
    pub is_used: AtomicBool,
}

/// Parameters that a request changes.
enum Change {
    Nothing,
    /// The parameters, or that there are some.
    To(Option<Scaling>),
}

/// Receive side scaling of an adapter.
pub struct Rss {
    /// Number of the machine's processors; 0 if RSS is not offered.
    processors: u32,
    /// `NumberOfReceiveQueues` of the capabilities.
    queues: u32,
    /// Whether there are parameters. Spares the lock if there are none.
    is_enabled: AtomicBool,
    scaling: SpinLock<Option<Arc<Scaling>>>,
    handed_over: AtomicU64,
    pub(super) device: DeviceScaling,
}

impl Rss {
    /// Prepares RSS, which is initially disabled. It is not offered on a machine with one processor.
    pub fn new(configuration: &Configuration) -> Result<Arc<Self>, Failure> {
        let processors = nt::processor::count();
        let this = Self {
            processors: if Self::is_offered(configuration) { processors } else { 0 },
            queues: configuration.rss_queues.min(processors),
            is_enabled: AtomicBool::new(false),
            scaling: SpinLock::new(None),
            handed_over: AtomicU64::new(0),
            device: DeviceScaling::default(),
        };
        Arc::try_new(this).map_err(|_| Failure::NoResources)
    }

    /// Whether receive side scaling is offered to NDIS.
    pub fn is_offered(configuration: &Configuration) -> bool {
        configuration.rss && nt::processor::count() > 1
    }

    /// Returns the RSS capabilities for the general attributes of an adapter with this number of interrupt messages; `None` if RSS is not
    /// offered.
    pub fn capabilities(&self, messages: u32) -> Option<NDIS_RECEIVE_SCALE_CAPABILITIES> {
        (self.processors != 0).then_some(NDIS_RECEIVE_SCALE_CAPABILITIES {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_RSS_CAPABILITIES,
                Revision: NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
                Size: NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
            },
            CapabilitiesFlags: NdisHashFunctionToeplitz
                | NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4
                | NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6
                | NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4
                | NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6
                | NDIS_RSS_CAPS_MESSAGE_SIGNALED_INTERRUPTS
                | NDIS_RSS_CAPS_CLASSIFICATION_AT_DPC
                | NDIS_RSS_CAPS_SUPPORTS_MSI_X
                | NDIS_RSS_CAPS_USING_MSI_X,
            NumberOfInterruptMessages: messages,
            NumberOfReceiveQueues: self.queues,
            NumberOfIndirectionTableEntries: MAX_ENTRIES as u16,
        })
    }

    /// `OID_GEN_RECEIVE_SCALE_PARAMETERS`: changes the parameters, or disables receive side scaling. A request that fails changes nothing.
    /// While hashes are requested alone, receive side scaling is refused. `PASSIVE_LEVEL`, one request at a time.
    pub fn set(
        &self,
        port: &Port,
        request: &mut NDIS_OID_REQUEST_SET,
        changes: impl FnOnce(),
    ) -> NDIS_STATUS {
        if self.processors == 0 {
            return NDIS_STATUS_NOT_SUPPORTED;
        }
        self.change(port, request, LEAST, changes, |request, current| {
            let scaled = current.and_then(|current| Some((&current.hash, current.indirection.as_ref()?)));
            let is_hashed_alone = current.is_some() && scaled.is_none();
            match Scaling::parse(request, scaled, self.processors)? {
                Some(_) if is_hashed_alone => Err(NDIS_STATUS_NOT_SUPPORTED),
                None if is_hashed_alone => Ok(Change::Nothing),
                next => Ok(Change::To(next)),
            }
        })
    }

    /// `OID_GEN_RECEIVE_HASH`: requests hashes alone, or none. A request that fails changes nothing. While receive side scaling is enabled,
    /// hashes alone are refused. `PASSIVE_LEVEL`, one request at a time.
    pub fn set_hash(
        &self,
        port: &Port,
        request: &mut NDIS_OID_REQUEST_SET,
        changes: impl FnOnce(),
    ) -> NDIS_STATUS {
        self.change(port, request, receive_hash::PARAMETERS_LEN, changes, |request, current| {
            let is_scaled = current.is_some_and(|current| current.indirection.is_some());
            let hash = current.filter(|_| !is_scaled).map(|current| &current.hash);
            match ReceiveHash::parse(request, hash)? {
                Some(_) if is_scaled => Err(NDIS_STATUS_NOT_SUPPORTED),
                None if is_scaled => Ok(Change::Nothing),
                next => Ok(Change::To(next.map(|hash| Scaling { hash, indirection: None }))),
            }
        })
    }

    /// Carries out a request of at least `least` bytes, of which `parse` says what it changes; `changes` is called before. The hashes that the device reports are not
    /// used after a change, until it is [programmed](super::device_rss::program). `PASSIVE_LEVEL`, one request at a time.
    fn change(
        &self,
        port: &Port,
        request: &mut NDIS_OID_REQUEST_SET,
        least: usize,
        changes: impl FnOnce(),
        parse: impl FnOnce(&Request<'_>, Option<&Scaling>) -> Result<Change, NDIS_STATUS>,
    ) -> NDIS_STATUS {
        let len = request.InformationBufferLength;
        if (len as usize) < least {
            request.BytesNeeded = least as u32;
            return NDIS_STATUS_INVALID_LENGTH;
        }
        let from = request.InformationBuffer.cast::<u8>();
        // SAFETY: NDIS's buffer has `len` bytes, more than none, which nothing changes during the request.
        let bytes = unsafe { core::slice::from_raw_parts(from, len as usize) };
        let current = self.current();
        match parse(&Request(bytes), current.as_deref()) {
            Err(status) => return status,
            Ok(Change::Nothing) => {}
            Ok(Change::To(next)) => {
                let Ok(next) = next.map(Arc::try_new).transpose() else { return NDIS_STATUS_RESOURCES };
                // First, so that the answer to commands for the parameters before does not have hashes reported.
                changes();
                port.pairs().iter().for_each(|pair| pair.report_hashes(false));
                self.replace(next);
            }
        }
        request.BytesRead = len;
        NDIS_STATUS_SUCCESS
    }

    /// Puts parameters in force.
    fn replace(&self, next: Option<Arc<Scaling>>) {
        let is_enabled = next.is_some();
        let before = core::mem::replace(&mut *self.scaling.lock(), next);
        self.is_enabled.store(is_enabled, Ordering::Release);
        // Freed without the lock held, here or by the last DPC that uses them.
        drop(before);
    }

    /// Returns the parameters in force; `None` while no hashes are requested. IRQL <= `DISPATCH_LEVEL`.
    pub fn current(&self) -> Option<Arc<Scaling>> {
        if self.is_enabled.load(Ordering::Acquire) { self.scaling.lock().clone() } else { None }
    }

    /// Returns the number of processors that may indicate frames; 0 if RSS is not offered.
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// Counts frames that are indicated on another processor than the one that received them.
    pub fn count_handed_over(&self, frames: u64) {
        self.handed_over.fetch_add(frames, Ordering::Relaxed);
    }

    /// Returns the number of frames that were handed over.
    pub fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }
}
