// SPDX-License-Identifier: MIT OR Apache-2.0

//! `KUSER_SHARED_DATA`: the page at a fixed address from which drivers read the time without a call.
//!
//! Plain loads (`mov`, `movzx`, `movsx`) are executed; an instruction that computes with the page is reported as
//! not simulated.

use trapped_access::{CpuState as _, Decoder, Width};

use super::{time, version};
use crate::{
    host::{FaultOutcome, Host},
    image::registers::FaultContext,
    memory::PAGE_SIZE,
    services::Slot,
    thread::{Thread, current},
    verifier::BugCheck,
};

/// Address of the page on every x64 Windows, in kernel mode.
const ADDRESS: usize = 0xffff_f780_0000_0000;

/// The instructions that read the page.
pub(super) static READERS: Slot<Decoder> = Slot::new();

/// Virtual nanoseconds that a read takes, so that a loop that waits for the time ends, and others run meanwhile.
const READ_NANOS: u64 = 1000;

/// Offsets of members.
mod member {
    pub const TICK_COUNT_MULTIPLIER: usize = 0x004;
    pub const INTERRUPT_TIME: usize = 0x008;
    pub const SYSTEM_TIME: usize = 0x014;
    pub const NT_BUILD_NUMBER: usize = 0x260;
    pub const NT_MAJOR_VERSION: usize = 0x26c;
    pub const TICK_COUNT: usize = 0x320;
}

/// Bytes of a `KSYSTEM_TIME`: the lower half, and the upper half twice.
const SYSTEM_TIME_LEN: usize = 12;
/// Units of 100 ns in a tick.
const TICK: u64 = 156_250;
/// Milliseconds of a tick, as a fraction of 2^24.
const MULTIPLIER: u32 = 0x0fa0_0000;

/// Executes a read of the page.
///
/// # Safety
/// `context` is that of the calling thread, as the fault interrupted it.
pub(super) unsafe fn read(host: &Host, address: usize, context: &mut FaultContext<'_>) -> FaultOutcome {
    let offset = address.wrapping_sub(ADDRESS);
    if offset >= PAGE_SIZE || host.images().find(context.instruction_pointer() as usize).is_none() {
        return FaultOutcome::NotMine;
    }
    // SAFETY: the interrupted instruction was just fetched from there.
    let access = match unsafe { host.state(&READERS).decode(context.instruction_pointer()) } {
        Ok(access) if access.is_load() => access,
        Ok(_) => {
            let text = "a write to KUSER_SHARED_DATA, which is read-only".to_owned();
            return FaultOutcome::Violation(BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY, text);
        }
        Err(instruction) => {
            let text = format!("KUSER_SHARED_DATA accessed by {instruction}, which is not simulated");
            return FaultOutcome::Violation(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text);
        }
    };
    let me = current();
    if me.world().clock.is_deterministic() {
        me.world().clock.stall(me.shared(), READ_NANOS);
    }
    let bytes = page(&me);
    access.execute(context, || value(&bytes, offset, access.width()), |_| ());
    FaultOutcome::Handled
}

/// Returns the page. Members that drivers do not read are 0.
fn page(me: &Thread) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let interrupt_time = time::tick_interrupt_time(me);
    put(member::TICK_COUNT_MULTIPLIER, &MULTIPLIER.to_le_bytes());
    put(member::INTERRUPT_TIME, &system_time(interrupt_time));
    put(member::SYSTEM_TIME, &system_time(time::tick_system_time(me)));
    put(member::NT_BUILD_NUMBER, &version::BUILD.to_le_bytes());
    put(member::NT_MAJOR_VERSION, &10_u32.to_le_bytes());
    put(member::TICK_COUNT, &system_time(interrupt_time / TICK));
    page
}

/// Returns a `KSYSTEM_TIME`.
fn system_time(value: u64) -> [u8; SYSTEM_TIME_LEN] {
    let mut bytes = [0; SYSTEM_TIME_LEN];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[8..].copy_from_slice(&((value >> 32) as u32).to_le_bytes());
    bytes
}

fn value(page: &[u8; PAGE_SIZE], offset: usize, width: Width) -> u64 {
    let bytes = page[offset..].iter().take(width.bytes());
    bytes.rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::ClockKind, host::HostOptions, sim::Sim};

    #[test]
    fn times_have_their_upper_half_twice_and_ticks_are_counted() {
        assert_eq!(system_time(0x0102_0304_0506_0708), [8, 7, 6, 5, 4, 3, 2, 1, 4, 3, 2, 1]);
        let mut sim = Sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
        let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
        let read = || {
            let me = current();
            let before = page(&me);
            me.stall(1_000_000_000);
            let after = page(&me);
            [before, after].map(|page| value(&page, member::TICK_COUNT, Width::Dword))
        };
        let [before, after] = host.spawn("reads", read).join().unwrap();
        // A second has 64 ticks of 15.625 ms.
        assert_eq!(after - before, 64);
    }
}
