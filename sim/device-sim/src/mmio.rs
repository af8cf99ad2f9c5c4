// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device register accesses of the image: trapped, decoded, forwarded to the device.
//!
//! A window of device registers is a range of addresses without access. An image reads and writes it
//! with plain instructions; each one faults, the fault handler hands fault address and registers to
//! [`Windows::access`], which decodes the instruction, performs the access on the device and advances the
//! instruction pointer. It supports the instructions that a compiler emits for a volatile access (`mov`,
//! `movzx`, `movsx`, `movsxd`); any other access (a `memcpy`, an atomic) is reported, because device registers
//! do not support it.
//!
//! Decoded instructions are cached; after the first access a trap costs little more than the signal.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    fmt,
    sync::Arc,
};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use parking_lot::RwLock;

use crate::registers::{Misuse, Registers, Width};

/// Longest x86 instruction, in bytes.
const MAX_INSTRUCTION: usize = 15;

/// General registers, indexed as in instruction encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8-r15.
pub trait CpuState {
    fn general(&self, index: usize) -> u64;
    fn set_general(&mut self, index: usize, value: u64);
    fn instruction_pointer(&self) -> u64;
    fn set_instruction_pointer(&mut self, value: u64);
}

/// The register windows of one host.
#[derive(Default)]
pub struct Windows {
    windows: RwLock<BTreeMap<usize, Window>>,
    decoded: RwLock<HashMap<Key, Access>>,
}

struct Window {
    len: usize,
    device: Arc<dyn Registers>,
    bar: u8,
    offset: u64,
}

/// Address and bytes of an instruction: another image may be loaded at the same address.
type Key = (u64, [u8; MAX_INSTRUCTION]);

/// What an instruction does with the register it accesses.
#[derive(Clone, Copy)]
struct Access {
    len: u64,
    width: Width,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Load { into: Operand, sign_extend: bool },
    Store { from: Operand },
    StoreImmediate(u64),
}

/// A general register or a part of one.
#[derive(Clone, Copy)]
struct Operand {
    index: usize,
    width: Width,
    /// ah, ch, dh, bh.
    high_byte: bool,
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
        // SAFETY: the caller's promise.
        let access = unsafe { self.decode(cpu.instruction_pointer()) }?;
        if access.width.bytes() > room {
            return Err(Failure::Instruction("an access across the end of a register window".to_owned()));
        }
        cpu.set_instruction_pointer(cpu.instruction_pointer().wrapping_add(access.len));
        match access.kind {
            Kind::Load { into, sign_extend } => {
                let read = device.read(bar, offset, access.width);
                let value = *read.as_ref().unwrap_or(&access.width.all_ones());
                into.set(cpu, if sign_extend { extend(value, access.width) } else { value });
                read.map(|_| ())
            }
            Kind::Store { from } => device.write(bar, offset, access.width, from.get(cpu)),
            Kind::StoreImmediate(value) => device.write(bar, offset, access.width, value),
        }
        .map_err(Failure::Misuse)
    }

    /// Returns device, BAR, offset, and the bytes from there to the end of the window.
    fn find(&self, address: usize) -> Option<(Arc<dyn Registers>, u8, u64, usize)> {
        let windows = self.windows.read();
        let (&start, window) = windows.range(..=address).next_back()?;
        let inside = address - start;
        let room = window.len.checked_sub(inside).filter(|&room| room > 0)?;
        Some((window.device.clone(), window.bar, window.offset + inside as u64, room))
    }

    /// # Safety
    /// [`MAX_INSTRUCTION`] bytes at `pointer` are readable.
    unsafe fn decode(&self, pointer: u64) -> Result<Access, Failure> {
        let code = std::ptr::with_exposed_provenance::<[u8; MAX_INSTRUCTION]>(pointer as usize);
        // SAFETY: the caller's promise; an array of bytes has no alignment.
        let bytes = unsafe { code.read_unaligned() };
        if let Some(access) = self.decoded.read().get(&(pointer, bytes)) {
            return Ok(*access);
        }
        let instruction = Decoder::with_ip(64, &bytes, pointer, DecoderOptions::NONE).decode();
        let access = Access::of(&instruction).ok_or_else(|| {
            Failure::Instruction(format!("a device register accessed by {:?}", instruction.code()))
        })?;
        self.decoded.write().insert((pointer, bytes), access);
        Ok(access)
    }
}

impl Access {
    fn of(instruction: &Instruction) -> Option<Self> {
        if instruction.code() == Code::INVALID || instruction.op_count() != 2 {
            return None;
        }
        let width = Width::of(instruction.memory_size().size())?;
        let kind = match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
            (Mnemonic::Mov | Mnemonic::Movzx, OpKind::Register, OpKind::Memory) => {
                Kind::Load { into: Operand::of(instruction.op0_register())?, sign_extend: false }
            }
            (Mnemonic::Movsx | Mnemonic::Movsxd, OpKind::Register, OpKind::Memory) => {
                Kind::Load { into: Operand::of(instruction.op0_register())?, sign_extend: true }
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => {
                Kind::Store { from: Operand::of(instruction.op1_register())? }
            }
            (
                Mnemonic::Mov,
                OpKind::Memory,
                OpKind::Immediate8 | OpKind::Immediate16 | OpKind::Immediate32 | OpKind::Immediate32to64,
            ) => Kind::StoreImmediate(instruction.immediate(1) & width.all_ones()),
            _ => return None,
        };
        Some(Self { len: instruction.len() as u64, width, kind })
    }
}

