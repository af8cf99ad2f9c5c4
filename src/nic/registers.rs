// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device registers: mapped BARs that contain virtio structures. Access at any IRQL.

use core::ptr::{NonNull, null_mut};

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_PHYSICAL_ADDRESS, NDIS_STATUS_SUCCESS, NdisMMapIoSpace, NdisMUnmapIoSpace,
};
use virtio_net::{Layout, Registers};

use super::pci_resources::BarRange;
use crate::events::{Failure, Request};

/// A BAR in the driver's address space.
#[derive(Clone, Copy, Debug)]
struct Window {
    base: NonNull<u8>,
    len: u32,
}

/// The mapped BARs; unmapped when dropped.
#[derive(Debug)]
pub struct MappedBars {
    handle: NDIS_HANDLE,
    windows: [Option<Window>; 6],
}

// SAFETY: a mapping has no thread affinity; its owner unmaps it once, when dropped.
unsafe impl Send for MappedBars {}
// SAFETY: shared use only hands out copies of the windows.
unsafe impl Sync for MappedBars {}

impl MappedBars {
    /// Maps the BARs that `layout` uses, and no others. `PASSIVE_LEVEL`.
    pub fn map(
        handle: NDIS_HANDLE,
        ranges: &[Option<BarRange>; 6],
        layout: &Layout,
    ) -> Result<Self, Failure> {
        let mut bars = Self { handle, windows: [None; 6] };
        for region in [layout.common, layout.notify, layout.isr, layout.device] {
            let number = usize::from(region.bar);
            let (Some(window), Some(Some(range))) = (bars.windows.get_mut(number), ranges.get(number)) else {
                continue;
            };
            if window.is_some() {
                continue;
            }
            let mut base = null_mut();
            let address = NDIS_PHYSICAL_ADDRESS { QuadPart: range.start.cast_signed() };
            // SAFETY: the range was assigned to this adapter; the result lives through the call.
            let status = unsafe { NdisMMapIoSpace(&raw mut base, handle, address, range.len) };
            let base = NonNull::new(base.cast()).filter(|_| status == NDIS_STATUS_SUCCESS);
            let base = base.ok_or(Failure::Ndis(Request::MapRegisters, status))?;
            *window = Some(Window { base, len: range.len });
        }
        Ok(bars)
    }

    /// Returns access to the registers. The result must not be used after `self` is dropped.
    pub fn access(&self) -> BarAccess {
        BarAccess { windows: self.windows }
    }
}

impl Drop for MappedBars {
    fn drop(&mut self) {
        for window in self.windows.into_iter().flatten() {
            // SAFETY: mapped in `map` with this length, unmapped once.
            unsafe { NdisMUnmapIoSpace(self.handle, window.base.as_ptr().cast(), window.len) };
        }
    }
}

/// Reads and writes registers of mapped BARs.
///
/// Holders live in the adapter's [`Port`](super::port::Port), which drops them before the mappings.
#[derive(Clone, Debug)]
pub struct BarAccess {
    windows: [Option<Window>; 6],
}

// SAFETY: device registers have no thread affinity.
unsafe impl Send for BarAccess {}
// SAFETY: each access is one instruction; the virtio driver orders accesses to a register.
unsafe impl Sync for BarAccess {}

impl BarAccess {
    /// Returns the register's address if it is in a mapped BAR and naturally aligned.
    fn address<T>(&self, bar: u8, offset: u64) -> Option<NonNull<T>> {
        let window = (*self.windows.get(usize::from(bar))?)?;
        let end = offset.checked_add(size_of::<T>() as u64)?;
        if end > u64::from(window.len) || !offset.is_multiple_of(size_of::<T>() as u64) {
            return None;
        }
        // SAFETY: inside the mapping, by the comparison above.
        let address = unsafe { window.base.add(usize::try_from(offset).ok()?) };
        Some(address.cast())
    }
}

/// Defines the load and the store of one width, each one instruction with a plain address, which every hypervisor's emulator supports. A
/// compiler might fold a volatile access into an arithmetic instruction, or on arm64 into one that changes the address or takes two
/// registers, of which the processor does not say to a hypervisor what it accesses.
///
/// On arm64, barriers order an access and all other memory, as those of `WRITE_REGISTER_ULONG` and `READ_REGISTER_ULONG`; x64 needs none.
macro_rules! access {
    ($read:ident, $write:ident, $type:ty, $class:ident, x64: $load:literal, $store:literal, arm64: $ldr:literal, $str:literal) => {
        fn $read(&self, bar: u8, offset: u64) -> $type {
            let Some(register) = self.address::<$type>(bar, offset) else { return <$type>::MAX };
            let value: $type;
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a mapped, aligned register; the device defines the effect of a load.
            unsafe {
                core::arch::asm!($load, value = out($class) value, at = in(reg) register.as_ptr(),
                    options(nostack, preserves_flags));
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a mapped, aligned register; the device defines the effect of a load.
            unsafe {
                core::arch::asm!($ldr, "dmb sy", value = out(reg) value, at = in(reg) register.as_ptr(),
                    options(nostack, preserves_flags));
            }
            value
        }

        fn $write(&self, bar: u8, offset: u64, value: $type) {
            let Some(register) = self.address::<$type>(bar, offset) else { return };
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a mapped, aligned register; not memory that Rust knows of.
            unsafe {
                core::arch::asm!($store, value = in($class) value, at = in(reg) register.as_ptr(),
                    options(nostack, preserves_flags));
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a mapped, aligned register; not memory that Rust knows of.
            unsafe {
                core::arch::asm!("dmb sy", $str, "dmb sy", value = in(reg) value, at = in(reg) register.as_ptr(),
                    options(nostack, preserves_flags));
            }
        }
    };
}

impl Registers for BarAccess {
    access!(read8, write8, u8, reg_byte,
        x64: "mov {value}, byte ptr [{at}]", "mov byte ptr [{at}], {value}",
        arm64: "ldrb {value:w}, [{at}]", "strb {value:w}, [{at}]");
    access!(read16, write16, u16, reg,
        x64: "mov {value:x}, word ptr [{at}]", "mov word ptr [{at}], {value:x}",
        arm64: "ldrh {value:w}, [{at}]", "strh {value:w}, [{at}]");
    access!(read32, write32, u32, reg,
        x64: "mov {value:e}, dword ptr [{at}]", "mov dword ptr [{at}], {value:e}",
        arm64: "ldr {value:w}, [{at}]", "str {value:w}, [{at}]");
}
