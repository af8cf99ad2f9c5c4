// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counters of `OID_GEN_STATISTICS`.

use ndk_abi::ndis::{
    NDIS_SIZEOF_STATISTICS_INFO_REVISION_1, NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT, NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT, NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT, NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT, NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT, NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT, NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV,
    NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT, NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS,
    NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR, NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS,
    NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR, NDIS_STATISTICS_INFO,
};

/// The flags of `SupportedStatistics`. Those of the general attributes (`NDIS_STATISTICS_*_SUPPORTED`) are others.
const FLAGS: u32 = NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT;

/// Checks an answer; returns what is wrong with it.
pub(crate) fn check(answer: &[u8]) -> Result<(), String> {
    let member =
        |at: usize| answer.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let is_valid = |flag: u32, supported: u32| supported & flag != 0;
    let flags = std::mem::offset_of!(NDIS_STATISTICS_INFO, SupportedStatistics);
    let whole = answer.get(..usize::from(NDIS_SIZEOF_STATISTICS_INFO_REVISION_1));
    let Some(supported) = whole.and_then(|whole| whole.get(flags..flags + 4)) else {
        return Err(format!("OID_GEN_STATISTICS returned {} bytes", answer.len()));
    };
    let supported = u32::from_le_bytes(supported.try_into().unwrap());
    if supported & !FLAGS != 0 {
        return Err(format!(
            "OID_GEN_STATISTICS: SupportedStatistics is {supported:#x}, but NDIS_STATISTICS_FLAGS_VALID_* are {FLAGS:#x}"
        ));
    }
    let discards = member(std::mem::offset_of!(NDIS_STATISTICS_INFO, ifInDiscards));
    let errors = member(std::mem::offset_of!(NDIS_STATISTICS_INFO, ifInErrors));
    let both = is_valid(NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS, supported)
        && is_valid(NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR, supported);
    if both && discards < errors {
        return Err(format!(
            "OID_GEN_STATISTICS: ifInDiscards is {}, less than ifInErrors, {}, which it includes",
            discards.unwrap_or(0),
            errors.unwrap_or(0)
        ));
    }
    Ok(())
}
