//! The imports of `ndis.sys` and the state behind them.

use crate::import::Import;

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[];

/// What a host keeps for this module.
#[derive(Default)]
pub struct State {}
