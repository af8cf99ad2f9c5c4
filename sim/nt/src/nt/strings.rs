// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counted strings. Case is folded as the kernel's table does for Latin letters.

use std::cmp::Ordering;

use ndk_abi::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY,
    STATUS_SUCCESS, STRING, UNICODE_STRING,
};

use super::{pool, runtime::unicode};
use crate::{
    guest::Guest,
    imports,
    memory::pool::{Request, Tag},
    thread::current,
};

/// Tag of buffers that conversions allocate.
const TAG: Tag = Tag(u32::from_le_bytes(*b"grtS"));

/// Returns the upper-case form of a character; characters whose form is not one unit stay.
fn upper(character: u16) -> u16 {
    let Some(letter) = char::from_u32(character.into()) else { return character };
    let mut forms = letter.to_uppercase();
    match (forms.next().map(|form| u16::try_from(u32::from(form))), forms.next()) {
        (Some(Ok(form)), None) => form,
        _ => character,
    }
}

fn folded(string: Guest<UNICODE_STRING>, ignore_case: bool) -> Vec<u16> {
    let characters = unicode(string);
    if ignore_case { characters.into_iter().map(upper).collect() } else { characters }
}

pub(super) fn terminated(text: Guest<u16>) -> Vec<u16> {
    const LONGEST: usize = 0x7ffe;
    (0..LONGEST).map(|index| text.add(index).read()).take_while(|&character| character != 0).collect()
}

fn bytes(characters: usize) -> u16 {
    u16::try_from(2 * characters).unwrap_or(u16::MAX - 1)
}

