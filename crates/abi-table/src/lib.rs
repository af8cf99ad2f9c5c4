// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compares the declarations of a crate with a table of ABI facts.
//!
//! [`Source`] parses the crate's sources, [`Table`] the table. [`checks()`] writes compile-time assertions for offsets, sizes and type
//! identity, which only the compiler knows, and reports itself: a name that is not in the table, a missing member or dispatch
//! table entry, a documented IRQL that differs.

mod checks;
mod ctype;
mod source;
mod table;

pub use checks::generate as checks;
pub use ctype::c_name;
pub use source::{Alias, Import, Opaque, Record, Source};
pub use table::Table;
