// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scripts of `cargo xtask spin` in virtual time.

mod spin;
mod spin_faults;
