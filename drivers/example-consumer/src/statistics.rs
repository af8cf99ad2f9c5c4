// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters of the driver, for its statistics IOCTL.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter.
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Any IRQL.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// All counters, in the order of the statistics IOCTL's output.
        pub struct Statistics {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Statistics {
            const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }

            /// Returns the values, in the order of their declaration.
            pub fn values(&self) -> [u64; [$(stringify!($name)),*].len()] {
                [$(self.$name.value()),*]
            }
        }
    };
}

statistics! {
    /// Connections established, by this host's clients and servers.
    connections,
    /// Connections that failed or that the peer ended.
    connections_lost,
    /// Connection requests that the server refused.
    refused,
    /// Requests that the server answered.
    requests,
    messages_sent,
    messages_received,
    /// Messages that only granted credits.
    grants_sent,
    /// Fast registrations.
    registrations,
    local_invalidations,
    /// Receives that invalidated a token.
    remote_invalidations,
    rdma_reads,
    rdma_writes,
    bytes_written,
    bytes_read,
}

/// The driver's counters.
pub static STATISTICS: Statistics = Statistics::new();
