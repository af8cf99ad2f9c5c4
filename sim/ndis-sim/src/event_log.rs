//! The event log: what an administrator would read.

use nt_sim::{current, imports, services::Slot};
use parking_lot::Mutex;

use crate::{adapter::Adapter, handle};

/// The entries the image wrote so far.
pub(crate) static LOG: Slot<Mutex<Vec<LogEntry>>> = Slot::new();

/// An entry of [`NdisWriteErrorLogEntry`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// When it was written, in nanoseconds of the simulation.
    pub time: u64,
    /// The event, with severity and facility in the high bits.
    pub code: u32,
    pub data: Vec<u32>,
}

/// Most values an entry can carry here.
const MAX_VALUES: usize = 9;

imports! { IMPORTS: "ndis.sys" =>
    /// Writes an entry; as many 32-bit values follow as the count says. (A variable argument list of integers is passed
    /// as if the parameters were declared.)
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
        let _ = handle::object::<Adapter>("miniport adapter handle", handle);
        let values: [u32; MAX_VALUES] = [a, b, c, d, e, f, g, h, i];
        let data = values[..(count as usize).min(MAX_VALUES)].to_vec();
        let host = current().host().clone();
        host.state(&LOG).lock().push(LogEntry { time: host.world().now(), code, data });
    }
}