/// Appends characters and a terminator, if there is room for it.
fn append(target: Guest<UNICODE_STRING>, characters: &[u16]) -> i32 {
    let mut string = target.read();
    let length = u32::from(string.Length) + 2 * u32::try_from(characters.len()).unwrap_or(u32::MAX / 2);
    if length > u32::from(string.MaximumLength) {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let end = Guest::new(string.Buffer).add(usize::from(string.Length) / 2);
    for (index, &character) in characters.iter().enumerate() {
        end.add(index).write(character);
    }
    if length + 2 <= u32::from(string.MaximumLength) {
        end.add(characters.len()).write(0);
    }
    string.Length = u16::try_from(length).unwrap_or(u16::MAX);
    target.write(string);
    STATUS_SUCCESS
}

/// Allocates the buffer of a string; returns `None` when resources run low.
pub(super) fn allocate(size: usize) -> Option<Guest<u8>> {
    let block = pool::allocate(&current(), Request { size, tag: TAG, zeroed: true, cache_aligned: false });
    (!block.is_null()).then_some(block)
}

fn digits(mut value: u32, base: u32) -> Vec<u16> {
    let mut digits = Vec::new();
    loop {
        let digit = char::from_digit(value % base, base).unwrap_or('?').to_ascii_uppercase();
        digits.insert(0, u16::try_from(u32::from(digit)).unwrap_or(0));
        value /= base;
        if value == 0 {
            return digits;
        }
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Points a counted string at a terminated one.
    [<= DISPATCH_LEVEL]
    fn RtlInitUnicodeString(target: Guest<UNICODE_STRING>, source: Guest<u16>) {
        let (length, maximum) = if source.is_null() {
            (0, 0)
        } else {
            let length = bytes(terminated(source).len());
            (length, length + 2)
        };
        target.write(UNICODE_STRING { Length: length, MaximumLength: maximum, Buffer: source.as_ptr() });
    }

    /// Points a counted string of bytes at a terminated one.
    [<= DISPATCH_LEVEL]
    fn RtlInitAnsiString(target: Guest<STRING>, source: Guest<u8>) {
        let length = if source.is_null() {
            0
        } else {
            (0..0xfffe).take_while(|&index| source.add(index).read() != 0).count()
        };
        let length = u16::try_from(length).unwrap_or(0);
        let maximum = if source.is_null() { 0 } else { length + 1 };
        target.write(STRING { Length: length, MaximumLength: maximum, Buffer: source.cast().as_ptr() });
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
        string.Length = bytes(count);
        if string.Length + 2 <= string.MaximumLength {
            buffer.add(count).write(0);
        }
        target.write(string);
    }

    /// Appends a terminated string; fails, and appends nothing, when it does not fit.
    [any]
    fn RtlAppendUnicodeToString(target: Guest<UNICODE_STRING>, source: Guest<u16>) -> i32 {
        if source.is_null() { STATUS_SUCCESS } else { append(target, &terminated(source)) }
    }

    /// Appends a counted string; fails, and appends nothing, when it does not fit.
    [any]
    fn RtlAppendUnicodeStringToString(target: Guest<UNICODE_STRING>, source: Guest<UNICODE_STRING>) -> i32 {
        append(target, &unicode(source))
    }

    /// Returns whether counted strings are equal.
    [<= PASSIVE_LEVEL]
    fn RtlEqualUnicodeString(left: Guest<UNICODE_STRING>, right: Guest<UNICODE_STRING>, ignore_case: u8) -> u8 {
        (folded(left, ignore_case != 0) == folded(right, ignore_case != 0)).into()
    }

    /// Compares counted strings: negative, 0, or positive.
    [<= PASSIVE_LEVEL]
    fn RtlCompareUnicodeString(left: Guest<UNICODE_STRING>, right: Guest<UNICODE_STRING>, ignore_case: u8) -> i32 {
        match folded(left, ignore_case != 0).cmp(&folded(right, ignore_case != 0)) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Returns whether a counted string starts with another.
    [<= PASSIVE_LEVEL]
    fn RtlPrefixUnicodeString(prefix: Guest<UNICODE_STRING>, string: Guest<UNICODE_STRING>, ignore_case: u8) -> u8 {
        folded(string, ignore_case != 0).starts_with(&folded(prefix, ignore_case != 0)).into()
    }

    /// Returns the upper-case form of a character.
    [<= PASSIVE_LEVEL]
    fn RtlUpcaseUnicodeChar(character: u16) -> u16 {
        upper(character)
    }

    /// Converts bytes to UTF-16, into a new buffer or the target's.
    [<= PASSIVE_LEVEL]
    fn RtlAnsiStringToUnicodeString(target: Guest<UNICODE_STRING>, source: Guest<STRING>, allocates: u8) -> i32 {
        let source = source.read();
        let size = 2 * usize::from(source.Length) + 2;
        if size > 0xffff {
            return STATUS_INVALID_PARAMETER;
        }
        let mut string = target.read();
        string.Length = 2 * source.Length;
        if allocates != 0 {
            let Some(buffer) = allocate(size) else { return STATUS_NO_MEMORY };
            string.Buffer = buffer.cast().as_ptr();
            string.MaximumLength = string.Length + 2;
        } else if string.Length >= string.MaximumLength {
            return STATUS_BUFFER_OVERFLOW;
        }
        let (from, to) = (Guest::new(source.Buffer).cast::<u8>(), Guest::new(string.Buffer));
        for index in 0..usize::from(source.Length) {
            to.add(index).write(from.add(index).read().into());
        }
        to.add(source.Length.into()).write(0);
        target.write(string);
        STATUS_SUCCESS
    }

    /// Converts UTF-16 to bytes, into a new buffer or the target's. Other characters than Latin-1 become `?`.
    [<= PASSIVE_LEVEL]
    fn RtlUnicodeStringToAnsiString(target: Guest<STRING>, source: Guest<UNICODE_STRING>, allocates: u8) -> i32 {
        let characters = unicode(source);
        let mut string = target.read();
        string.Length = u16::try_from(characters.len()).unwrap_or(u16::MAX);
        if allocates != 0 {
            let Some(buffer) = allocate(characters.len() + 1) else { return STATUS_NO_MEMORY };
            string.Buffer = buffer.cast().as_ptr();
            string.MaximumLength = string.Length + 1;
        } else if string.Length >= string.MaximumLength {
            return STATUS_BUFFER_OVERFLOW;
        }
        let to = Guest::new(string.Buffer).cast::<u8>();
        for (index, &character) in characters.iter().enumerate() {
            to.add(index).write(u8::try_from(character).unwrap_or(b'?'));
        }
        to.add(characters.len()).write(0);
        target.write(string);
        STATUS_SUCCESS
    }

    /// Frees a buffer that a conversion allocated.
    [<= PASSIVE_LEVEL]
    fn RtlFreeUnicodeString(string: Guest<UNICODE_STRING>) {
        let buffer = Guest::new(string.read().Buffer);
        if !buffer.is_null() {
            pool::free(&current(), buffer.cast(), None);
        }
        string.write(UNICODE_STRING::zeroed());
    }

    /// Frees a buffer that a conversion allocated.
    [<= PASSIVE_LEVEL]
    fn RtlFreeAnsiString(string: Guest<STRING>) {
        let buffer = Guest::new(string.read().Buffer);
        if !buffer.is_null() {
            pool::free(&current(), buffer.cast(), None);
        }
        string.write(STRING::zeroed());
    }

    /// Writes a number to the base 2, 8, 10 or 16; 0 is 10.
    [<= PASSIVE_LEVEL]
    fn RtlIntegerToUnicodeString(value: u32, base: u32, target: Guest<UNICODE_STRING>) -> i32 {
        let base = if base == 0 { 10 } else { base };
        if !matches!(base, 2 | 8 | 10 | 16) {
            return STATUS_INVALID_PARAMETER;
        }
        let digits = digits(value, base);
        let mut string = target.read();
        if bytes(digits.len()) > string.MaximumLength {
            return STATUS_BUFFER_OVERFLOW;
        }
        string.Length = 0;
        target.write(string);
        append(target, &digits)
    }

    /// Reads a number. The base 0 means that `0x`, `0o` or `0b` before the digits say it, and 10 without them.
    [<= PASSIVE_LEVEL]
    fn RtlUnicodeStringToInteger(string: Guest<UNICODE_STRING>, base: u32, value: Guest<u32>) -> i32 {
        let text = String::from_utf16_lossy(&unicode(string));
        let text = text.trim_start_matches(|character| character <= ' ');
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)]
            .iter()
            .find_map(|&(prefix, base)| text.strip_prefix(prefix).map(|rest| (rest, base)));
        let (text, base) = match base {
            0 => prefixed.unwrap_or((text, 10)),
            2 | 8 | 10 | 16 => (text, base),
            _ => return STATUS_INVALID_PARAMETER,
        };
        let digits = text.chars().map_while(|character| character.to_digit(base));
        let number = digits.fold(0_u32, |number, digit| number.wrapping_mul(base).wrapping_add(digit));
        value.write(if negative { number.wrapping_neg() } else { number });
        STATUS_SUCCESS
    }
}
