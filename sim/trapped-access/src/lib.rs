// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory accesses of an image that trapped, because what is at the address is not memory of this process.
//!
//! The fault handler passes the registers of the interrupted thread; [`Decoder`] decodes the instruction, and
//! [`Access::execute`] performs it with values of the handler's choice and advances the instruction pointer.
//! It supports the instructions that a compiler emits for a volatile access (`mov`, `movzx`, `movsx`, `movsxd`).
//!
//! Decoded instructions are cached; after the first access a trap costs little more than the signal.
#![allow(unsafe_code, reason = "reads the instruction at an address")]

use std::collections::HashMap;

use iced_x86::{Code, Decoder as Iced, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use parking_lot::RwLock;

/// Longest x86 instruction, in bytes.
const MAX_INSTRUCTION: usize = 15;

/// Width of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Byte,
    Word,
    Dword,
    Qword,
}

impl Width {
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Dword => 4,
            Self::Qword => 8,
        }
    }

    /// Returns the width of `bytes` bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Option<Self> {
        Some(match bytes {
            1 => Self::Byte,
            2 => Self::Word,
            4 => Self::Dword,
            8 => Self::Qword,
            _ => return None,
        })
    }

    /// Returns the value that a read of this width has when no device responds.
    #[must_use]
    pub const fn all_ones(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// General registers, indexed as in instruction encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8-r15.
pub trait CpuState {
    fn general(&self, index: usize) -> u64;
    fn set_general(&mut self, index: usize, value: u64);
    fn instruction_pointer(&self) -> u64;
    fn set_instruction_pointer(&mut self, value: u64);
}

/// Registers as plain values, for tests of what executes accesses.
#[derive(Clone, Default, Debug)]
pub struct Cpu {
    pub general: [u64; 16],
    pub pointer: u64,
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

/// Address and bytes of an instruction: another image may be loaded at the same address.
type Key = (u64, [u8; MAX_INSTRUCTION]);

/// Decodes instructions, and remembers them.
#[derive(Default)]
pub struct Decoder {
    decoded: RwLock<HashMap<Key, Access>>,
}

impl Decoder {
    /// Decodes the instruction at `pointer`.
    ///
    /// # Errors
    /// The name of the instruction when it is not supported.
    ///
    /// # Safety
    /// 15 bytes at `pointer` (the longest instruction) are readable.
    pub unsafe fn decode(&self, pointer: u64) -> Result<Access, String> {
        let code = std::ptr::with_exposed_provenance::<[u8; MAX_INSTRUCTION]>(pointer as usize);
        // SAFETY: the caller's promise; an array of bytes has no alignment.
        let bytes = unsafe { code.read_unaligned() };
        if let Some(access) = self.decoded.read().get(&(pointer, bytes)) {
            return Ok(*access);
        }
        let instruction = Iced::with_ip(64, &bytes, pointer, DecoderOptions::NONE).decode();
        let access = Access::of(&instruction).ok_or_else(|| format!("{:?}", instruction.code()))?;
        self.decoded.write().insert((pointer, bytes), access);
        Ok(access)
    }
}

/// Effect of an instruction on the memory that it accesses.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    len: u64,
    width: Width,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Load { into: Operand, sign_extend: bool },
    Store { from: Operand },
    StoreImmediate(u64),
}

/// A general register or a part of one.
#[derive(Clone, Copy, Debug)]
struct Operand {
    index: usize,
    width: Width,
    /// ah, ch, dh, bh.
    high_byte: bool,
}

impl Access {
    #[must_use]
    pub fn width(&self) -> Width {
        self.width
    }

    #[must_use]
    pub fn is_load(&self) -> bool {
        matches!(self.kind, Kind::Load { .. })
    }

    /// Executes the access on the registers of `cpu` and advances its instruction pointer: a load takes the value
    /// of `read`, a store passes its value to `write`.
    pub fn execute(self, cpu: &mut impl CpuState, read: impl FnOnce() -> u64, write: impl FnOnce(u64)) {
        match self.kind {
            Kind::Load { into, sign_extend } => {
                let value = read() & self.width.all_ones();
                into.set(cpu, if sign_extend { extend(value, self.width) } else { value });
            }
            Kind::Store { from } => write(from.get(cpu)),
            Kind::StoreImmediate(value) => write(value),
        }
        cpu.set_instruction_pointer(cpu.instruction_pointer().wrapping_add(self.len));
    }

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
    use super::*;

    /// Runs one instruction; all registers hold ones before. Returns the registers and what was written.
    fn run(code: &[u8]) -> Result<(Cpu, Option<(Width, u64)>), String> {
        let mut bytes = [0x90; MAX_INSTRUCTION];
        bytes[..code.len()].copy_from_slice(code);
        let pointer = (&raw const bytes).expose_provenance() as u64;
        // SAFETY: the pointer is that of `bytes`.
        let access = unsafe { Decoder::default().decode(pointer) }?;
        let mut cpu = Cpu { general: [0x1111_1111_1111_1111; 16], pointer };
        let mut written = None;
        access.execute(&mut cpu, || 0x8899_aabb_ccdd_eeff, |value| written = Some((access.width(), value)));
        assert_eq!(cpu.pointer, pointer + code.len() as u64);
        assert_eq!(access.is_load(), written.is_none());
        Ok((cpu, written))
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
            let (cpu, _) = run(code).unwrap();
            assert_eq!(cpu.general[register], expected, "{code:02x?}");
        }
    }

    #[test]
    fn stores_pass_their_value_with_its_width() {
        let written = |code| run(code).unwrap().1;
        assert_eq!(written(&[0x66, 0x89, 0x11]), Some((Width::Word, 0x1111))); // mov [rcx], dx
        assert_eq!(written(&[0xc6, 0x01, 0x80]), Some((Width::Byte, 0x80))); // mov byte [rcx], 0x80
        assert_eq!(written(&[0x66, 0xc7, 0x01, 0xff, 0xff]), Some((Width::Word, 0xffff))); // mov word [rcx], 0xffff
    }

    #[test]
    fn unsupported_instruction_is_refused() {
        assert!(run(&[0xf0, 0xff, 0x01]).is_err()); // lock inc dword [rcx]
        assert!(run(&[0x0f, 0x28, 0x01]).is_err()); // movaps xmm0, [rcx]
    }
}
