//! Counters and lists behind the NDK OIDs. The driver's OID handler owns buffers and statuses; this module
//! knows what is in them.

use crate::address::{inet, of_link};
use crate::ports::Purpose;
use crate::provider::Core;
use core::sync::atomic::{AtomicU64, Ordering};
use ndk_abi::ndk::{NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_PERFORMANCE_COUNTERS};

/// What the provider itself counts; the rest is the engine's.
#[derive(Default)]
pub struct Counters {
    pub connect: Counter,
    pub accept: Counter,
    pub connect_failure: Counter,
    pub connection_error: Counter,
    pub active: Counter,
    pub cq_error: Counter,
    pub frames_in: Counter,
    pub octets_in: Counter,
    pub frames_out: Counter,
    pub octets_out: Counter,
}

/// One number.
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

impl Core {
    /// The counters of `OID_NDK_STATISTICS`. IRQL <= `DISPATCH_LEVEL`.
    //= R-PERF-2, R-PERF-3, R-PERF-4, R-PERF-5, R-PERF-6, R-PERF-7, R-PERF-8, R-PERF-9, R-PERF-12
    pub fn performance(&self) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: self.counters.connect.get(),
            Accept: self.counters.accept.get(),
            ConnectFailure: self.counters.connect_failure.get(),
            ConnectionError: self.counters.connection_error.get(),
            ActiveConnection: self.counters.active.get(),
            CQError: self.counters.cq_error.get(),
            RDMAInOctets: self.counters.octets_in.get(),
            RDMAOutOctets: self.counters.octets_out.get(),
            RDMAInFrames: self.counters.frames_in.get(),
            RDMAOutFrames: self.counters.frames_out.get(),
            ..ZERO
        }
    }

    /// Shows every active connection to `each`; the entries of `OID_NDK_CONNECTIONS`. Each entry is
    /// consistent in itself.
    //= R-OIDNDK-19, R-OIDNDK-21, R-OIDNDK-26, R-OIDNDK-27
    pub fn connections(&self, mut each: impl FnMut(NDIS_NDK_CONNECTION_ENTRY)) {
        self.registry.connectors(|connector| {
            if let Some((local, remote)) = connector.active_ends() {
                each(NDIS_NDK_CONNECTION_ENTRY {
                    Local: inet(local),
                    Remote: inet(remote),
                    UserModeOwner: 0,
                    OwnerPid: 0,
                });
            }
        });
    }

    /// Shows every listener and shared endpoint to `each`; the entries of `OID_NDK_LOCAL_ENDPOINTS`.
    //= R-OIDNDK-23, R-OIDNDK-24
    pub fn local_endpoints(&self, mut each: impl FnMut(NDIS_NDK_LOCAL_ENDPOINT_ENTRY)) {
        let scope = self.host.link().scope;
        self.ports.for_each(|address, purpose| {
            let address = of_link(address.ip(), address.port(), scope);
            let listener = match purpose {
                Purpose::Listener => 1,
                Purpose::SharedEndpoint => 0,
                Purpose::Connector => return,
            };
            each(NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
                Local: inet(address),
                UserModeOwner: 0,
                Listener: listener,
                OwnerPid: 0,
            });
        });
    }
}
