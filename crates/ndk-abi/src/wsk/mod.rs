// SPDX-License-Identifier: MIT OR Apache-2.0

//! Winsock Kernel, and how it opens NDK adapters (`wsk.h`, `wskndk.h`, `netio.sys`).
//!
//! Sockets themselves are not declared: their functions are in [`WSK_PROVIDER_DISPATCH`] only.

mod client;
mod ndk;
mod provider;

pub use client::*;
pub use ndk::*;
pub use provider::*;
