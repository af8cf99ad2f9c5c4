// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling of one adapter: its capabilities, the parameters in force, or hashes alone, and the check of received frames
//! against them. (windows-driver-docs: network/rss-configuration, network/indicating-rss-receive-data)

use std::collections::{BTreeMap, BTreeSet};

use device_sim::toeplitz::{
    self, HASH_IPV4, HASH_IPV6, HASH_TCP_IPV4, HASH_TCP_IPV6, HASH_UDP_IPV4, HASH_UDP_IPV6, KEY_LEN,
};
use ndk_abi::{
    ndis::{
        NDIS_HASH_FUNCTION_MASK, NDIS_HASH_IPV4, NDIS_HASH_IPV6, NDIS_HASH_TCP_IPV4, NDIS_HASH_TCP_IPV6,
        NDIS_HASH_TYPE_MASK, NDIS_HASH_UDP_IPV4, NDIS_HASH_UDP_IPV6, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_RSS_CAPABILITIES, NDIS_OBJECT_TYPE_RSS_PARAMETERS, NDIS_RECEIVE_SCALE_CAPABILITIES,
        NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_1, NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
        NDIS_RECEIVE_SCALE_PARAMETERS, NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2,
        NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6, NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4,
        NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6, NDIS_RSS_INDIRECTION_TABLE_MAX_SIZE_REVISION_2,
        NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED, NDIS_RSS_PARAM_FLAG_DISABLE_RSS,
        NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED, NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED,
        NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED, NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_1,
        NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_2, NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
        NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_2, NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_3,
        NdisHashFunctionToeplitz,
    },
    nt::PROCESSOR_NUMBER,
};
use nt_sim::{
    cpu::{
        CpuId,
        groups::{Groups, MAX_GROUP_SIZE},
    },
    guest::Guest,
};

use crate::{
    receive_hash::HashParameters,
    rules::{self, broken, require},
};

/// Nanoseconds after a change in which frames may still be indicated as before: they were received earlier. Our choice: in real time
/// a thread that has received them may wait for a processor of this machine.
const GRACE: u64 = 10_000_000;
const GRACE_IN_REAL_TIME: u64 = 1_000_000_000;

/// Length of an entry of the indirection table, in bytes.
const ENTRY_LEN: usize = size_of::<PROCESSOR_NUMBER>();
/// Most entries of the table; of a miniport whose capabilities do not say how many, too.
const MAX_ENTRIES: u16 = NDIS_RSS_INDIRECTION_TABLE_MAX_SIZE_REVISION_2 / ENTRY_LEN as u16;

/// Revisions of `NDIS_RECEIVE_SCALE_CAPABILITIES`, from 1: the minor version of NDIS 6 from which drivers may state it, and its size
/// in bytes.
const REVISIONS: [(u8, u16); NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3 as usize] = [
    (0, NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_1),
    (30, NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_2),
    (60, NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3),
];

/// Each capability, and the hash types that it permits.
const TYPES: [(u32, u32); 4] = [
    (NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, NDIS_HASH_TCP_IPV4 | NDIS_HASH_IPV4),
    (NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4, NDIS_HASH_UDP_IPV4 | NDIS_HASH_IPV4),
    (NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6, NDIS_HASH_TCP_IPV6 | NDIS_HASH_IPV6),
    (NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6, NDIS_HASH_UDP_IPV6 | NDIS_HASH_IPV6),
];

/// Each hash type, as NDIS and as virtio numbers it.
const NUMBERS: [(u32, u32); 6] = [
    (NDIS_HASH_IPV4, HASH_IPV4),
    (NDIS_HASH_TCP_IPV4, HASH_TCP_IPV4),
    (NDIS_HASH_UDP_IPV4, HASH_UDP_IPV4),
    (NDIS_HASH_IPV6, HASH_IPV6),
    (NDIS_HASH_TCP_IPV6, HASH_TCP_IPV6),
    (NDIS_HASH_UDP_IPV6, HASH_UDP_IPV6),
];

/// The types of hashes that can be requested without receive side scaling. NDIS has no capabilities for them: those that are checked.
const ALL_TYPES: u32 = NDIS_HASH_IPV4
    | NDIS_HASH_TCP_IPV4
    | NDIS_HASH_UDP_IPV4
    | NDIS_HASH_IPV6
    | NDIS_HASH_TCP_IPV6
    | NDIS_HASH_UDP_IPV6;

