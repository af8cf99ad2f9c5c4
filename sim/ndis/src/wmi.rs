// SPDX-License-Identifier: MIT OR Apache-2.0

//! Custom GUIDs, which NDIS registers with WMI: it asks a miniport that has started for `OID_GEN_SUPPORTED_GUIDS`, and turns queries of a GUID
//! into queries of its OID. (Windows driver documentation, "Customized OIDs and Status Indications", "Filling in an NDIS_GUID Structure")

use std::sync::Arc;

use ndk_abi::{
    ndis::{
        NDIS_GUID, NDIS_OID, NDIS_REQUEST_TYPE, NDIS_STATUS_BUFFER_TOO_SHORT, OID_GEN_SUPPORTED_GUIDS,
        fNDIS_GUID_ALLOW_READ, fNDIS_GUID_ALLOW_WRITE, fNDIS_GUID_ANSI_STRING, fNDIS_GUID_ARRAY,
        fNDIS_GUID_TO_OID, fNDIS_GUID_TO_STATUS, fNDIS_GUID_UNICODE_STRING,
    },
    nt::GUID,
};

use crate::{
    adapter::Adapter,
    oid::OidError,
    rules::{self, broken},
};

/// Length of an element of the answer, in bytes.
const ELEMENT: usize = size_of::<NDIS_GUID>();
/// Flags that a miniport may use.
const FLAGS: u32 = KINDS
    | fNDIS_GUID_ANSI_STRING
    | fNDIS_GUID_UNICODE_STRING
    | fNDIS_GUID_ARRAY
    | fNDIS_GUID_ALLOW_READ
    | fNDIS_GUID_ALLOW_WRITE;
/// Flags for what a GUID stands for: an OID, or a status that the miniport indicates. One of the two.
const KINDS: u32 = fNDIS_GUID_TO_OID | fNDIS_GUID_TO_STATUS;
/// Size of data of which the length varies.
const VARIABLE: u32 = u32::MAX;

/// Asks the miniport for its custom GUIDs, if its list of OIDs says that it has some. On a thread of the host, at `PASSIVE_LEVEL`.
pub(crate) fn register(adapter: &Arc<Adapter>) {
    let oids = adapter.oids.lock().clone();
    if !oids.contains(&OID_GEN_SUPPORTED_GUIDS) {
        return;
    }
    // A miniport that fails the request has no GUIDs.
    let Ok(answer) = query(adapter, OID_GEN_SUPPORTED_GUIDS) else { return };
    match parse(&answer, &oids) {
        Ok(guids) => *adapter.guids.lock() = guids,
        Err(wrong) => broken(rules::GUIDS, wrong),
    }
}

/// Queries an OID, first without a buffer.
fn query(adapter: &Arc<Adapter>, oid: NDIS_OID) -> Result<Vec<u8>, OidError> {
    let kind = NDIS_REQUEST_TYPE::NdisRequestQueryStatistics;
    let mut buffer = match adapter.oid(kind, oid, &mut []) {
        Err(error) if error.status == NDIS_STATUS_BUFFER_TOO_SHORT => vec![0xcc; error.needed as usize],
        outcome => return outcome.map(|_| Vec::new()),
    };
    let written = adapter.oid(kind, oid, &mut buffer)?;
    buffer.truncate(written as usize);
    Ok(buffer)
}

/// Returns the GUIDs of an answer, or what is wrong with it.
fn parse(answer: &[u8], oids: &[NDIS_OID]) -> Result<Vec<NDIS_GUID>, String> {
    let (elements, rest) = answer.as_chunks::<ELEMENT>();
    if !rest.is_empty() {
        return Err(format!("OID_GEN_SUPPORTED_GUIDS returned {} bytes", answer.len()));
    }
    let mut guids: Vec<NDIS_GUID> = Vec::new();
    for element in elements {
        let word = |at: usize| u32::from_le_bytes(element[at..at + 4].try_into().expect("four bytes"));
        let half = |at: usize| u16::from_le_bytes(element[at..at + 2].try_into().expect("two bytes"));
        let last = element[8..16].try_into().expect("eight bytes");
        let guid = NDIS_GUID {
            Guid: GUID { Data1: word(0), Data2: half(4), Data3: half(6), Data4: last },
            Oid: word(16),
            Size: word(20),
            Flags: word(24),
        };
        let wrong = if guid.Guid == GUID::from_u128(0) || guids.iter().any(|other| other.Guid == guid.Guid) {
            "a GUID that is null, or not unique"
        } else if (guid.Flags & KINDS).count_ones() != 1 || guid.Flags & !FLAGS != 0 {
            "flags that no miniport may use, or not one of fNDIS_GUID_TO_OID and fNDIS_GUID_TO_STATUS"
        } else if is_oid(&guid) && (guid.Oid >> 24 != 0xff || !oids.contains(&guid.Oid)) {
            "an OID that is not custom, or not in the list of supported OIDs"
        } else if guid.Flags & (fNDIS_GUID_ANSI_STRING | fNDIS_GUID_UNICODE_STRING) != 0
            && guid.Size != VARIABLE
            || guid.Size == 0
        {
            "the size of a string, or of no data, which is -1"
        } else {
            guids.push(guid);
            continue;
        };
        return Err(format!("OID_GEN_SUPPORTED_GUIDS has {wrong}: {guid:x?}"));
    }
    Ok(guids)
}

