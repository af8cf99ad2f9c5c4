//! The imports of `ntoskrnl.exe` and the state behind them.

pub mod crt;
pub mod debug;
pub mod dispatcher;
pub mod dpc;
pub mod etw;
pub mod irql;
pub mod mdl;
pub mod pool;
pub mod processor;
pub mod rundown;
pub mod runtime;
pub mod spin_lock;
pub mod time;
pub mod timer;
pub mod work;

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{import::Import, memory::Pfn};

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[
    crt::IMPORTS,
    debug::IMPORTS,
    dispatcher::IMPORTS,
    dpc::IMPORTS,
    etw::IMPORTS,
    irql::IMPORTS,
    mdl::IMPORTS,
    pool::IMPORTS,
    processor::IMPORTS,
    rundown::IMPORTS,
    runtime::IMPORTS,
    spin_lock::IMPORTS,
    time::IMPORTS,
    timer::IMPORTS,
    work::IMPORTS,
];

/// What a host keeps for this module.
pub struct State {
    pub work: work::Queue,
    pub io_work_items: work::IoWorkItems,
    pub dispatcher: dispatcher::Dispatcher,
    pub dpcs: dpc::Queued,
    pub timers: timer::Timers,
    pub lock_order: spin_lock::Order,
    /// Contiguous memory: first page and number of pages, by address.
    pub contiguous: Mutex<HashMap<usize, (Pfn, usize)>>,
    pub random: Mutex<fastrand::Rng>,
}

impl State {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            work: work::Queue::default(),
            io_work_items: work::IoWorkItems::default(),
            dispatcher: dispatcher::Dispatcher::default(),
            dpcs: dpc::Queued::default(),
            timers: timer::Timers::default(),
            lock_order: spin_lock::Order::default(),
            contiguous: Mutex::default(),
            random: Mutex::new(random),
        }
    }
}
