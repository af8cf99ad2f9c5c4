//! The imports of `ntoskrnl.exe` and the state behind them.

pub mod irql;
pub mod spin_lock;
pub mod work;

use crate::import::Import;

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[irql::IMPORTS, spin_lock::IMPORTS];

/// What a host keeps for this module.
#[derive(Default)]
pub struct State {
    pub work: work::Queue,
}
