// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions and memory that exist in a kernel only.

use core::{arch::asm, ptr::with_exposed_provenance};

use ndk_abi::nt::{DISPATCH_LEVEL, KeBugCheckEx, KeLowerIrql, KfRaiseIrql};

use crate::memory::stay;

/// `KUSER_SHARED_DATA.SystemTime`.
const SYSTEM_TIME: usize = 0xffff_f780_0000_0014;

/// Fails an assertion as `NT_ASSERT` does.
pub fn failed_assertion() {
    // SAFETY: a trap without effect on registers and memory.
    unsafe { asm!("int 0x2c") };
    stay();
}

/// Reads the IRQL from the control register that holds it; bug checks when it is not the current one.
pub fn read_irql_from_cr8() {
    expect(irql(), 0);
    // SAFETY: the level is not below the current one, which is PASSIVE_LEVEL or DISPATCH_LEVEL here.
    let old = unsafe { KfRaiseIrql(DISPATCH_LEVEL) };
    expect(irql(), DISPATCH_LEVEL.into());
    // SAFETY: the level that raising has returned, which is not above the current one.
    unsafe { KeLowerIrql(old) };
}

/// Changes the IRQL by the control register that holds it, in both directions; bug checks when it or another register is not as
/// expected afterwards.
pub fn write_irql_to_cr8() {
    for level in [0_u64, 2, 2, 11, 1, 0] {
        let (same, flags): (u64, u64);
        // SAFETY: raises or lowers the level, as the kernel's inlined functions do; the level before is restored at the end.
        unsafe {
            asm!(
                "mov rax, {level}",
                "mov rcx, 7",
                "mov r11, 9",
                "movq xmm5, rcx",
                "stc",
                "mov cr8, rax",
                "setc dl",
                "movq r10, xmm5",
                "add r10, rcx",
                "add r10, r11",
                "movzx r8, dl",
                level = in(reg) level,
                out("rax") _, out("rcx") _, out("rdx") _, out("r11") _, out("xmm5") _,
                out("r10") same, out("r8") flags,
            );
        }
        expect(same, 23);
        expect(flags, 1);
        expect(irql(), level);
    }
    // SAFETY: as above, with a register of the second half.
    unsafe { asm!("mov r9, 0", "mov cr8, r9", out("r9") _) };
    expect(irql(), 0);
}

fn irql() -> u64 {
    let (level, same): (u64, u64);
    // SAFETY: reads CR8, the IRQL, which a driver in ring 0 may; no memory is accessed.
    unsafe { asm!("mov {}, cr8", "mov r11, cr8", out(reg) level, out("r11") same) };
    expect(level, same);
    level
}

/// Waits until the system time in the shared page has advanced by 5 ms.
pub fn poll_shared_time() {
    let start = system_time();
    while system_time() < start + 50_000 {}
}

fn system_time() -> u64 {
    let time;
    // SAFETY: the kernel maps the page at this address for every driver.
    unsafe { asm!("mov {}, [{}]", out(reg) time, in(reg) SYSTEM_TIME, options(readonly, nostack)) };
    time
}

/// Writes to the shared page, which is read-only.
pub fn write_shared_time() {
    // SAFETY: violates the rule on purpose.
    unsafe { with_exposed_provenance::<u64>(SYSTEM_TIME).cast_mut().write_volatile(0) };
    stay();
}

/// Bug checks with the two values if they differ.
fn expect(left: u64, right: u64) {
    if left != right {
        // SAFETY: `KeBugCheckEx` is callable at any IRQL; it does not return.
        unsafe { KeBugCheckEx(0xdead, left as usize, right as usize, 0, 0) };
    }
}
