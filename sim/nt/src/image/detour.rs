// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions whose effect may let other threads run, and so must not happen inside the handler of the fault: the image continues in
//! a function of the host, as if it had called it, and then behind the instruction, with all its registers.

use std::arch::naked_asm;

use trapped_access::CpuState as _;

use super::registers::FaultContext;

/// Index of the stack pointer among the general registers.
const RSP: usize = 4;

/// The function that the image continues with.
pub(super) type Function = extern "efiapi" fn(argument: usize);

/// Makes the image continue in `function`, and behind the instruction of `length` bytes afterwards.
pub(super) fn begin(context: &mut FaultContext<'_>, length: u64, function: Function, argument: u64) {
    let after = context.instruction_pointer() + length;
    let stack = context.general(RSP);
    for (place, value) in [(8, after), (16, argument), (24, function as *const () as u64)] {
        let slot = std::ptr::with_exposed_provenance_mut::<u64>((stack - place) as usize);
        // SAFETY: below the image's stack pointer, where its calling convention has no red zone; without room, this faults as
        // a call does.
        unsafe { slot.write_volatile(value) };
    }
    context.set_general(RSP, stack - 24);
    context.set_instruction_pointer(call as *const () as u64);
}

/// Calls the function on top of the stack with the argument below it, removes both, and returns. Preserves all registers that code of a
/// kernel has.
#[unsafe(naked)]
extern "efiapi" fn call() {
    naked_asm!(
        "pushfq",
        "push rax",
        "push rcx",
        "push rdx",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -16",
        "sub rsp, 128",
        "movaps [rsp + 32], xmm0",
        "movaps [rsp + 48], xmm1",
        "movaps [rsp + 64], xmm2",
        "movaps [rsp + 80], xmm3",
        "movaps [rsp + 96], xmm4",
        "movaps [rsp + 112], xmm5",
        "cld",
        // Nine registers are above.
        "mov rcx, [rbp + 80]",
        "call [rbp + 72]",
        "movaps xmm0, [rsp + 32]",
        "movaps xmm1, [rsp + 48]",
        "movaps xmm2, [rsp + 64]",
        "movaps xmm3, [rsp + 80]",
        "movaps xmm4, [rsp + 96]",
        "movaps xmm5, [rsp + 112]",
        "mov rsp, rbp",
        "pop rbp",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "popfq",
        "lea rsp, [rsp + 16]",
        "ret",
    )
}
