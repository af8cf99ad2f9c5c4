//! The imports of `ndis.sys` and the state behind them: an NDIS 6.85 for one miniport driver.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`driver`] | registration of the driver and its optional handlers |
//! | [`adapter`] | one adapter: its states, attributes, what it holds |
//! | [`miniport`] | the harness's side: start, pause, halt, removal, OID requests, frames |
//! | [`ndk`] | opening and closing NDK adapters, net PnP events |
//! | [`bus`], [`dma`], [`interrupt`] | the device under the adapter |
//! | [`nbl`], [`data_path`] | NET_BUFFER_LISTs and their ways |
//! | [`config`], [`event_log`] | registry keywords; what an administrator would read |
//! | [`runtime`] | work items, timers, events, processors |
//!
//! Handles are numbers that are no addresses: an image that looks behind one faults.

pub mod adapter;
pub mod bus;
pub mod config;
pub mod data_path;
pub mod dma;
pub mod driver;
pub mod event_log;
mod handle;
pub mod interrupt;
pub mod miniport;
pub mod nbl;
pub mod ndk;
pub mod oid;
pub mod runtime;

use std::sync::Arc;

use parking_lot::Mutex;

pub use adapter::{Adapter, AdapterState};
pub use config::Keyword;
pub use event_log::LogEntry;
pub use miniport::{Miniport, StartError};
pub use ndk::{NdkAdapter, NdkEvent};

use crate::{
    device::{Nic, mmio::Windows},
    import::Import,
    verifier::{BugCheck, violation},
};

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[
    adapter::IMPORTS,
    bus::IMPORTS,
    config::IMPORTS,
    data_path::IMPORTS,
    dma::IMPORTS,
    driver::IMPORTS,
    event_log::IMPORTS,
    interrupt::IMPORTS,
    nbl::IMPORTS,
    ndk::IMPORTS,
    oid::IMPORTS,
    runtime::IMPORTS,
];

/// What a host keeps for this module.
#[derive(Default)]
pub struct State {
    handles: handle::Handles,
    driver: Mutex<Option<Arc<driver::Driver>>>,
    adapters: Mutex<Vec<Arc<Adapter>>>,
    nics: Mutex<Vec<Arc<Nic>>>,
    keywords: Mutex<config::Keywords>,
    log: Mutex<Vec<LogEntry>>,
    vectors: Mutex<interrupt::Vectors>,
    pub(crate) windows: Windows,
}

/// Reports a broken rule of NDIS.
#[cold]
pub(crate) fn broken(text: impl Into<String>) -> ! {
    violation(BugCheck::BUGCODE_NDIS_DRIVER, text)
}

/// Reports `text` unless `kept`.
#[inline]
pub(crate) fn require(kept: bool, text: impl FnOnce() -> String) {
    if !kept {
        broken(text());
    }
}

impl crate::Host {
    /// The adapters that are there, in the order they were started.
    #[must_use]
    pub fn adapters(&self) -> Vec<Arc<Adapter>> {
        self.ndis.adapters.lock().clone()
    }
}