/// Receive side scaling in the general attributes of a miniport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RssCapabilities {
    /// `NDIS_RSS_CAPS_*`, and the hash function.
    pub flags: u32,
    pub messages: u32,
    pub queues: u32,
    /// Largest number of entries of the indirection table.
    pub entries: u16,
}

impl RssCapabilities {
    /// Reads and checks the capabilities that a miniport of NDIS 6.`minor` sets.
    pub(crate) fn read(from: *mut NDIS_RECEIVE_SCALE_CAPABILITIES, minor: u8) -> Self {
        let header = Guest::<NDIS_OBJECT_HEADER>::new(from.cast()).read();
        let revision = REVISIONS.get(usize::from(header.Revision).wrapping_sub(1));
        let known = revision.filter(|(since, size)| {
            header.Type == NDIS_OBJECT_TYPE_RSS_CAPABILITIES && *since <= minor && header.Size >= *size
        });
        let Some((_, size)) = known else {
            broken(
                rules::HEADER,
                format!(
                    "NDIS_RECEIVE_SCALE_CAPABILITIES with type {:#x}, revision {} and {} bytes; NDIS 6.{minor}",
                    header.Type, header.Revision, header.Size
                ),
            )
        };
        let mut bytes = [0; size_of::<NDIS_RECEIVE_SCALE_CAPABILITIES>()];
        Guest::<u8>::new(from.cast()).read_bytes(&mut bytes[..usize::from(*size)]);
        let mut given = NDIS_RECEIVE_SCALE_CAPABILITIES::zeroed();
        Guest::<u8>::new((&raw mut given).cast()).write_bytes(&bytes);
        if header.Revision == NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_1 {
            given.NumberOfIndirectionTableEntries = MAX_ENTRIES;
        }
        let this = Self {
            flags: given.CapabilitiesFlags,
            messages: given.NumberOfInterruptMessages,
            queues: given.NumberOfReceiveQueues,
            entries: given.NumberOfIndirectionTableEntries,
        };
        require(
            this.flags & NdisHashFunctionToeplitz != 0 && this.types() & NDIS_HASH_IPV4 != 0,
            rules::RSS_CAPABILITIES,
            || format!("the capabilities {:#x} of RSS lack the Toeplitz hash, or IPv4", this.flags),
        );
        require(this.messages > 0 && this.queues > 0, rules::RSS_CAPABILITIES, || {
            format!("RSS with {} interrupt messages and {} receive queues", this.messages, this.queues)
        });
        let entries = this.entries;
        require(entries.is_power_of_two() && entries <= MAX_ENTRIES, rules::RSS_CAPABILITIES, || {
            format!(
                "RSS with {entries} entries of the indirection table: no power of 2, or more than {MAX_ENTRIES}"
            )
        });
        this
    }

    /// Returns the hash types that a protocol driver may set.
    #[must_use]
    pub fn types(&self) -> u32 {
        let permitted = TYPES.iter().filter(|(capability, _)| self.flags & capability != 0);
        permitted.fold(0, |types, (_, permitted)| types | permitted)
    }
}

/// The parameters of receive side scaling. Processors are named by their index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RssParameters {
    /// `NDIS_HASH_*`
    pub types: u32,
    pub key: [u8; KEY_LEN],
    /// A processor for each value of the low bits of a hash.
    pub table: Vec<u8>,
    /// The processor of frames without a hash.
    pub default_processor: u8,
}

impl RssParameters {
    /// Returns the bytes of an `OID_GEN_RECEIVE_SCALE_PARAMETERS` request, as drivers of NDIS 6.60 and later receive it, on a host whose
    /// processors are all in group 0.
    #[must_use]
    pub fn encode(&self, flags: u16) -> Vec<u8> {
        self.encode_for(flags, Groups::new(MAX_GROUP_SIZE, MAX_GROUP_SIZE))
    }

