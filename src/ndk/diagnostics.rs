// SPDX-License-Identifier: MIT OR Apache-2.0

//! Vendor-specific queries: the counters and the last events of the RoCE engine.

use ndk_abi::ndis::{NDIS_GUID, NDIS_OID, NDIS_STATUS_RESOURCES, fNDIS_GUID_TO_OID};
use ndk_abi::nt::GUID;
use viordma_inf::counters::OF_DRIVER;

use super::provider::Ndk;
use crate::query_answer::Answer;
use crate::trace::TimedRecord;

/// One record of [`counters`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    /// ASCII, padded with zeroes.
    name: [u8; 32],
    value: u64,
}

/// Values of [`OF_DRIVER`].
pub type OwnCounters = [u64; OF_DRIVER.len()];

/// Calls `see` with the name and value of each counter: the engine's, then `own`.
fn each(ndk: &Ndk, own: OwnCounters, see: &mut dyn FnMut(&'static str, u64)) {
    ndk.provider().counters(see);
    for (counter, value) in OF_DRIVER.iter().zip(own) {
        see(counter.name, value);
    }
}

/// Returns the number of counters.
fn count(ndk: &Ndk) -> usize {
    let mut count = 0_usize;
    each(ndk, [0; OF_DRIVER.len()], &mut |_, _| count = count.saturating_add(1));
    count
}

/// `OID_VIORDMA_COUNTERS`: an array of records of a name in 32 bytes and a 64-bit value.
pub fn counters(ndk: &Ndk, own: OwnCounters, answer: &mut Answer) {
    if !answer.fits(length::<Record>(count(ndk))) {
        return;
    }
    let mut added = 0_usize;
    each(ndk, own, &mut |name, value| {
        let mut record = Record { name: [0; 32], value };
        for (to, from) in record.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        answer.put(length::<Record>(added), &record);
        added = added.saturating_add(1);
    });
}

/// `OID_VIORDMA_COUNTER_VALUES`: the values alone, as WMI's class has them.
pub fn counter_values(ndk: &Ndk, own: OwnCounters, answer: &mut Answer) {
    if !answer.fits(length::<u64>(count(ndk))) {
        return;
    }
    let mut added = 0_usize;
    each(ndk, own, &mut |_, value| {
        answer.put(length::<u64>(added), &value);
        added = added.saturating_add(1);
    });
}

/// `OID_GEN_SUPPORTED_GUIDS`: the GUID of the counters, which NDIS registers with WMI and maps to `oid`. Without further flags, administrators
/// alone may read it, and no one can set it, because the OID cannot be set.
pub fn guids(ndk: &Ndk, oid: NDIS_OID, answer: &mut Answer) {
    answer.value(&NDIS_GUID {
        Guid: GUID::from_u128(viordma_inf::counters::GUID),
        Oid: oid,
        Size: u32::try_from(length::<u64>(count(ndk))).unwrap_or(u32::MAX),
        Flags: fNDIS_GUID_TO_OID,
    });
}

/// One record of [`trace`].
#[repr(C)]
#[derive(Clone, Copy)]
struct TraceEntry {
    /// Units of 100 ns since boot.
    time: u64,
    qpn: u32,
    psn: u32,
    /// ASCII, padded with zeroes.
    event: [u8; 32],
}

/// `OID_VIORDMA_TRACE`: the last events of the engine, oldest first; none while tracing is off. `PASSIVE_LEVEL`.
pub fn trace(ndk: &Ndk, answer: &mut Answer) {
    let Ok(records) = ndk.tracing().records() else { return answer.refuse(NDIS_STATUS_RESOURCES) };
    let count = records.iter().flatten().count();
    if !answer.fits(length::<TraceEntry>(count)) {
        return;
    }
    for (index, TimedRecord { time, record }) in records.iter().flatten().enumerate() {
        let mut event = [0; 32];
        for (to, from) in event.iter_mut().zip(record.event.text().into_iter().flat_map(str::bytes)) {
            *to = from;
        }
        let entry = TraceEntry { time: time / 100, qpn: record.qpn.value(), psn: record.psn.value(), event };
        answer.put(length::<TraceEntry>(index), &entry);
    }
}

/// Returns the length of `count` records in bytes.
const fn length<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}
