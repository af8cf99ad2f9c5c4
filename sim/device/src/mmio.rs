// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device register accesses of the image: trapped, decoded, forwarded to the device.
//!
//! A window of device registers is a range of addresses without access. An image reads and writes it
//! with plain instructions; each one faults, the fault handler hands fault address and registers to
//! [`Windows::access`], which performs the access on the device. Instructions that a compiler does not emit for
//! a volatile access (those of a `memcpy`, atomics) are reported, because device registers do not support them.
#![allow(unsafe_code, reason = "reads the instruction that trapped")]

use std::{collections::BTreeMap, error::Error, fmt, sync::Arc};

use parking_lot::RwLock;
use trapped_access::{CpuState, Decoder};

use crate::registers::{Misuse, Registers};

/// The register windows of one host.
#[derive(Default)]
pub struct Windows {
    windows: RwLock<BTreeMap<usize, Window>>,
    decoder: Decoder,
}

struct Window {
    len: usize,
    device: Arc<dyn Registers>,
    bar: u8,
    offset: u64,
}

/// Why an access failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No window covers the address: an ordinary fault.
    NotMapped,
    /// The instruction is not supported for device registers, or the access crosses the end of the window.
    Instruction(String),
    /// The device reports a misuse.
    Misuse(Misuse),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped => f.write_str("no register window covers the address"),
            Self::Instruction(text) => f.write_str(text),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl Error for Failure {}

impl Windows {
    /// Maps `len` bytes at `address` to `offset` of `bar`.
    pub fn map(&self, address: usize, len: usize, device: Arc<dyn Registers>, bar: u8, offset: u64) {
        self.windows.write().insert(address, Window { len, device, bar, offset });
    }

    /// Removes the window at `address`; returns its length in bytes, or `None` when there is none.
    pub fn unmap(&self, address: usize) -> Option<usize> {
        self.windows.write().remove(&address).map(|window| window.len)
    }

    /// Returns the number of windows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.windows.read().len()
    }

    /// Executes the instruction that faulted at `address` and advances the instruction pointer of `cpu`, also when
    /// the device reports a misuse.
    ///
    /// # Errors
    /// [`Failure`] when it was not executed, or the device reports a misuse.
    ///
    /// # Safety
    /// The instruction pointer of `cpu` is that of the faulting instruction, and 15 bytes there (the longest
    /// instruction) are readable.
    pub unsafe fn access(&self, address: usize, cpu: &mut impl CpuState) -> Result<(), Failure> {
        let Some((device, bar, offset, room)) = self.find(address) else { return Err(Failure::NotMapped) };
        // SAFETY: the caller says that the instruction pointer is that of a faulting instruction, whose bytes are
        // mapped.
        let access = unsafe { self.decoder.decode(cpu.instruction_pointer()) }.map_err(|instruction| {
            Failure::Instruction(format!("a device register accessed by {instruction}"))
        })?;
        let width = access.width();
        if width.bytes() > room {
            return Err(Failure::Instruction("an access across the end of a register window".to_owned()));
        }
        let (mut read, mut written) = (Ok(()), Ok(()));
        let load = || {
            device.read(bar, offset, width).unwrap_or_else(|misuse| {
                read = Err(misuse);
                width.all_ones()
            })
        };
        access.execute(cpu, load, |value| written = device.write(bar, offset, width, value));
        read.and(written).map_err(Failure::Misuse)
    }

    /// Returns device, BAR, offset, and the bytes from there to the end of the window.
    fn find(&self, address: usize) -> Option<(Arc<dyn Registers>, u8, u64, usize)> {
        let windows = self.windows.read();
        let (&start, window) = windows.range(..=address).next_back()?;
        let inside = address - start;
        let room = window.len.checked_sub(inside).filter(|&room| room > 0)?;
        Some((window.device.clone(), window.bar, window.offset + inside as u64, room))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use trapped_access::{Cpu, Width};

    use super::*;

    const BASE: usize = 0x7000_0000;

    /// Returns a pattern to reads and records writes; refuses byte accesses.
    #[derive(Default)]
    struct Device {
        written: Mutex<Vec<(u64, Width, u64)>>,
    }

    impl Registers for Device {
        fn read(&self, _bar: u8, offset: u64, width: Width) -> Result<u64, Misuse> {
            if width == Width::Byte { Err(Misuse::register("a byte")) } else { Ok(0x4000_0000 | offset) }
        }

        fn write(&self, _bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
            self.written.lock().push((offset, width, value));
            Ok(())
        }
    }

    type Written = Vec<(u64, Width, u64)>;

    /// Runs one instruction against byte `at` of a window of 256 bytes at offset 0x3000 of a BAR; all registers
    /// hold ones before.
    fn run(at: usize, code: &[u8]) -> (Result<(), Failure>, Cpu, Written) {
        let mut bytes = [0x90; 16];
        bytes[..code.len()].copy_from_slice(code);
        let device = Arc::new(Device::default());
        let windows = Windows::default();
        windows.map(BASE, 0x100, device.clone(), 4, 0x3000);
        let pointer = (&raw const bytes).expose_provenance() as u64;
        let mut cpu = Cpu { general: [0x1111_1111_1111_1111; 16], pointer };
        // SAFETY: the instruction pointer is that of `bytes`.
        let result = unsafe { windows.access(BASE + at, &mut cpu) };
        let advanced = cpu.pointer - pointer;
        assert_eq!(
            advanced,
            if matches!(result, Err(Failure::Instruction(_))) { 0 } else { code.len() as u64 }
        );
        let written = device.written.lock().clone();
        (result, cpu, written)
    }

    #[test]
    fn loads_and_stores_reach_the_device_at_their_offset() {
        let (result, cpu, _) = run(0x10, &[0x8b, 0x01]); // mov eax, [rcx]
        assert_eq!((result, cpu.general[0]), (Ok(()), 0x4000_3010));
        let (result, _, written) = run(0x10, &[0x66, 0x89, 0x11]); // mov [rcx], dx
        assert_eq!((result, written), (Ok(()), vec![(0x3010, Width::Word, 0x1111)]));
    }

    #[test]
    fn misuse_reads_as_ones_and_is_reported() {
        let (result, cpu, _) = run(0x10, &[0x8a, 0x01]); // mov al, [rcx]
        assert!(matches!(result, Err(Failure::Misuse(_))));
        assert_eq!(cpu.general[0], 0x1111_1111_1111_11ff);
    }

    #[test]
    fn unsupported_instruction_and_access_across_the_end_are_refused() {
        let (result, ..) = run(0x10, &[0xf0, 0xff, 0x01]); // lock inc dword [rcx]
        assert!(matches!(result, Err(Failure::Instruction(_))));
        let (result, ..) = run(0xfe, &[0x8b, 0x01]); // mov eax, [rcx]
        assert!(matches!(result, Err(Failure::Instruction(_))));
    }

    #[test]
    fn access_outside_of_windows_is_an_ordinary_fault() {
        let windows = Windows::default();
        // SAFETY: no instruction is read where there is no window.
        let result = unsafe { windows.access(BASE, &mut Cpu::default()) };
        assert_eq!(result, Err(Failure::NotMapped));
    }
}