    /// Encodes the parameters for a host with these processor groups; see [`encode`](Self::encode).
    #[must_use]
    pub fn encode_for(&self, flags: u16, groups: Groups) -> Vec<u8> {
        let number = |&index: &u8| groups.number(CpuId(index.into()));
        let entry = |index| {
            let PROCESSOR_NUMBER { Group, Number, Reserved } = number(index);
            let [low, high] = Group.to_le_bytes();
            [low, high, Number, Reserved]
        };
        let table: Vec<u8> = self.table.iter().flat_map(entry).collect();
        let start = size_of::<NDIS_RECEIVE_SCALE_PARAMETERS>();
        let mut request = NDIS_RECEIVE_SCALE_PARAMETERS::zeroed();
        request.Header.Type = NDIS_OBJECT_TYPE_RSS_PARAMETERS;
        request.Header.Revision = ndk_abi::ndis::NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_3;
        request.Header.Size = NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_3;
        request.Flags = flags;
        request.HashInformation = NdisHashFunctionToeplitz | self.types;
        request.IndirectionTableSize = table.len() as u16;
        request.IndirectionTableOffset = start as u32;
        request.HashSecretKeySize = KEY_LEN as u16;
        request.HashSecretKeyOffset = (start + table.len()) as u32;
        request.DefaultProcessorNumber = number(&self.default_processor);
        let mut bytes = vec![0; start];
        Guest::<u8>::new((&raw mut request).cast()).read_bytes(&mut bytes);
        bytes.extend(table);
        bytes.extend(self.key);
        bytes
    }

    /// Returns the parameters of a request to an adapter with these capabilities and `current` parameters, on a host with these
    /// processor groups; `None` if it disables RSS.
    ///
    /// # Errors
    /// What is wrong with the request.
    fn decode(
        bytes: &[u8],
        capabilities: RssCapabilities,
        current: Option<&Self>,
        groups: Groups,
    ) -> Result<Option<Self>, &'static str> {
        let mut request = NDIS_RECEIVE_SCALE_PARAMETERS::zeroed();
        let least = usize::from(NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_2);
        if bytes.len() < least {
            return Err("it is shorter than the structure");
        }
        let fixed = bytes.len().min(size_of_val(&request));
        Guest::<u8>::new((&raw mut request).cast()).write_bytes(&bytes[..fixed]);
        let header = request.Header;
        let is_known = header.Type == NDIS_OBJECT_TYPE_RSS_PARAMETERS
            && header.Revision >= NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2
            && usize::from(header.Size) >= least;
        if !is_known {
            return Err("its header is wrong");
        }
        let function = request.HashInformation & NDIS_HASH_FUNCTION_MASK;
        if request.Flags & NDIS_RSS_PARAM_FLAG_DISABLE_RSS != 0 || function == 0 {
            return Ok(None);
        }
        // A parameter is unchanged only if there is one.
        let unchanged = |flag: u16| current.filter(|_| request.Flags & flag != 0);
        let part = |offset: u32, size: u16| {
            let start = offset as usize;
            bytes.get(start..start.checked_add(size.into())?)
        };
        let types = match unchanged(NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED) {
            Some(current) => current.types,
            None => request.HashInformation & NDIS_HASH_TYPE_MASK,
        };
        if function != NdisHashFunctionToeplitz || types == 0 || types & !capabilities.types() != 0 {
            return Err("its hash information is not among the capabilities");
        }
        let table = match unchanged(NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED) {
            Some(current) => current.table.clone(),
            None => part(request.IndirectionTableOffset, request.IndirectionTableSize)
                .and_then(|table| processors(table, groups))
                .ok_or("its table is beyond its end, or names no processor")?,
        };
        if !table.len().is_power_of_two() || table.len() > usize::from(capabilities.entries) {
            return Err("its table has a number of entries that is not supported");
        }
        let key = match unchanged(NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED) {
            Some(current) => current.key,
            None => part(request.HashSecretKeyOffset, request.HashSecretKeySize)
                .and_then(|key| key.try_into().ok())
                .ok_or("its key is beyond its end, or has not 40 bytes")?,
        };
        let default_processor = match unchanged(NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED) {
            Some(current) => current.default_processor,
            // Revision 2 has none: the first processor.
            None => groups
                .cpu(request.DefaultProcessorNumber)
                .and_then(|cpu| u8::try_from(cpu.0).ok())
                .ok_or("its default processor does not exist")?,
        };
        Ok(Some(Self { types, key, table, default_processor }))
    }

    /// Returns the number of different processors of the table.
    fn processors(&self) -> usize {
        self.table.iter().collect::<BTreeSet<_>>().len()
    }
}

