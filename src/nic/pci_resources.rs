// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's PCI resources: configuration space, BARs, interrupt messages. `PASSIVE_LEVEL`.

use alloc::boxed::Box;
use core::slice;

use fallible::{AllocError, try_box};

use ndk_abi::ndis::{NDIS_HANDLE, NDIS_MINIPORT_INIT_PARAMETERS, NdisMGetBusData, NdisMSetBusData};
use ndk_abi::nt::{
    CM_PARTIAL_RESOURCE_DESCRIPTOR, CM_RESOURCE_INTERRUPT_MESSAGE, CmResourceTypeInterrupt as INTERRUPT,
    CmResourceTypeMemory as MEMORY,
};
use virtio_net::pci::CONFIG_LEN;

/// `WhichSpace` of configuration space.
const PCI_WHICHSPACE_CONFIG: u32 = 0;
/// Offsets and bits in configuration space.
/// The two bytes of the command register. Each is changed on its own: that of the line also at DIRQL, while a thread changes the other.
const COMMAND: u32 = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
const COMMAND_UPPER: u32 = 0x05;
const COMMAND_NO_LINE: u8 = 1 << 2;
const FIRST_BAR: usize = 0x10;
const BAR_IS_IO: u32 = 1;
const BAR_IS_64_BIT: u32 = 4;

/// An assigned memory BAR: bus address and length in bytes.
#[derive(Clone, Copy, Debug)]
pub struct BarRange {
    pub start: u64,
    pub len: u32,
}

/// The assigned resources.
#[derive(Debug)]
pub struct Resources {
    pub config: [u8; CONFIG_LEN],
    pub bars: [Option<BarRange>; 6],
    /// Number of assigned message interrupts; 0 if the device has its line.
    pub messages: u32,
}

impl Resources {
    /// Reads configuration space through NDIS, and the assigned resources from `parameters`. In memory of their own, and not inlined: the
    /// caller's stack frame is large.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// `parameters` is what NDIS gave `MiniportInitializeEx`, which has not returned yet.
    #[inline(never)]
    pub unsafe fn collect(
        handle: NDIS_HANDLE,
        parameters: *const NDIS_MINIPORT_INIT_PARAMETERS,
    ) -> Result<Box<Self>, AllocError> {
        let config = config_space(handle);
        // SAFETY: this function has the contract of `assigned`, and the descriptors are read before it returns.
        let assigned = unsafe { assigned(parameters) };
        let mut resources = Self { config, bars: [None; 6], messages: 0 };
        let addresses = bar_addresses(&config);
        for descriptor in assigned {
            match descriptor.Type {
                MEMORY => {
                    // SAFETY: the type says which member of the union is in use; copied, for it is unaligned.
                    let memory = unsafe { descriptor.u.Memory };
                    let address = { memory.Start };
                    let start = address.QuadPart.cast_unsigned();
                    let bar = addresses.iter().position(|&address| address == Some(start));
                    if let Some(slot) = bar.and_then(|bar| resources.bars.get_mut(bar)) {
                        *slot = Some(BarRange { start, len: memory.Length });
                    }
                }
                INTERRUPT if u32::from(descriptor.Flags) & CM_RESOURCE_INTERRUPT_MESSAGE != 0 => {
                    resources.messages = resources.messages.saturating_add(1);
                }
                _ => {}
            }
        }
        try_box(resources)
    }

    /// Returns the length of an assigned BAR in bytes.
    pub fn bar_len(&self, bar: u8) -> Option<u64> {
        Some(u64::from((*self.bars.get(usize::from(bar))?)?.len))
    }
}

/// Has the device respond to accesses of its registers, and not access memory: it may still have the addresses of memory that was
/// freed, until it is reset.
pub fn enable_registers(handle: NDIS_HANDLE) {
    change_config(handle, COMMAND, |command| command & !COMMAND_BUS_MASTER | COMMAND_MEMORY);
}

/// Enables or disables bus mastering, that is, the device's DMA.
pub fn set_bus_master(handle: NDIS_HANDLE, on: bool) {
    change_config(handle, COMMAND, |command| {
        if on { command | COMMAND_BUS_MASTER } else { command & !COMMAND_BUS_MASTER }
    });
}

