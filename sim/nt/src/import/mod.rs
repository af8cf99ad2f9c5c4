// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions that an image may import.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`table`] | one import, and the table an image is bound to |
//! | [`enter`](mod@enter) | declaring imports, and the checks at the start of every call |
//! | `missing` | calls of imports that do not exist |

pub mod enter;
pub(crate) mod missing;
pub mod table;

pub use enter::{enter, run};
pub use table::{Import, ImportTable, Kind};
