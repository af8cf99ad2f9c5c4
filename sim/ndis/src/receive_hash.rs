// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hashes of received frames without receive side scaling. (windows-driver-docs: network/oid-gen-receive-hash)

use device_sim::toeplitz::KEY_LEN;
use ndk_abi::ndis::{
    NDIS_HASH_FUNCTION_MASK, NDIS_HASH_TYPE_MASK, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH, NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED,
    NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED, NDIS_RECEIVE_HASH_PARAMETERS,
    NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1, NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1,
    NdisHashFunctionToeplitz,
};
use nt_sim::guest::Guest;

/// Which hashes received frames have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashParameters {
    /// `NDIS_HASH_*`
    pub types: u32,
    pub key: [u8; KEY_LEN],
}

impl HashParameters {
    /// Returns the bytes of an `OID_GEN_RECEIVE_HASH` request with these flags.
    #[must_use]
    pub fn encode(&self, flags: u32) -> Vec<u8> {
        let start = size_of::<NDIS_RECEIVE_HASH_PARAMETERS>();
        let mut request = NDIS_RECEIVE_HASH_PARAMETERS::zeroed();
        request.Header.Type = NDIS_OBJECT_TYPE_DEFAULT;
        request.Header.Revision = NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1;
        request.Header.Size = NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1;
        request.Flags = flags;
        request.HashInformation = NdisHashFunctionToeplitz | self.types;
        request.HashSecretKeySize = KEY_LEN as u16;
        request.HashSecretKeyOffset = start as u32;
        let mut bytes = vec![0; start];
        Guest::<u8>::new((&raw mut request).cast()).read_bytes(&mut bytes);
        bytes.extend(self.key);
        bytes
    }

    /// Returns the parameters of a request to an adapter with `current` parameters, for which hashes of `types` can be requested; `None` if
    /// it requests none.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn decode(
        bytes: &[u8],
        types: u32,
        current: Option<&Self>,
    ) -> Result<Option<Self>, &'static str> {
        let mut request = NDIS_RECEIVE_HASH_PARAMETERS::zeroed();
        if bytes.len() < size_of_val(&request) {
            return Err("it is shorter than the structure");
        }
        Guest::<u8>::new((&raw mut request).cast()).write_bytes(&bytes[..size_of_val(&request)]);
        let header = request.Header;
        let is_known = header.Type == NDIS_OBJECT_TYPE_DEFAULT
            && header.Revision >= NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1
            && header.Size >= NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1;
        if !is_known {
            return Err("its header is wrong");
        }
        if request.Flags & NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH == 0 {
            return Ok(None);
        }
        // A parameter is unchanged only if there is one.
        let unchanged = |flag: u32| current.filter(|_| request.Flags & flag != 0);
        let requested = match unchanged(NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED) {
            Some(current) => current.types,
            None if request.HashInformation & NDIS_HASH_FUNCTION_MASK != NdisHashFunctionToeplitz => {
                return Err("its hash function is not Toeplitz");
            }
            None => request.HashInformation & NDIS_HASH_TYPE_MASK,
        };
        if requested == 0 || requested & !types != 0 {
            return Err("its hash types are not among the capabilities");
        }
        let start = request.HashSecretKeyOffset as usize;
        let key = match unchanged(NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED) {
            Some(current) => current.key,
            None => start
                .checked_add(request.HashSecretKeySize.into())
                .and_then(|end| bytes.get(start..end))
                .and_then(|key| key.try_into().ok())
                .ok_or("its key is beyond its end, or has not 40 bytes")?,
        };
        Ok(Some(Self { types: requested, key }))
    }
}
