// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's counters by WMI: the GUID that NDIS registers, and its data.

use lab::testbed::Testbed;
use ndis_sim::WmiRequests;
use ndk_abi::{
    ndis::{NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_NOT_SUPPORTED, fNDIS_GUID_TO_OID},
    nt::GUID,
};
use support::{
    bed::{counter, finish, miniport, started},
    copying::copy,
    traces::OID_VIORDMA_COUNTERS,
};
use viordma_inf::counters::{self, OF_DRIVER};

const COUNTERS: GUID = GUID::from_u128(counters::GUID);
/// Length of a record of the OID that has the names, too.
const RECORD: usize = 40;

/// The counters as the OID reports them: name and value.
fn of_oid(bed: &Testbed) -> Vec<(String, u64)> {
    let answer = miniport(bed.machines()[0]).query(OID_VIORDMA_COUNTERS, 0x4000).unwrap();
    let record = |bytes: &[u8]| {
        let name = bytes[..32].split(|&byte| byte == 0).next().unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), counter(bytes, 32))
    };
    answer.chunks(RECORD).map(record).collect()
}

#[test]
fn the_guid_of_the_counters_has_the_values_that_the_driver_counts() {
    let Some(bed) = started(&[]) else { return };
    copy(&bed);
    let miniport = miniport(bed.machines()[0]);
    let wmi = WmiRequests::of(miniport.host(), miniport.adapter());
    let [guid] = wmi.guids()[..] else { panic!("{:x?}", wmi.guids()) };
    let counted = of_oid(&bed);
    assert_eq!((guid.Guid, guid.Size as usize, guid.Flags), (COUNTERS, 8 * counted.len(), fNDIS_GUID_TO_OID));
    let data = wmi.query(COUNTERS).unwrap().unwrap();
    let values: Vec<u64> = data.chunks(8).map(|value| counter(value, 0)).collect();
    let expected: Vec<u64> = counted.iter().map(|&(_, value)| value).collect();
    assert_eq!(values, expected);
    let named = |name: &str| counted.iter().position(|(other, _)| other == name).unwrap();
    assert!(values[named("rx_sends")] > 0 && values[named("tx_frames")] > 0);
    // Those of the driver are the last ones.
    let last = counted.iter().rev().take(OF_DRIVER.len()).rev().map(|(name, _)| &**name);
    assert!(last.eq(OF_DRIVER.iter().map(|counter| counter.name)));
    finish(bed);
}

#[test]
fn the_guid_of_the_counters_cannot_be_set_and_a_short_buffer_is_refused() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let wmi = WmiRequests::of(miniport.host(), miniport.adapter());
    let refused = wmi.set(COUNTERS, &[0; 8]).unwrap().unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED);
    let [guid] = wmi.guids()[..] else { panic!("{:x?}", wmi.guids()) };
    let short = miniport.query(guid.Oid, guid.Size as usize - 1).unwrap_err();
    assert_eq!((short.status, short.needed), (NDIS_STATUS_BUFFER_TOO_SHORT, guid.Size));
    assert_eq!(wmi.query(GUID::from_u128(1)), None);
    finish(bed);
}
