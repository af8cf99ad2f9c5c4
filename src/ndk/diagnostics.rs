// SPDX-License-Identifier: MIT OR Apache-2.0

//! Vendor-specific queries: the counters and the last events of the RoCE engine.

use ndk_abi::ndis::NDIS_STATUS_RESOURCES;

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

/// `OID_VIORDMA_COUNTERS`: the engine's counters, then `others`, as an array of records of a name in 32 bytes and a 64-bit value.
pub fn counters(ndk: &Ndk, others: &[(&'static str, u64)], answer: &mut Answer) {
    let provider = ndk.provider();
    let mut count = others.len();
    provider.counters(&mut |_, _| count = count.saturating_add(1));
    if !answer.fits(length::<Record>(count)) {
        return;
    }
    let mut added = 0_usize;
    let mut add = |name: &'static str, value| {
        let mut record = Record { name: [0; 32], value };
        for (to, from) in record.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        answer.put(length::<Record>(added), &record);
        added = added.saturating_add(1);
    };
    provider.counters(&mut add);
    for &(name, value) in others {
        add(name, value);
    }
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