impl Operand {
    fn of(register: Register) -> Option<Self> {
        if !register.is_gpr() {
            return None;
        }
        let high_byte = matches!(register, Register::AH | Register::CH | Register::DH | Register::BH);
        let index = register.full_register().number();
        Some(Self { index, width: Width::of(register.size())?, high_byte })
    }

    fn get(self, cpu: &impl CpuState) -> u64 {
        let value = cpu.general(self.index);
        if self.high_byte { value >> 8 & 0xff } else { value & self.width.all_ones() }
    }

    fn set(self, cpu: &mut impl CpuState, value: u64) {
        let old = cpu.general(self.index);
        let new = match self.width {
            Width::Byte if self.high_byte => old & !0xff00 | (value & 0xff) << 8,
            Width::Byte | Width::Word => old & !self.width.all_ones() | value & self.width.all_ones(),
            // A 32-bit result clears the upper half.
            Width::Dword | Width::Qword => value & self.width.all_ones(),
        };
        cpu.set_general(self.index, new);
    }
}

fn extend(value: u64, width: Width) -> u64 {
    let unused = 64 - 8 * width.bytes() as u32;
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    const BASE: usize = 0x7000_0000;

    /// Returns a pattern to reads and records writes.
    #[derive(Default)]
    struct Device {
        written: Mutex<Vec<(u64, Width, u64)>>,
    }

    impl Registers for Device {
        fn read(&self, _bar: u8, _offset: u64, width: Width) -> Result<u64, Misuse> {
            Ok(0x8899_aabb_ccdd_eeff & width.all_ones())
        }

        fn write(&self, _bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
            self.written.lock().push((offset, width, value));
            Ok(())
        }
    }

    #[derive(Default)]
    struct Cpu {
        general: [u64; 16],
        pointer: u64,
    }

    impl CpuState for Cpu {
        fn general(&self, index: usize) -> u64 {
            self.general[index]
        }

        fn set_general(&mut self, index: usize, value: u64) {
            self.general[index] = value;
        }

        fn instruction_pointer(&self) -> u64 {
            self.pointer
        }

        fn set_instruction_pointer(&mut self, value: u64) {
            self.pointer = value;
        }
    }

    type Written = Vec<(u64, Width, u64)>;

    /// Runs one instruction against a window; all registers hold ones before.
    fn run(code: &[u8]) -> (Result<(), Failure>, Cpu, Written) {
        let mut bytes = [0x90; MAX_INSTRUCTION];
        bytes[..code.len()].copy_from_slice(code);
        let device = Arc::new(Device::default());
        let windows = Windows::default();
        windows.map(BASE, 0x100, device.clone(), 4, 0x3000);
        let pointer = (&raw const bytes).expose_provenance() as u64;
        let mut cpu = Cpu { general: [0x1111_1111_1111_1111; 16], pointer };
        // SAFETY: the instruction pointer is that of `bytes`.
        let result = unsafe { windows.access(BASE + 0x10, &mut cpu) };
        if result.is_ok() {
            assert_eq!(cpu.pointer, pointer + code.len() as u64);
        }
        let written = device.written.lock().clone();
        (result, cpu, written)
    }

    #[test]
    fn loads_change_the_same_register_bytes_as_the_processor() {
        let cases: [(&[u8], usize, u64); 6] = [
            (&[0x8b, 0x01], 0, 0xccdd_eeff),                       // mov eax, [rcx]
            (&[0x4c, 0x8b, 0x01], 8, 0x8899_aabb_ccdd_eeff),       // mov r8, [rcx]
            (&[0x66, 0x8b, 0x01], 0, 0x1111_1111_1111_eeff),       // mov ax, [rcx]
            (&[0x8a, 0x21], 0, 0x1111_1111_1111_ff11),             // mov ah, [rcx]
            (&[0x0f, 0xb7, 0x01], 0, 0xeeff),                      // movzx eax, word [rcx]
            (&[0x48, 0x0f, 0xbe, 0x01], 0, 0xffff_ffff_ffff_ffff), // movsx rax, byte [rcx]
        ];
        for (code, register, expected) in cases {
            let (result, cpu, _) = run(code);
            assert_eq!(result, Ok(()));
            assert_eq!(cpu.general[register], expected, "{code:02x?}");
        }
    }

    #[test]
    fn stores_reach_the_device_with_their_width() {
        let (_, _, written) = run(&[0x66, 0x89, 0x11]); // mov [rcx], dx
        assert_eq!(written, [(0x3010, Width::Word, 0x1111)]);
        let (_, _, written) = run(&[0xc6, 0x01, 0x80]); // mov byte [rcx], 0x80
        assert_eq!(written, [(0x3010, Width::Byte, 0x80)]);
        let (_, _, written) = run(&[0x66, 0xc7, 0x01, 0xff, 0xff]); // mov word [rcx], 0xffff
        assert_eq!(written, [(0x3010, Width::Word, 0xffff)]);
    }

    #[test]
    fn unsupported_instruction_is_refused() {
        let (result, ..) = run(&[0xf0, 0xff, 0x01]); // lock inc dword [rcx]
        assert!(matches!(result, Err(Failure::Instruction(_))));
        let (result, ..) = run(&[0x0f, 0x28, 0x01]); // movaps xmm0, [rcx]
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
