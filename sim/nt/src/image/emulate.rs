// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions that run in a kernel but not in a Linux process: they fault, and are executed here. So is `pause` where it lets other
//! threads run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trapped_access::CpuState as _;

use super::{
    detour,
    frame::DEPTH,
    load::Image,
    pauses,
    registers::{FaultContext, Registers},
    stack,
};
use crate::{
    import::run,
    irql::{Irql, Limit},
    thread::current::{Thread, current},
    verifier::{codes::BugCheck, report, tolerance::Tolerance},
};

static IRQL_ACCESSES: AtomicU64 = AtomicU64::new(0);

/// Returns how many accesses to `cr8` images of this process have executed. Each is a signal, which takes some microseconds: a
/// measurement in real time is to know of them.
#[must_use]
pub fn irql_accesses() -> u64 {
    IRQL_ACCESSES.load(Relaxed)
}

/// Executes the instruction of `image` that a fault interrupted, and advances the instruction
/// pointer; returns `false` when it is none of those that are emulated.
pub(super) fn execute(me: &Thread, image: &Image, context: &mut FaultContext<'_>) -> bool {
    let registers = context.registers();
    let Some(code) = image.code_at(registers.ip) else { return false };
    let length = match code {
        [0xcd, 0x2c, ..] => {
            failed_assertion(image, registers);
            2
        }
        // mov r64, cr8: REX with R, and B for the registers from r8; the modr/m byte names the register.
        [rex @ (0x44 | 0x45), 0x0f, 0x20, operand] if operand & 0xf8 == 0xc0 => {
            let register = usize::from(operand & 7) + if rex == 0x45 { 8 } else { 0 };
            IRQL_ACCESSES.fetch_add(1, Relaxed);
            context.set_general(register, me.irql().0.into());
            4
        }
        // mov cr8, r64: the image continues in a function that changes the level and returns behind the instruction.
        [rex @ (0x44 | 0x45), 0x0f, 0x22, operand] if operand & 0xf8 == 0xc0 => {
            let register = usize::from(operand & 7) + if rex == 0x45 { 8 } else { 0 };
            IRQL_ACCESSES.fetch_add(1, Relaxed);
            detour::begin(context, 4, set_level, context.general(register));
            return true;
        }
        [0x0f, 0x0b, ..] if image.has_pause_at(registers.ip) => {
            detour::begin(context, pauses::LENGTH, pause, 0);
            return true;
        }
        _ => return false,
    };
    context.set_instruction_pointer((registers.ip + length) as u64);
    true
}

/// `int 2Ch`: an assertion of the image has failed. Without a debugger Windows raises an exception.
fn failed_assertion(image: &Image, registers: Registers) {
    let text = "an assertion of the image failed (int 2Ch, STATUS_ASSERTION_FAILURE)".to_owned();
    let walk = stack::capture_from(Some(registers), DEPTH);
    if image.tolerates().contains(Tolerance::Assertions) {
        report::finding(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, text, walk, true);
    } else {
        report::report(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, text, walk);
    }
}

/// `mov cr8, r64`: an inlined change of the IRQL, which may run DPCs.
extern "efiapi" fn set_level(level: usize) {
    run("mov cr8", Limit::ANY, || {
        let me = current();
        let level = Irql(level as u8 & 15);
        if level < me.irql() {
            me.lower(level);
        } else {
            me.raise(level);
        }
    });
}

/// `pause`: a step of the thread, as a call of an import is.
extern "efiapi" fn pause(_: usize) {
    run("pause", Limit::ANY, || {});
}
