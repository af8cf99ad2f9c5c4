// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processors, by index and by group and number. There is one NUMA node.

use std::time::Duration;

use ndk_abi::nt::{
    GROUP_AFFINITY, KDPC_WATCHDOG_INFORMATION, PROCESSOR_NUMBER, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL,
};

use super::time;
use crate::{
    Irql,
    cpu::{Affinity, CpuId, Groups},
    guest::Guest,
    imports,
    thread::current,
};

const INVALID_PROCESSOR_INDEX: u32 = u32::MAX;

fn groups() -> Groups {
    current().host().cpus.groups()
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the number of active processors of a group or of all.
    [any]
    fn KeQueryActiveProcessorCountEx(group: u16) -> u32 {
        groups().count(group)
    }

    /// Returns the maximum number of processors of a group or of all.
    [any]
    fn KeQueryMaximumProcessorCountEx(group: u16) -> u32 {
        current().host().cpus.all_groups().count(group)
    }

    /// Returns index and number of the current processor.
    [any]
    fn KeGetCurrentProcessorNumberEx(processor: Guest<PROCESSOR_NUMBER>) -> u32 {
        let cpu = current().cpu();
        if !processor.is_null() {
            processor.write(groups().number(cpu));
        }
        cpu.0
    }

    /// Returns the index of a processor.
    [any]
    fn KeGetProcessorIndexFromNumber(processor: Guest<PROCESSOR_NUMBER>) -> u32 {
        groups().cpu(processor.read()).map_or(INVALID_PROCESSOR_INDEX, |cpu| cpu.0)
    }

    /// Returns the number of a processor.
    [any]
    fn KeGetProcessorNumberFromIndex(index: u32, processor: Guest<PROCESSOR_NUMBER>) -> i32 {
        if index >= current().host().cpus.count() {
            return STATUS_INVALID_PARAMETER;
        }
        processor.write(groups().number(CpuId(index)));
        STATUS_SUCCESS
    }

    /// Returns the node of the current processor.
    [any]
    fn KeGetCurrentNodeNumber() -> u16 {
        0
    }

    /// Returns the highest node.
    [any]
    fn KeQueryHighestNodeNumber() -> u16 {
        0
    }

    /// Restricts the thread to processors; it runs on one of them when this returns. Writes the previous restriction,
    /// zero if there was none.
    [<= APC_LEVEL]
    fn KeSetSystemGroupAffinityThread(affinity: Guest<GROUP_AFFINITY>, previous: Guest<GROUP_AFFINITY>) {
        let me = current();
        let before = me.affinity();
        let cpus = groups().cpus(affinity.read()).fold(0, |mask, cpu| mask | Affinity::only(cpu).0);
        // Processors that are not there leave the thread where it is.
        if cpus != 0 {
            me.set_affinity(Affinity(cpus));
        }
        if !previous.is_null() {
            let none = GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] };
            previous.write(if before == Affinity::ALL { none } else { groups().affinity(before) });
        }
    }

    /// Undoes [`KeSetSystemGroupAffinityThread`].
    [<= APC_LEVEL]
    fn KeRevertToUserGroupAffinityThread(previous: Guest<GROUP_AFFINITY>) {
        let cpus = groups().cpus(previous.read()).fold(0, |mask, cpu| mask | Affinity::only(cpu).0);
        current().set_affinity(if cpus == 0 { Affinity::ALL } else { Affinity(cpus) });
    }

    /// Returns whether the caller should let others run: a DPC is queued on the processor, a thread waits for it, or
    /// half of the DPC watchdog's time is over.
    [>= DISPATCH_LEVEL]
    fn KeShouldYieldProcessor() -> u32 {
        let me = current();
        let (cpus, cpu) = (&me.host().cpus, me.cpu());
        let limits = me.host().options().watchdog;
        let left = me.watchdog_remaining();
        let is_late = left.routine.is_some_and(|left| left < limits.routine / 2)
            || left.level.is_some_and(|left| left < limits.cumulative / 2);
        (is_late || cpus.is_wanted(cpu) || !cpus.dpcs(cpu).is_empty()).into()
    }

    /// Writes the limits of the DPC watchdog and what is left of them, in clock ticks; fails below `DISPATCH_LEVEL`.
    [any]
    fn KeQueryDpcWatchdogInformation(information: Guest<KDPC_WATCHDOG_INFORMATION>) -> i32 {
        let me = current();
        if me.irql() < Irql::DISPATCH_LEVEL {
            return STATUS_UNSUCCESSFUL;
        }
        let limits = me.host().options().watchdog;
        let left = me.watchdog_remaining();
        let ticks = |time: Duration| {
            // A tick that has not passed counts as left.
            u32::try_from(time.as_nanos().div_ceil(u128::from(time::TICK))).unwrap_or(u32::MAX)
        };
        information.write(KDPC_WATCHDOG_INFORMATION {
            DpcTimeLimit: ticks(limits.routine),
            DpcTimeCount: ticks(left.routine.unwrap_or(limits.routine)),
            DpcWatchdogLimit: ticks(limits.cumulative),
            DpcWatchdogCount: ticks(left.level.unwrap_or(limits.cumulative)),
            Reserved: 0,
        });
        STATUS_SUCCESS
    }
}
