// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests of a stack that several steps make: receive side scaling and coalescing. The simulated NDIS checks their statuses.

use ndis_sim::{HashParameters, Miniport, RssParameters};
use ndk_abi::ndis::{
    NDIS_HASH_IPV4, NDIS_HASH_IPV6, NDIS_HASH_TCP_IPV4, NDIS_HASH_TCP_IPV6, NDIS_HASH_UDP_IPV4,
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_OFFLOAD_PARAMETERS_REVISION_3, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED,
    NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED, NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED,
    NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED, NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED,
    NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED, OID_GEN_RECEIVE_SCALE_PARAMETERS, OID_TCP_OFFLOAD_PARAMETERS,
};

use super::step::RssPart;

/// Parameters of the first request: entries of the table as a power of two, and the key.
const LOG2: u8 = 4;
const KEY: u8 = 0x6d;
/// Length of an NDIS_OFFLOAD_PARAMETERS of revision 3, and the offset of its settings of coalescing.
const PARAMETERS: usize = 24;
const RSC: usize = 22;
/// Offset of the size and the offset of the table in NDIS_RECEIVE_SCALE_PARAMETERS, and their end.
const TABLE: [usize; 2] = [12, 20];

/// Spreads received frames over a number of processors; none: no longer. The adapter may be without, and a processor may not exist.
pub fn set_rss(miniport: &Miniport, processors: u8) {
    let _ = miniport.scaling().set((processors > 0).then_some(&parameters(miniport, processors, LOG2)));
}

/// Changes a part of the parameters. What is said to be unchanged is in the request, for an adapter that has none.
pub fn set_rss_part(miniport: &Miniport, part: RssPart) {
    let mut new = parameters(miniport, 2, LOG2);
    let changed = match part {
        RssPart::Table { processors, log2 } => {
            new = parameters(miniport, processors, log2);
            NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED
        }
        RssPart::NoTable => NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED,
        RssPart::Key(byte) => {
            new.key.fill(byte);
            NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED
        }
        RssPart::Types(types) => {
            new.types = types;
            NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED
        }
        RssPart::Default(processor) => {
            new.default_processor = processor;
            NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED
        }
    };
    let all = NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED;
    let mut request = new.encode(all & !changed);
    if part == RssPart::NoTable {
        let [start, end] = TABLE;
        request[start..end].fill(0);
    }
    let _ = miniport.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request);
}

fn parameters(miniport: &Miniport, processors: u8, log2: u8) -> RssParameters {
    let types = miniport.scaling().capabilities().map_or(0, |capabilities| capabilities.types());
    let entries = 1_usize << log2.min(10);
    let table = (0..entries).map(|entry| (entry % usize::from(processors.max(1))) as u8).collect();
    RssParameters { types, key: [KEY; 40], table, default_processor: 0 }
}

/// Requests hashes of received frames without receive side scaling, or none. While that is enabled, the adapter refuses.
pub fn set_receive_hash(miniport: &Miniport, on: bool) {
    let types =
        NDIS_HASH_IPV4 | NDIS_HASH_TCP_IPV4 | NDIS_HASH_UDP_IPV4 | NDIS_HASH_IPV6 | NDIS_HASH_TCP_IPV6;
    let _ = miniport.scaling().set_hash(on.then_some(&HashParameters { types, key: [KEY; 40] }));
}

/// Switches coalescing for IPv4 and IPv6. The adapter may be without.
pub fn set_coalescing(miniport: &Miniport, versions: [bool; 2]) {
    let mut request = [0; PARAMETERS];
    request[..3].copy_from_slice(&[
        NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OFFLOAD_PARAMETERS_REVISION_3,
        PARAMETERS as u8,
    ]);
    request[RSC..].copy_from_slice(&versions.map(|on| {
        if on { NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED } else { NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED }
    }));
    let _ = miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &request);
}
