// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of CPUs, and sets of them.

/// Index of a CPU of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u32);

/// The CPUs that a thread may run on: bit n for CPU n.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity(pub u64);

impl Affinity {
    pub const ALL: Self = Self(u64::MAX);

    #[must_use]
    pub const fn only(cpu: CpuId) -> Self {
        Self(1 << (cpu.0 % u64::BITS))
    }

    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        index >= u64::BITS as usize || self.0 >> index & 1 != 0
    }
}