/// Returns the indices of the processors of a table; `None` if it has a part of an entry or names a processor that does not exist.
fn processors(table: &[u8], groups: Groups) -> Option<Vec<u8>> {
    let entries = table.chunks(ENTRY_LEN).map(|entry| match *entry {
        [low, high, number, _] => {
            let group = u16::from_le_bytes([low, high]);
            let cpu = groups.cpu(PROCESSOR_NUMBER { Group: group, Number: number, Reserved: 0 })?;
            u8::try_from(cpu.0).ok()
        }
        _ => None,
    });
    entries.collect()
}

/// A received frame, as far as receive side scaling is concerned.
pub(crate) struct Received<'a> {
    pub bytes: &'a [u8],
    /// `NetBufferListHashInfo`: function and type.
    pub info: u32,
    /// `NetBufferListHashValue`
    pub value: u32,
    /// The processor that indicates it.
    pub processor: u32,
}

/// The parameters in force: receive side scaling, or hashes alone.
#[derive(Clone)]
enum Parameters {
    Scaling(RssParameters),
    Hash(HashParameters),
}

impl Parameters {
    /// Returns types and key of the hashes.
    fn hash(&self) -> (u32, &[u8; KEY_LEN]) {
        match self {
            Self::Scaling(RssParameters { types, key, .. }) | Self::Hash(HashParameters { types, key }) => {
                (*types, key)
            }
        }
    }
}

/// Receive side scaling of an adapter.
#[derive(Default)]
pub(crate) struct Rss {
    pub capabilities: Option<RssCapabilities>,
    current: Option<Parameters>,
    /// The parameters of the request in progress: frames may already be received with them.
    #[allow(clippy::option_option, reason = "the parameters of a request may be none")]
    requested: Option<Option<Parameters>>,
    /// The parameters before recent changes, and until when frames may be received with them.
    earlier: Vec<(Option<Parameters>, u64)>,
    /// The processor of each entry of the table whose frames were received since the last change.
    seen: BTreeMap<usize, u32>,
}

