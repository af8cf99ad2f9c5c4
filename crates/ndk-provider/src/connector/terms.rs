//! What the two sides tell each other while they connect.

use crate::info::LIMITS;
use crate::status::Answer;
use ndk_abi::nt::STATUS_INVALID_BUFFER_SIZE;
use roce::{PrivateData, ReadLimits};

/// What one side tells the other while connecting.
#[derive(Clone, Copy)]
pub(super) enum Said {
    Nothing,
    /// By this side, while the way to the peer is being looked for.
    Here(Terms),
    /// By the peer; the limits as they stand.
    There(Terms),
}

/// Read limits and private data, checked and copied.
//= R-CONN-13
#[derive(Clone, Copy)]
pub struct Terms {
    pub(super) reads: ReadLimits,
    pub(super) private_data: PrivateData,
}

impl Terms {
    /// The limits are lowered to the adapter's silently (R-CONN-20, R-CONN-23); private data may have
    /// `room` bytes (R-CONN-14, R-CONN-15).
    //= R-CONN-20, R-CONN-23
    //= R-CONN-14, R-CONN-15
    pub fn new(inbound: u32, outbound: u32, private_data: &[u8], room: u32) -> Answer<Self> {
        if private_data.len() > room as usize {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let lowered = |asked: u32, limit: u32| u8::try_from(asked.min(limit)).unwrap_or(u8::MAX);
        let reads = ReadLimits {
            inbound: lowered(inbound, LIMITS.inbound_reads),
            outbound: lowered(outbound, LIMITS.outbound_reads),
        };
        let private_data = PrivateData::new(private_data).ok_or(STATUS_INVALID_BUFFER_SIZE)?;
        Ok(Self { reads, private_data })
    }
}

/// What the consumer is shown of the peer's side.
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
    fn limits_are_lowered_and_private_data_is_not() {
        let terms = Terms::new(65535, 3, &[1; 56], 56).ok().unwrap();
        assert_eq!(terms.reads, ReadLimits { inbound: 16, outbound: 3 });
        assert_eq!(Terms::new(0, 0, &[1; 57], 56).err(), Some(STATUS_INVALID_BUFFER_SIZE));
    }
}
