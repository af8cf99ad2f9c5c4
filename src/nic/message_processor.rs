// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processor that each MSI-X message interrupts.
//!
//! Windows chooses it when it assigns the device's resources: the INF asks for a processor for each message (`DevicePolicy` of
//! `Interrupt Management\\Affinity Policy`, `IrqPolicySpreadMessagesAcrossAllProcessors`). The driver only reads the choice.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use ndk_abi::nt::{IO_INTERRUPT_MESSAGE_INFO, IO_INTERRUPT_MESSAGE_INFO_ENTRY};

/// NDIS's table of an interrupt's messages.
pub struct MessageProcessors {
    /// Null if there is none, and once withdrawn.
    table: AtomicPtr<IO_INTERRUPT_MESSAGE_INFO>,
}

impl MessageProcessors {
    /// # Safety
    /// `table` is null, or NDIS's table, which stays as it is until [`withdraw`](Self::withdraw), and no other thread uses the result then.
    pub unsafe fn new(table: *mut IO_INTERRUPT_MESSAGE_INFO) -> Self {
        Self { table: AtomicPtr::new(table) }
    }

    /// Ends the use of the table.
    pub fn withdraw(&self) {
        self.table.store(null_mut(), Ordering::Release);
    }

    /// Returns the index of the first processor that a message interrupts; `None` if it is unknown.
    pub fn processor_of(&self, message: u16) -> Option<u32> {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: null, or NDIS's table, which stays as it is until it is withdrawn (`new`).
        let count = unsafe { table.as_ref() }?.MessageCount;
        if u32::from(message) >= count {
            return None;
        }
        // SAFETY: the table is not null, and only the address of its member is taken: the entries reach beyond the structure.
        let first = unsafe { &raw const (*table).MessageInfo };
        // SAFETY: the table has `count` entries, one after the other, and the message's number is less.
        let entry = unsafe { first.cast::<IO_INTERRUPT_MESSAGE_INFO_ENTRY>().add(message.into()) };
        // SAFETY: one of the table's entries, which do not change.
        let processors = unsafe { (*entry).TargetProcessorSet };
        // The set has no group number. By default the messages of a device are in group 0 (WDK: `IRQ_GROUP_POLICY`).
        nt::processor::index(0, processors.trailing_zeros() as u8)
    }
}