impl Rss {
    /// Prepares for a request to change the parameters. Returns why the miniport must fail it, if it must.
    pub fn begin(&mut self, request: &[u8], groups: Groups) -> Option<&'static str> {
        let capabilities = self.capabilities?;
        let (scaling, hash) = match &self.current {
            Some(Parameters::Scaling(scaling)) => (Some(scaling), false),
            Some(Parameters::Hash(_)) => (None, true),
            None => (None, false),
        };
        match RssParameters::decode(request, capabilities, scaling, groups) {
            Ok(Some(_)) if hash => Some("hashes are requested alone"),
            Ok(None) if hash => None,
            Ok(parameters) => {
                self.requested = Some(parameters.map(Parameters::Scaling));
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Begins a change of hashes alone; see [`begin`](Self::begin).
    pub fn begin_hash(&mut self, request: &[u8]) -> Option<&'static str> {
        let (hash, scaling) = match &self.current {
            Some(Parameters::Hash(hash)) => (Some(hash), false),
            Some(Parameters::Scaling(_)) => (None, true),
            None => (None, false),
        };
        match HashParameters::decode(request, ALL_TYPES, hash) {
            Ok(Some(_)) if scaling => Some("receive side scaling is enabled"),
            Ok(None) if scaling => None,
            Ok(parameters) => {
                self.requested = Some(parameters.map(Parameters::Hash));
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Ends the request: the miniport has succeeded or failed it. `real_time`: the clock is not simulated.
    pub fn end(&mut self, succeeded: bool, now: u64, real_time: bool) {
        // A request that changes nothing has none.
        let Some(parameters) = self.requested.take() else { return };
        if succeeded {
            let before = std::mem::replace(&mut self.current, parameters);
            let grace = if real_time { GRACE_IN_REAL_TIME } else { GRACE };
            self.earlier.push((before, now.saturating_add(grace)));
            self.seen.clear();
        }
    }

    /// Returns the parameters of receive side scaling; `None` while it is disabled.
    pub fn parameters(&self) -> Option<RssParameters> {
        match &self.current {
            Some(Parameters::Scaling(scaling)) => Some(scaling.clone()),
            _ => None,
        }
    }

    /// Returns which hashes are requested without receive side scaling.
    pub fn hash(&self) -> Option<HashParameters> {
        match &self.current {
            Some(Parameters::Hash(hash)) => Some(hash.clone()),
            _ => None,
        }
    }

    /// Checks a frame that is received at `now`.
    ///
    /// # Errors
    /// The rule that is violated.
    pub fn check(&mut self, frame: &Received<'_>, now: u64) -> Result<(), String> {
        let queues = self.capabilities.map_or(1, |capabilities| capabilities.queues as usize);
        self.earlier.retain(|(_, until)| now < *until);
        let mut others =
            self.requested.iter().chain(self.earlier.iter().map(|(earlier, _)| earlier)).peekable();
        let is_changing = others.peek().is_some();
        if others.any(|other| check(frame, other.as_ref(), queues).is_ok()) {
            return Ok(());
        }
        let entry = check(frame, self.current.as_ref(), queues)?;
        let Some(entry) = entry.filter(|_| !is_changing) else { return Ok(()) };
        let processor = *self.seen.entry(entry).or_insert(frame.processor);
        if processor == frame.processor {
            return Ok(());
        }
        Err(format!(
            "frames of entry {entry} of the indirection table were received on processors {processor} and {}",
            frame.processor
        ))
    }
}

/// Returns the hash type of a frame, as NDIS numbers it, and its hash.
fn hash(frame: &[u8], parameters: &Parameters) -> Option<(u32, u32)> {
    let (types, key) = parameters.hash();
    let types = NUMBERS.iter().filter(|(of_ndis, _)| types & of_ndis != 0);
    let types = types.fold(0, |types, (_, of_virtio)| types | of_virtio);
    let (kind, value) = toeplitz::hash(frame, types, key)?;
    let (number, _) = NUMBERS.iter().find(|(_, of_virtio)| *of_virtio == kind)?;
    Some((*number, value))
}

/// Checks a frame against the parameters. Returns the entry of the table that it belongs to, if any.
fn check(
    frame: &Received<'_>,
    parameters: Option<&Parameters>,
    queues: usize,
) -> Result<Option<usize>, String> {
    let function = frame.info & NDIS_HASH_FUNCTION_MASK;
    let Some(parameters) = parameters else {
        let is_right = function == 0;
        return if is_right { Ok(None) } else { Err("a hash is reported, but none is requested".into()) };
    };
    let expected = hash(frame.bytes, parameters);
    let reported = (function == NdisHashFunctionToeplitz)
        .then_some((frame.info & NDIS_HASH_TYPE_MASK, frame.value))
        .filter(|_| function != 0);
    if reported != expected || reported.is_none() != (function == 0) {
        let text = |hash: Option<(u32, u32)>| {
            hash.map_or("none".into(), |(kind, value)| format!("{value:#010x} of type {kind:#x}"))
        };
        return Err(format!(
            "the hash of a received frame is {} by function {function}, not {}",
            text(reported),
            text(expected)
        ));
    }
    let Parameters::Scaling(parameters) = parameters else { return Ok(None) };
    let processor = frame.processor;
    let is = |number: &u8| u32::from(*number) == processor;
    // Then the miniport uses some of the processors only.
    let lacks_queues = parameters.processors() > queues;
    let Some((_, value)) = expected else {
        let default = parameters.default_processor;
        let may = is(&default) || lacks_queues && parameters.table.iter().any(is);
        return if may {
            Ok(None)
        } else {
            Err(format!("a frame without a hash was received on processor {processor}, not {default}"))
        };
    };
    let entry = value as usize & (parameters.table.len() - 1);
    let may = if lacks_queues {
        parameters.table.iter().any(is)
    } else {
        parameters.table.get(entry).is_some_and(is)
    };
    if may {
        return Ok(Some(entry));
    }
    Err(format!(
        "a frame of entry {entry} of the indirection table was received on processor {processor}, not {}",
        parameters.table[entry]
    ))
}
