// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of messages that NDIS passes to a miniport with its interrupt: `IO_INTERRUPT_MESSAGE_INFO`.

use device_sim::pci::Message;
use ndk_abi::nt::IO_INTERRUPT_MESSAGE_INFO;
use nt_sim::{Host, Irql, cpu::CpuId, guest::Guest, memory::pool::Tag};

use crate::block;

const TAG: Tag = Tag(u32::from_le_bytes(*b"Ndmi"));

/// `Latched` of `KINTERRUPT_MODE`.
const LATCHED: u32 = 1;

/// Offsets in the structure. (wdm.h)
const UNIFIED_IRQL: usize = 0;
const MESSAGE_COUNT: usize = 4;
const ENTRIES: usize = 8;

/// Offsets in an `IO_INTERRUPT_MESSAGE_INFO_ENTRY`, and its size.
mod entry {
    pub const ADDRESS: usize = 0;
    pub const PROCESSORS: usize = 8;
    pub const DATA: usize = 24;
    pub const VECTOR: usize = 28;
    pub const IRQL: usize = 32;
    pub const MODE: usize = 36;
    pub const SIZE: usize = 48;
}

/// Builds the table of messages, each with the processor that it interrupts; returns `None` when resources run low.
pub(crate) fn build(host: &Host, messages: &[(Message, CpuId)]) -> Option<Guest<IO_INTERRUPT_MESSAGE_INFO>> {
    let table = block::allocate(host, ENTRIES + messages.len() * entry::SIZE, TAG)?;
    table.add(UNIFIED_IRQL).write(Irql::DEVICE_LEVEL.0);
    table.field::<u32>(MESSAGE_COUNT).write(messages.len() as u32);
    for (index, (message, cpu)) in messages.iter().enumerate() {
        let at = ENTRIES + index * entry::SIZE;
        table.field::<u64>(at + entry::ADDRESS).write(message.address);
        table.field::<u64>(at + entry::PROCESSORS).write(1 << cpu.0);
        table.field::<u32>(at + entry::DATA).write(message.data);
        table.field::<u32>(at + entry::VECTOR).write(message.data & 0xff);
        table.field::<u8>(at + entry::IRQL).write(Irql::DEVICE_LEVEL.0);
        table.field::<u32>(at + entry::MODE).write(LATCHED);
    }
    Some(table.cast())
}

/// Frees a table.
pub(crate) fn free(host: &Host, table: Guest<IO_INTERRUPT_MESSAGE_INFO>) {
    block::release(host, table.cast(), TAG);
}
