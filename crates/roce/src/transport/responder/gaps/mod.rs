// SPDX-License-Identifier: MIT OR Apache-2.0

//! Request packets that arrive after a gap: placed into memory or stored in the stash, and executed once the gap is filled.

mod requests;
pub(crate) mod stash;
