// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hashes of received frames: types and key, and the requests that set them. (WDK: `OID_GEN_RECEIVE_HASH`; RSS hashing types)
//!
//! `OID_GEN_RECEIVE_HASH` requests hashes alone, `OID_GEN_RECEIVE_SCALE_PARAMETERS` requests them for [receive side
//! scaling](super::rss). One of the two is in force at a time.

use core::mem::offset_of;

use fallible::Arc;
use ndk_abi::ndis::{
    NDIS_HASH_FUNCTION_MASK, NDIS_HASH_IPV4, NDIS_HASH_IPV6, NDIS_HASH_TCP_IPV4, NDIS_HASH_TCP_IPV6,
    NDIS_HASH_TYPE_MASK, NDIS_HASH_UDP_IPV4, NDIS_HASH_UDP_IPV6, NDIS_OBJECT_HEADER,
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH, NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED,
    NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED, NDIS_RECEIVE_HASH_PARAMETERS as Parameters,
    NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1, NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1, NDIS_STATUS,
    NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_RESOURCES,
    NdisHashFunctionToeplitz,
};
use virtio_net::{HASH_KEY_LEN, HashTypes, Toeplitz};

/// Minimum length of an `OID_GEN_RECEIVE_HASH` request, in bytes.
pub const PARAMETERS_LEN: usize = NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1 as usize;

/// Hash types, and NDIS's values for them.
const TYPES: [(HashTypes, u32); 6] = [
    (HashTypes::IPV4, NDIS_HASH_IPV4),
    (HashTypes::TCP_IPV4, NDIS_HASH_TCP_IPV4),
    (HashTypes::UDP_IPV4, NDIS_HASH_UDP_IPV4),
    (HashTypes::IPV6, NDIS_HASH_IPV6),
    (HashTypes::TCP_IPV6, NDIS_HASH_TCP_IPV6),
    (HashTypes::UDP_IPV6, NDIS_HASH_UDP_IPV6),
];

/// Types and key of the hashes of received frames.
pub struct ReceiveHash {
    pub types: HashTypes,
    pub key: [u8; HASH_KEY_LEN],
    toeplitz: Arc<Toeplitz>,
}

impl ReceiveHash {
    /// Returns what a frame's list states: `NetBufferListHashInfo`, which is function and type, and `NetBufferListHashValue`; `None` for a
    /// frame of none of the types. `reported` is the hash that the device has reported, if any.
    pub fn of(&self, frame: &[u8], reported: Option<(HashTypes, u32)>) -> Option<(u32, u32)> {
        let (kind, value) = self.toeplitz.of_received(frame, self.types, reported)?;
        let (_, number) = TYPES.iter().find(|(of, _)| *of == kind)?;
        Some((NdisHashFunctionToeplitz | number, value))
    }

    /// Returns what `information` and `key` request; a part that is `None` is that of `current`, which must exist. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// `NDIS_STATUS_INVALID_PARAMETER` if a part is missing or not supported, `NDIS_STATUS_RESOURCES` without memory.
    pub fn new(
        information: Option<u32>,
        key: Option<&[u8]>,
        current: Option<&Self>,
    ) -> Result<Self, NDIS_STATUS> {
        let invalid = NDIS_STATUS_INVALID_PARAMETER;
        let types = match information {
            Some(information) => hash_types(information).ok_or(invalid)?,
            None => current.ok_or(invalid)?.types,
        };
        let key = match key {
            Some(key) => key.try_into().map_err(|_| invalid)?,
            None => current.ok_or(invalid)?.key,
        };
        let toeplitz = match current.filter(|current| current.key == key) {
            Some(current) => Arc::clone(&current.toeplitz),
            None => toeplitz(&key).ok_or(NDIS_STATUS_RESOURCES)?,
        };
        Ok(Self { types, key, toeplitz })
    }