/// Lets the device assert its line, or not. A cause that it has meanwhile asserts the line afterwards. Any IRQL.
pub fn set_line_enabled(handle: NDIS_HANDLE, on: bool) {
    change_config(handle, COMMAND_UPPER, |command| {
        if on { command & !COMMAND_NO_LINE } else { command | COMMAND_NO_LINE }
    });
}

/// Returns whether the device may assert its line; `true` if that cannot be read.
pub fn is_line_enabled(handle: NDIS_HANDLE) -> bool {
    let mut byte = [0];
    let is_read = read_config(handle, COMMAND_UPPER, &mut byte) == byte.len();
    let [upper] = byte;
    !is_read || upper & COMMAND_NO_LINE == 0
}

/// Changes the byte at `offset` of configuration space.
fn change_config(handle: NDIS_HANDLE, offset: u32, change: impl FnOnce(u8) -> u8) {
    let mut byte = [0];
    if read_config(handle, offset, &mut byte) != byte.len() {
        return;
    }
    let [old] = byte;
    let new = change(old);
    if new != old {
        let mut byte = [new];
        // SAFETY: the buffer has the length that follows it.
        unsafe {
            NdisMSetBusData(handle, PCI_WHICHSPACE_CONFIG, offset, byte.as_mut_ptr().cast(), 1);
        }
    }
}

/// Returns whether no device answers: its vendor ID reads all ones.
pub fn is_absent(handle: NDIS_HANDLE) -> bool {
    let mut vendor = [0xFF; 2];
    read_config(handle, 0, &mut vendor);
    vendor == [0xFF; 2]
}

/// Reads configuration space. If that fails, returns all ones, as for an absent device.
fn config_space(handle: NDIS_HANDLE) -> [u8; CONFIG_LEN] {
    let mut config = [0xFF; CONFIG_LEN];
    if read_config(handle, 0, &mut config) == 0 {
        config = [0xFF; CONFIG_LEN];
    }
    config
}

fn read_config(handle: NDIS_HANDLE, offset: u32, buffer: &mut [u8]) -> usize {
    let len = u32::try_from(buffer.len()).unwrap_or(0);
    // SAFETY: the buffer has the length that follows it.
    let read =
        unsafe { NdisMGetBusData(handle, PCI_WHICHSPACE_CONFIG, offset, buffer.as_mut_ptr().cast(), len) };
    read as usize
}

/// Returns the bus address of each memory BAR.
fn bar_addresses(config: &[u8; CONFIG_LEN]) -> [Option<u64>; 6] {
    let mut registers = config
        .get(FIRST_BAR..)
        .unwrap_or_default()
        .chunks_exact(4)
        .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
    let mut addresses = [None; 6];
    let mut upper = false;
    for number in 0..addresses.len() {
        let register = registers.next().unwrap_or(0);
        if upper {
            // This is the upper half of the previous BAR.
            if let Some(Some(address)) = number.checked_sub(1).and_then(|before| addresses.get_mut(before)) {
                *address |= u64::from(register) << 32;
            }
            upper = false;
        } else if register & BAR_IS_IO == 0 {
            // A BAR that does not exist reads as address 0, where no memory is ever assigned.
            upper = register & BAR_IS_64_BIT != 0;
            if let Some(slot) = addresses.get_mut(number) {
                *slot = Some(u64::from(register & !0xF));
            }
        }
    }
    addresses
}

/// Returns the descriptors of the assigned resources.
///
/// # Safety
/// As for [`Resources::collect`]; the result is used before `MiniportInitializeEx` returns.
unsafe fn assigned<'a>(
    parameters: *const NDIS_MINIPORT_INIT_PARAMETERS,
) -> &'a [CM_PARTIAL_RESOURCE_DESCRIPTOR] {
    // SAFETY: by this function's contract the parameters are NDIS's, valid until `MiniportInitializeEx` returns.
    let list = unsafe { (*parameters).AllocatedResources };
    if list.is_null() {
        return &[];
    }
    // SAFETY: not null, so it is a valid resource list.
    let count = unsafe { (*list).Count } as usize;
    // SAFETY: only the address of the member is taken.
    let first = unsafe { &raw const (*list).PartialDescriptors };
    // SAFETY: the list's `Count` says how many descriptors lie there, one after the other.
    unsafe { slice::from_raw_parts(first.cast(), count) }
}
