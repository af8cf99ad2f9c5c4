// SPDX-License-Identifier: MIT OR Apache-2.0

//! The structures of `infiniband/verbs.h`, as of rdma-core 44. `cargo xtask verbs` compares them with the installed headers.
//!
//! Enumerations are integers: a program may pass any value.

mod assertions;
pub mod attributes;
pub mod context;
pub mod device;
pub mod flags;
mod layout;
pub mod objects;
pub mod rdma;

/// A function pointer that is always null: the operation is not offered.
pub type Absent = Option<unsafe extern "C" fn()>;
