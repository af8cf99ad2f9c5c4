// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processor groups: how Windows names the CPUs of a host. (WDK: processor groups)
//!
//! Windows has up to 64 logical processors in a group; `bcdedit /set groupsize` makes groups smaller, for tests of drivers. Each group
//! but the last is full.

use ndk_abi::nt::{GROUP_AFFINITY, PROCESSOR_NUMBER};

use super::{Affinity, CpuId};

/// Most CPUs of a group.
pub const MAX_GROUP_SIZE: u32 = u64::BITS;

/// `ALL_PROCESSOR_GROUPS`
const ALL: u16 = 0xffff;

/// The processor groups of one host.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// CPUs of the host.
    count: u32,
    /// CPUs of a group that is full.
    size: u32,
}

impl Groups {
    /// Divides `count` CPUs into groups of `size`, at least 1 and at most [`MAX_GROUP_SIZE`].
    #[must_use]
    pub fn new(count: u32, size: u32) -> Self {
        Self { count, size: size.clamp(1, MAX_GROUP_SIZE) }
    }

    /// Returns group and number of a CPU.
    #[must_use]
    pub fn number(self, cpu: CpuId) -> PROCESSOR_NUMBER {
        PROCESSOR_NUMBER { Group: (cpu.0 / self.size) as u16, Number: (cpu.0 % self.size) as u8, Reserved: 0 }
    }

    /// Returns the CPU with this group and number; `None` if there is none.
    #[must_use]
    pub fn cpu(self, number: PROCESSOR_NUMBER) -> Option<CpuId> {
        let in_group = u32::from(number.Number);
        let index = u32::from(number.Group) * self.size + in_group;
        (in_group < self.size && index < self.count).then_some(CpuId(index))
    }

    /// Returns the number of CPUs of a group, or of all of them (`ALL_PROCESSOR_GROUPS`); 0 for a group that does not exist.
    #[must_use]
    pub fn count(self, group: u16) -> u32 {
        if group == ALL {
            return self.count;
        }
        self.count.saturating_sub(u32::from(group) * self.size).min(self.size)
    }

    /// Returns the existing CPUs of a group affinity, in order.
    pub fn cpus(self, affinity: GROUP_AFFINITY) -> impl Iterator<Item = CpuId> {
        let number = move |number| PROCESSOR_NUMBER { Group: affinity.Group, Number: number, Reserved: 0 };
        let chosen = (0..MAX_GROUP_SIZE as u8).filter(move |bit| affinity.Mask >> bit & 1 != 0);
        chosen.filter_map(move |bit| self.cpu(number(bit)))
    }

    /// Returns the affinity of a thread as a group affinity: the group of its first CPU.
    #[must_use]
    pub fn affinity(self, affinity: Affinity) -> GROUP_AFFINITY {
        let group = (affinity.0.trailing_zeros() / self.size) as u16;
        let first = u32::from(group) * self.size;
        let mask = affinity.0.checked_shr(first).unwrap_or(0) & (u64::MAX >> (u64::BITS - self.size));
        GROUP_AFFINITY { Mask: mask as usize, Group: group, Reserved: [0; 3] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(group: u16, number: u8) -> PROCESSOR_NUMBER {
        PROCESSOR_NUMBER { Group: group, Number: number, Reserved: 0 }
    }

    #[test]
    fn each_cpu_has_a_group_and_a_number_and_no_others_exist() {
        let groups = Groups::new(6, 4);
        for (cpu, group, of_group) in [(0, 0, 0), (3, 0, 3), (4, 1, 0), (5, 1, 1)] {
            let named = groups.number(CpuId(cpu));
            assert_eq!((named.Group, named.Number), (group, of_group));
            assert_eq!(groups.cpu(named), Some(CpuId(cpu)));
        }
        for none in [number(0, 4), number(1, 2), number(2, 0), number(0xffff, 0)] {
            assert_eq!(groups.cpu(none), None);
        }
        assert_eq!([0, 1, 2, ALL].map(|group| groups.count(group)), [4, 2, 0, 6]);
    }

    #[test]
    fn affinities_are_those_of_a_group() {
        let groups = Groups::new(6, 4);
        let affinity = |group, mask| GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
        let cpus = |affinity| groups.cpus(affinity).map(|cpu| cpu.0).collect::<Vec<_>>();
        assert_eq!(cpus(affinity(0, 0b1010)), [1, 3]);
        assert_eq!(cpus(affinity(1, 0b111)), [4, 5]);
        assert_eq!(cpus(affinity(2, 1)), [0; 0]);
        let named = groups.affinity(Affinity(0b11_0000));
        assert_eq!((named.Group, named.Mask), (1, 0b11));
        let whole = Groups::new(64, 64).affinity(Affinity(u64::MAX));
        assert_eq!((whole.Group, whole.Mask), (0, usize::MAX));
    }
}
