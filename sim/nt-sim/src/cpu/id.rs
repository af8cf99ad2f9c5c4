// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of CPUs.

/// Index of a CPU of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u32);
