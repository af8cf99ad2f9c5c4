// SPDX-License-Identifier: MIT OR Apache-2.0

//! Run-time library: strings, random numbers, version, bug checks.

use ndk_abi::nt::{RTL_OSVERSIONINFOW, STATUS_SUCCESS, UNICODE_STRING};

use super::random::RANDOM;
use crate::{
    guest::Guest,
    imports,
    thread::current,
    verifier::{BugCheck, violation},
};

/// `MAXLONG`, the exclusive limit of random numbers.
const MAXLONG: u32 = 0x7fff_ffff;

/// Returns the characters of a counted string.
#[must_use]
pub fn unicode(string: Guest<UNICODE_STRING>) -> Vec<u16> {
    let string = string.read();
    let characters = Guest::new(string.Buffer);
    (0..usize::from(string.Length) / 2).map(|index| characters.add(index).read()).collect()
}

fn fold(character: u16, fold: bool) -> u16 {
    let upper = u8::try_from(character).ok().map(|byte| byte.to_ascii_uppercase());
    if fold { upper.map_or(character, u16::from) } else { character }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Points a counted string at a terminated one.
    [<= DISPATCH_LEVEL]
    fn RtlInitUnicodeString(target: Guest<UNICODE_STRING>, source: Guest<u16>) {
        const LONGEST: usize = 0xfffc;
        let length = if source.is_null() {
            0
        } else {
            2 * (0..LONGEST).take_while(|&index| source.add(index).read() != 0).count()
        };
        let length = u16::try_from(length.min(LONGEST)).unwrap_or(0);
        let maximum = if source.is_null() { 0 } else { length + 2 };
        target.write(UNICODE_STRING { Length: length, MaximumLength: maximum, Buffer: source.as_ptr() });
    }

    /// Copies a counted string, truncated to the target's buffer.
    [any]
    fn RtlCopyUnicodeString(target: Guest<UNICODE_STRING>, source: Guest<UNICODE_STRING>) {
        let mut string = target.read();
        let characters = if source.is_null() { Vec::new() } else { unicode(source) };
        let count = characters.len().min(usize::from(string.MaximumLength) / 2);
        let buffer = Guest::new(string.Buffer);
        for (index, &character) in characters[..count].iter().enumerate() {
            buffer.add(index).write(character);
        }
        string.Length = u16::try_from(count * 2).unwrap_or(0);
        if string.Length + 2 <= string.MaximumLength {
            buffer.add(count).write(0);
        }
        target.write(string);
    }

    /// Compares counted strings.
    [<= PASSIVE_LEVEL]
    fn RtlEqualUnicodeString(left: Guest<UNICODE_STRING>, right: Guest<UNICODE_STRING>, ignore_case: u8) -> u8 {
        let folded = |string| unicode(string).into_iter().map(|c| fold(c, ignore_case != 0)).collect::<Vec<_>>();
        (folded(left) == folded(right)).into()
    }

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

    /// Returns the version of the system: Windows Server 2022.
    [<= PASSIVE_LEVEL]
    fn RtlGetVersion(version: Guest<RTL_OSVERSIONINFOW>) -> i32 {
        let mut information = version.read();
        information.dwMajorVersion = 10;
        information.dwMinorVersion = 0;
        information.dwBuildNumber = 20348;
        information.dwPlatformId = 2;
        information.szCSDVersion = [0; 128];
        version.write(information);
        STATUS_SUCCESS
    }

    /// Crashes the system.
    [any]
    fn KeBugCheckEx(code: u32, first: usize, second: usize, third: usize, fourth: usize) {
        violation(
            BugCheck(code),
            format!("the image called KeBugCheckEx with {first:#x}, {second:#x}, {third:#x}, {fourth:#x}"),
        );
    }

    /// Returns the ID of the current thread.
    [<= DISPATCH_LEVEL]
    fn PsGetCurrentThreadId() -> usize {
        // IDs of Windows are multiples of four.
        (current().id().0 as usize + 1) * 4
    }

    /// Returns the ID of the current process: that of the system process.
    [any]
    fn PsGetCurrentProcessId() -> usize {
        4
    }
}
