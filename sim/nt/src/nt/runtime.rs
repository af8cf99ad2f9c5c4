// SPDX-License-Identifier: MIT OR Apache-2.0

//! Run-time library: memory, random numbers, bug checks.

use ndk_abi::nt::UNICODE_STRING;

use super::random::RANDOM;
use crate::{
    guest::Guest,
    imports,
    thread::current,
    verifier::{BugCheck, violation},
};

/// `MAXLONG`, the exclusive limit of random numbers.
const MAXLONG: u32 = 0x7fff_ffff;

const BUG_CHECK_CALLBACK: &str = "KeRegisterBugCheckReasonCallback";

/// Returns the characters of a counted string.
#[must_use]
pub fn unicode(string: Guest<UNICODE_STRING>) -> Vec<u16> {
    let string = string.read();
    let characters = Guest::new(string.Buffer);
    (0..usize::from(string.Length) / 2).map(|index| characters.add(index).read()).collect()
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Counts the bytes that are equal from the start.
    [any]
    fn RtlCompareMemory(left: Guest<u8>, right: Guest<u8>, length: usize) -> usize {
        (0..length).take_while(|&index| left.add(index).read() == right.add(index).read()).count()
    }

    /// Returns the next random number after `seed`, below `MAXLONG`, and stores it to `seed`.
    [< DISPATCH_LEVEL]
    fn RtlRandomEx(seed: Guest<u32>) -> u32 {
        let random = current().host().state(&RANDOM).lock().u32(..MAXLONG);
        let number = (random ^ (seed.read() & MAXLONG)) % MAXLONG;
        seed.write(number);
        number
    }

    /// Returns whether the system supports a version of the driver model: it is 6.0.
    [<= PASSIVE_LEVEL]
    fn IoIsWdmVersionAvailable(major: u8, minor: u8) -> u8 {
        ((major, minor) <= (6, 0)).into()
    }

    /// Crashes the system.
    [any]
    fn KeBugCheckEx(code: u32, first: usize, second: usize, third: usize, fourth: usize) {
        violation(
            BugCheck(code),
            format!("the image called KeBugCheckEx with {first:#x}, {second:#x}, {third:#x}, {fourth:#x}"),
        );
    }

    /// Crashes the system.
    [any]
    fn KeBugCheck(code: u32) {
        violation(BugCheck(code), "the image called KeBugCheck");
    }

    /// Initializes a bit map, whose bits are in memory of the caller.
    [any]
    fn RtlInitializeBitMap(map: Guest<u32>, bits: usize, count: u32) {
        // RTL_BITMAP: the number of bits, then the address of the words that hold them.
        map.write(count);
        map.field::<usize>(8).write(bits);
    }

    /// Registers a function that the system calls when it crashes, which it does not do here. Returns whether it did.
    [any]
    fn KeRegisterBugCheckReasonCallback(record: usize, routine: usize, reason: i32, component: Guest<u8>) -> u8 {
        let _ = (routine, reason, component);
        let me = current();
        let is_new = !me.host().objects.contains(BUG_CHECK_CALLBACK, record);
        if is_new {
            me.host().objects.add(BUG_CHECK_CALLBACK, record);
        }
        is_new.into()
    }

    /// Removes the registration of a function; returns whether there was one.
    [any]
    fn KeDeregisterBugCheckReasonCallback(record: usize) -> u8 {
        current().host().objects.remove(BUG_CHECK_CALLBACK, record).into()
    }

    /// Returns the ID of the current thread.
    [<= DISPATCH_LEVEL]
    fn PsGetCurrentThreadId() -> usize {
        // IDs of Windows are multiples of four.
        (current().shared().id.0 as usize + 1) * 4
    }

    /// Returns the ID of the current process: that of the system process.
    [any]
    fn PsGetCurrentProcessId() -> usize {
        4
    }
}
