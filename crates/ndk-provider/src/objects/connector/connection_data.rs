// SPDX-License-Identifier: MIT OR Apache-2.0

//! Read limits and private data, which the two sides exchange while connecting.

use crate::base::limits::LIMITS;
use crate::base::status::NtResult;
use ndk_abi::nt::STATUS_INVALID_BUFFER_SIZE;
use roce::{PrivateData, ReadLimits};

/// The parameters that a connector knows.
#[derive(Clone, Copy)]
pub(super) enum Exchanged {
    None,
    /// This side's, while the path to the peer is being resolved.
    Local(ConnectParameters),
    /// The peer's private data, and the negotiated read limits.
    Peer(ConnectParameters),
}

/// Read limits and private data, checked and copied.
//= R-CONN-13
#[derive(Clone, Copy)]
pub struct ConnectParameters {
    pub(super) reads: ReadLimits,
    pub(super) private_data: PrivateData,
}

impl ConnectParameters {
    /// Checks and copies a consumer's parameters. Read limits above the adapter's are reduced silently; private data
    /// is limited to `max_private_data` bytes.
    ///
    /// # Errors
    /// `STATUS_INVALID_BUFFER_SIZE` if the private data is too long.
    //= R-CONN-20, R-CONN-23
    //= R-CONN-14, R-CONN-15
    pub fn new(inbound: u32, outbound: u32, private_data: &[u8], max_private_data: u32) -> NtResult<Self> {
        if private_data.len() > max_private_data as usize {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let reduce = |requested: u32, limit: u32| u8::try_from(requested.min(limit)).unwrap_or(u8::MAX);
        let reads = ReadLimits {
            inbound: reduce(inbound, LIMITS.inbound_reads),
            outbound: reduce(outbound, LIMITS.outbound_reads),
        };
        let private_data = PrivateData::new(private_data).ok_or(STATUS_INVALID_BUFFER_SIZE)?;
        Ok(Self { reads, private_data })
    }
}

/// The result of `NdkGetConnectionData`.
pub struct ConnectionData {
    pub inbound: u32,
    pub outbound: u32,
    pub private_data: PrivateData,
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-CONN-15, R-CONN-20
    #[test]
    fn read_limits_are_reduced_and_long_private_data_is_refused() {
        let parameters = ConnectParameters::new(65535, 3, &[1; 56], 56).ok().unwrap();
        assert_eq!(parameters.reads, ReadLimits { inbound: 16, outbound: 3 });
        assert_eq!(ConnectParameters::new(0, 0, &[1; 57], 56).err(), Some(STATUS_INVALID_BUFFER_SIZE));
    }
}
