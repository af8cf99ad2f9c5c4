// SPDX-License-Identifier: MIT OR Apache-2.0

//! The provider's own counters. The engine has others.

use core::sync::atomic::{AtomicU64, Ordering};
use ndk_abi::ndk::NDIS_NDK_PERFORMANCE_COUNTERS;

/// Counters that `OID_NDK_STATISTICS` reports.
#[derive(Default)]
pub struct Counters {
    pub connect: Counter,
    pub accept: Counter,
    pub connect_failure: Counter,
    pub connection_error: Counter,
    pub active: Counter,
    pub frames_in: Counter,
    pub octets_in: Counter,
    pub frames_out: Counter,
    pub octets_out: Counter,
}

/// A counter that any thread may change.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        self.add_many(1);
    }

    pub fn add_many(&self, many: usize) {
        self.0.fetch_add(many as u64, Ordering::Relaxed);
    }

    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Returns the counters in the layout of `OID_NDK_STATISTICS`. `cq_errors` is the number of completion queues that
    /// have overflowed, armed or not.
    //= R-PERF-1, R-PERF-11
    //= R-PERF-2, R-PERF-3, R-PERF-4, R-PERF-5, R-PERF-6, R-PERF-7, R-PERF-8, R-PERF-9, R-PERF-12
    pub fn snapshot(&self, cq_errors: u64) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: self.connect.get(),
            Accept: self.accept.get(),
            ConnectFailure: self.connect_failure.get(),
            ConnectionError: self.connection_error.get(),
            ActiveConnection: self.active.get(),
            CQError: cq_errors,
            RDMAInOctets: self.octets_in.get(),
            RDMAOutOctets: self.octets_out.get(),
            RDMAInFrames: self.frames_in.get(),
            RDMAOutFrames: self.frames_out.get(),
            ..ZERO
        }
    }
}

/// All counters zero, reserved ones included.
//= R-PERF-10
const ZERO: NDIS_NDK_PERFORMANCE_COUNTERS = NDIS_NDK_PERFORMANCE_COUNTERS {
    Connect: 0,
    Accept: 0,
    ConnectFailure: 0,
    ConnectionError: 0,
    ActiveConnection: 0,
    Reserved01: 0,
    Reserved02: 0,
    Reserved03: 0,
    Reserved04: 0,
    Reserved05: 0,
    Reserved06: 0,
    Reserved07: 0,
    Reserved08: 0,
    Reserved09: 0,
    Reserved10: 0,
    Reserved11: 0,
    Reserved12: 0,
    Reserved13: 0,
    Reserved14: 0,
    Reserved15: 0,
    Reserved16: 0,
    Reserved17: 0,
    Reserved18: 0,
    Reserved19: 0,
    Reserved20: 0,
    CQError: 0,
    RDMAInOctets: 0,
    RDMAOutOctets: 0,
    RDMAInFrames: 0,
    RDMAOutFrames: 0,
};