/// Whether a GUID stands for an OID, not for a status, which can be neither queried nor set.
fn is_oid(guid: &NDIS_GUID) -> bool {
    guid.Flags & fNDIS_GUID_TO_OID != 0
}

/// Returns the entry of a GUID that stands for an OID.
fn find(adapter: &Adapter, guid: GUID) -> Option<NDIS_GUID> {
    adapter.guids.lock().iter().find(|known| known.Guid == guid && is_oid(known)).copied()
}

/// Queries a GUID, as WMI does. `None` if the miniport has no such GUID.
pub(crate) fn query_guid(adapter: &Arc<Adapter>, guid: GUID) -> Option<Result<Vec<u8>, OidError>> {
    let guid = find(adapter, guid)?;
    Some(query(adapter, guid.Oid).inspect(|data| {
        if let Err(wrong) = check_length(&guid, data.len()) {
            broken(rules::GUIDS, wrong);
        }
    }))
}

/// Sets a GUID, as WMI does for an administrator. `None` if the miniport has no such GUID.
pub(crate) fn set_guid(adapter: &Arc<Adapter>, guid: GUID, value: &[u8]) -> Option<Result<(), OidError>> {
    let guid = find(adapter, guid)?;
    Some(adapter.set_oid(guid.Oid, value))
}

/// Compares the length of data with that of its GUID; returns what is wrong.
fn check_length(guid: &NDIS_GUID, length: usize) -> Result<(), String> {
    let size = guid.Size as usize;
    let is_right = guid.Size == VARIABLE
        || if guid.Flags & fNDIS_GUID_ARRAY == 0 { length == size } else { length.is_multiple_of(size) };
    if is_right { Ok(()) } else { Err(format!("a GUID of {size} bytes has {length}: {guid:x?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OID: NDIS_OID = 0xff5d_0103;

    fn bytes(guid: u8, oid: NDIS_OID, size: u32, flags: u32) -> Vec<u8> {
        let mut bytes = vec![guid; 16];
        for word in [oid, size, flags] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn each_fault_of_an_answer_is_named() {
        let good = bytes(1, OID, 8, fNDIS_GUID_TO_OID);
        let faults: [(Vec<u8>, &str); 9] = [
            (good[1..].to_vec(), "returned 27 bytes"),
            (bytes(0, OID, 8, fNDIS_GUID_TO_OID), "null, or not unique"),
            ([&good[..], &good[..]].concat(), "null, or not unique"),
            (bytes(1, OID, 8, 0), "not one of fNDIS_GUID_TO_OID"),
            (bytes(1, OID, 8, KINDS), "not one of fNDIS_GUID_TO_OID"),
            (bytes(1, 0x0001_0117, 8, fNDIS_GUID_TO_OID), "not custom"),
            (bytes(1, OID + 1, 8, fNDIS_GUID_TO_OID), "not in the list"),
            (bytes(1, OID, 8, fNDIS_GUID_TO_OID | fNDIS_GUID_ANSI_STRING), "the size of a string"),
            (bytes(1, OID, 0, fNDIS_GUID_TO_OID), "or of no data"),
        ];
        let oids = [OID_GEN_SUPPORTED_GUIDS, OID];
        for (answer, fault) in faults {
            let wrong = parse(&answer, &oids).unwrap_err();
            assert!(wrong.contains(fault), "{fault}: {wrong}");
        }
        let two = [&good[..], &bytes(2, OID, VARIABLE, fNDIS_GUID_TO_OID)].concat();
        assert_eq!(parse(&two, &oids).unwrap().len(), 2);
        // The number is that of a status.
        let of_status = bytes(1, 0x4001_0001, 8, fNDIS_GUID_TO_STATUS);
        let guids = parse(&of_status, &oids).unwrap();
        assert_eq!(guids.iter().map(is_oid).collect::<Vec<_>>(), [false]);
        assert_eq!(parse(&[], &oids), Ok(Vec::new()));
    }

    #[test]
    fn data_have_the_length_of_their_guid() {
        let of = |size, flags| NDIS_GUID { Guid: GUID::from_u128(1), Oid: OID, Size: size, Flags: flags };
        for (guid, length, is_right) in [
            (of(8, 1), 8, true),
            (of(8, 1), 16, false),
            (of(8, 1), 0, false),
            (of(8, 1 | fNDIS_GUID_ARRAY), 16, true),
            (of(8, 1 | fNDIS_GUID_ARRAY), 12, false),
            (of(VARIABLE, 1), 3, true),
        ] {
            assert_eq!(check_length(&guid, length).is_ok(), is_right, "{guid:x?} {length}");
        }
    }
}
