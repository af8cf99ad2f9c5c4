// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processors. There is one group and one NUMA node.

use ndk_abi::nt::{GROUP_AFFINITY, PROCESSOR_NUMBER, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use crate::{guest::Guest, imports, thread::current};

const ALL_PROCESSOR_GROUPS: u16 = 0xffff;
const INVALID_PROCESSOR_INDEX: u32 = u32::MAX;

fn count(group: u16) -> u32 {
    if group == 0 || group == ALL_PROCESSOR_GROUPS { current().host().cpus.count() } else { 0 }
}

fn number(index: u32) -> PROCESSOR_NUMBER {
    PROCESSOR_NUMBER { Group: 0, Number: u8::try_from(index).unwrap_or(u8::MAX), Reserved: 0 }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the number of active processors of a group or of all.
    [any]
    fn KeQueryActiveProcessorCountEx(group: u16) -> u32 {
        count(group)
    }

    /// Returns the maximum number of processors of a group or of all.
    [any]
    fn KeQueryMaximumProcessorCountEx(group: u16) -> u32 {
        count(group)
    }

    /// Returns index and number of the current processor.
    [any]
    fn KeGetCurrentProcessorNumberEx(processor: Guest<PROCESSOR_NUMBER>) -> u32 {
        let index = current().cpu().0;
        if !processor.is_null() {
            processor.write(number(index));
        }
        index
    }

    /// Returns the index of a processor.
    [any]
    fn KeGetProcessorIndexFromNumber(processor: Guest<PROCESSOR_NUMBER>) -> u32 {
        let processor = processor.read();
        let index = u32::from(processor.Number);
        if processor.Group == 0 && index < count(0) { index } else { INVALID_PROCESSOR_INDEX }
    }

    /// Returns the number of a processor.
    [any]
    fn KeGetProcessorNumberFromIndex(index: u32, processor: Guest<PROCESSOR_NUMBER>) -> i32 {
        if index >= count(0) {
            return STATUS_INVALID_PARAMETER;
        }
        processor.write(number(index));
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

    /// Sets the thread's affinity, which is ignored: it still runs on any processor.
    [<= APC_LEVEL]
    fn KeSetSystemGroupAffinityThread(affinity: Guest<GROUP_AFFINITY>, previous: Guest<GROUP_AFFINITY>) {
        let _ = affinity;
        if !previous.is_null() {
            previous.write(GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] });
        }
    }

    /// Undoes [`KeSetSystemGroupAffinityThread`].
    [<= APC_LEVEL]
    fn KeRevertToUserGroupAffinityThread(previous: Guest<GROUP_AFFINITY>) {
        let _ = previous;
    }

    /// Returns whether another DPC is queued on the processor.
    [>= DISPATCH_LEVEL]
    fn KeShouldYieldProcessor() -> u32 {
        let me = current();
        (!me.host().cpus.dpcs(me.cpu()).is_empty()).into()
    }
}
