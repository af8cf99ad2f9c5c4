// SPDX-License-Identifier: MIT OR Apache-2.0

//! The general registers of x64 in the order of their numbers, as instructions, unwind codes and signal
//! contexts of Linux name them.

use trapped_access::CpuState;

/// Number of the stack pointer.
pub const RSP: usize = 4;
/// Number of the frame pointer.
pub const RBP: usize = 5;
/// Number of the first argument's register of the Microsoft calling convention.
pub const RCX: usize = 1;

/// Where a signal context of Linux holds each general register, by its x64 number.
const IN_CONTEXT: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The registers that a stack walk needs. General registers whose value is unknown are 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Registers {
    pub ip: usize,
    pub general: [usize; 16],
}

impl Registers {
    #[must_use]
    pub fn at(ip: usize, stack: usize, frame: usize) -> Self {
        let mut registers = Self { ip, general: [0; 16] };
        registers.general[RSP] = stack;
        registers.general[RBP] = frame;
        registers
    }
}

/// The registers of a thread that a fault interrupted. Changes take effect when the thread continues.
pub struct FaultContext<'a>(&'a mut libc::ucontext_t);

impl<'a> FaultContext<'a> {
    pub(super) fn new(context: &'a mut libc::ucontext_t) -> Self {
        Self(context)
    }

    /// Returns the page fault's error code.
    pub(super) fn error_code(&self) -> u64 {
        self.get(libc::REG_ERR)
    }

    pub(super) fn registers(&self) -> Registers {
        let value = |register| self.get(register) as usize;
        Registers { ip: value(libc::REG_RIP), general: IN_CONTEXT.map(value) }
    }

    fn get(&self, register: libc::c_int) -> u64 {
        self.0.uc_mcontext.gregs[register.cast_unsigned() as usize].cast_unsigned()
    }

    fn set(&mut self, register: libc::c_int, value: u64) {
        self.0.uc_mcontext.gregs[register.cast_unsigned() as usize] = value.cast_signed();
    }
}

impl CpuState for FaultContext<'_> {
    fn general(&self, index: usize) -> u64 {
        self.get(IN_CONTEXT[index])
    }

    fn set_general(&mut self, index: usize, value: u64) {
        self.set(IN_CONTEXT[index], value);
    }

    fn instruction_pointer(&self) -> u64 {
        self.get(libc::REG_RIP)
    }

    fn set_instruction_pointer(&mut self, value: u64) {
        self.set(libc::REG_RIP, value);
    }
}

/// Memory that a walk may read: the calling thread's stack.
pub struct StackBounds {
    pub low: usize,
    pub high: usize,
}

impl StackBounds {
    /// Reads the word at `address`; `None` when it is not inside the stack.
    #[must_use]
    pub fn read(&self, address: usize) -> Option<usize> {
        let inside = self.low <= address && address.checked_add(8)? <= self.high && address.is_multiple_of(8);
        let pointer = std::ptr::with_exposed_provenance::<usize>(address);
        // SAFETY: inside the calling thread's own stack, aligned, initialized when it was pushed.
        inside.then(|| unsafe { pointer.read_volatile() })
    }
}