    /// Returns the hashes that an `OID_GEN_RECEIVE_HASH` request of at least [`PARAMETERS_LEN`] bytes requests, which may leave a part of
    /// `current` unchanged; `None` if it requests none. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// `NDIS_STATUS_INVALID_LENGTH` for a key beyond the end; those of [`new`](Self::new).
    pub fn parse(request: &Request<'_>, current: Option<&Self>) -> Result<Option<Self>, NDIS_STATUS> {
        request.check_header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1,
            PARAMETERS_LEN,
        )?;
        let flags = request.word(offset_of!(Parameters, Flags))?;
        if flags & NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH == 0 {
            return Ok(None);
        }
        // A part flagged as unchanged must be in the request if there are no current parameters.
        let is_changed = |flag: u32| current.is_none() || flags & flag == 0;
        let information = is_changed(NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED)
            .then(|| request.word(offset_of!(Parameters, HashInformation)))
            .transpose()?;
        let key = is_changed(NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED)
            .then(|| {
                request.part(
                    offset_of!(Parameters, HashSecretKeyOffset),
                    offset_of!(Parameters, HashSecretKeySize),
                )
            })
            .transpose()?;
        Self::new(information, key, current).map(Some)
    }
}

/// Returns the types of hash information; `None` if the function is not Toeplitz, there is no type, or one is not supported.
fn hash_types(information: u32) -> Option<HashTypes> {
    let numbers = information & NDIS_HASH_TYPE_MASK;
    let chosen = TYPES.iter().filter(|(_, number)| numbers & number != 0);
    let (types, known) =
        chosen.fold((HashTypes::empty(), 0), |(types, known), (of, number)| (types | *of, known | number));
    let is_toeplitz = information & NDIS_HASH_FUNCTION_MASK == NdisHashFunctionToeplitz;
    (is_toeplitz && known == numbers && numbers != 0).then_some(types)
}

fn toeplitz(key: &[u8; HASH_KEY_LEN]) -> Option<Arc<Toeplitz>> {
    Arc::try_new(Toeplitz::try_new(key).ok()?).ok()
}

/// The bytes of a request, which may be unaligned.
pub struct Request<'a>(pub &'a [u8]);

impl<'a> Request<'a> {
    /// Checks the type of the structure, that its revision is at least `revision`, and that it has at least `len` bytes.
    ///
    /// # Errors
    /// `NDIS_STATUS_INVALID_PARAMETER`, or `NDIS_STATUS_INVALID_LENGTH` without a header.
    pub fn check_header(&self, kind: u8, revision: u8, len: usize) -> Result<(), NDIS_STATUS> {
        let [of_kind, of_revision] = self.array(0)?;
        let size = self.half(offset_of!(NDIS_OBJECT_HEADER, Size))?;
        if of_kind == kind && of_revision >= revision && usize::from(size) >= len {
            Ok(())
        } else {
            Err(NDIS_STATUS_INVALID_PARAMETER)
        }
    }

    pub fn revision(&self) -> Result<u8, NDIS_STATUS> {
        self.array(offset_of!(NDIS_OBJECT_HEADER, Revision)).map(u8::from_le_bytes)
    }

    pub fn array<const LEN: usize>(&self, at: usize) -> Result<[u8; LEN], NDIS_STATUS> {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().ok_or(NDIS_STATUS_INVALID_LENGTH)
    }

    pub fn half(&self, at: usize) -> Result<u16, NDIS_STATUS> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub fn word(&self, at: usize) -> Result<u32, NDIS_STATUS> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Returns the part whose offset and length are at these places.
    pub fn part(&self, offset: usize, len: usize) -> Result<&'a [u8], NDIS_STATUS> {
        let (start, len) = (self.word(offset)? as usize, usize::from(self.half(len)?));
        let part = self.0.get(start..).and_then(|rest| rest.get(..len));
        part.ok_or(NDIS_STATUS_INVALID_LENGTH)
    }
}
