// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event log.

use nt_sim::{current, imports, services::Slot};
use parking_lot::Mutex;

use crate::{adapter::Adapter, handle};

/// The entries the image wrote so far.
pub(crate) static LOG: Slot<Mutex<Vec<LogEntry>>> = Slot::new();

/// An entry of [`NdisWriteErrorLogEntry`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Index of the interface whose adapter it is about.
    pub interface: u32,
    /// Time of the entry, in nanoseconds of the simulation.
    pub time: u64,
    /// The event, with severity and facility in the high bits.
    pub code: u32,
    pub data: Vec<u32>,
}

impl LogEntry {
    /// Returns whether it only informs; others are warnings and errors.
    #[must_use]
    pub fn is_information(&self) -> bool {
        self.code >> 30 < 2
    }
}

/// Maximum number of values of an entry.
const MAX_VALUES: usize = 9;

imports! { IMPORTS: "ndis.sys" =>
    /// Writes an entry with `count` 32-bit values. (Integers of a variable argument list are passed as if the
    /// parameters were declared.)
    [<= DISPATCH_LEVEL]
    fn NdisWriteErrorLogEntry(
        handle: usize,
        code: u32,
        count: u32,
        a: u32,
        b: u32,
        c: u32,
        d: u32,
        e: u32,
        f: u32,
        g: u32,
        h: u32,
        i: u32,
    ) {
        let adapter = handle::object::<Adapter>("miniport adapter handle", handle);
        let values: [u32; MAX_VALUES] = [a, b, c, d, e, f, g, h, i];
        let data = values[..(count as usize).min(MAX_VALUES)].to_vec();
        let host = current().host().clone();
        host.state(&LOG).lock().push(LogEntry { interface: adapter.if_index, time: host.world().now(), code, data });
    }
}
