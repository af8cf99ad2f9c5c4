// SPDX-License-Identifier: MIT OR Apache-2.0

//! Formatted text into buffers.
//!
//! The functions with a count write no terminator when the text fills the buffer, and return -1 when it does not fit.

use super::format::{Arguments, Width, render, text};
use crate::{guest::Guest, imports};

/// `_TRUNCATE`: as much text as the buffer holds.
const TRUNCATE: usize = usize::MAX;

/// Longest format.
const LONGEST: usize = 1 << 16;

/// Writes text to a buffer of `room` characters; returns the number of characters, or -1.
fn put(buffer: usize, room: usize, text: &[u16], width: Width) -> i32 {
    let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
    if buffer == 0 {
        return if room == 0 { length } else { -1 };
    }
    let write = |index: usize, character: u16| match width {
        Width::Wide => Guest::<u16>::from_address(buffer).add(index).write(character),
        Width::Narrow => {
            let byte = u8::try_from(character).unwrap_or(b'?');
            Guest::<u8>::from_address(buffer).add(index).write(byte);
        }
    };
    for (index, &character) in text.iter().take(room).enumerate() {
        write(index, character);
    }
    if text.len() < room {
        write(text.len(), 0);
    }
    if text.len() <= room { length } else { -1 }
}

fn print(buffer: usize, room: usize, format: usize, width: Width, mut arguments: Arguments) -> i32 {
    let format = text(format, width, LONGEST);
    put(buffer, room, &render(&format, width, &mut arguments), width)
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Formats into a buffer without a limit.
    [any]
    fn sprintf(buffer: usize, format: usize, first: usize, second: usize) -> i32 {
        print(buffer, usize::MAX, format, Width::Narrow, Arguments::variadic(&[first, second]))
    }

    /// Formats as [`sprintf`] does, with a `va_list`.
    [any]
    fn vsprintf(buffer: usize, format: usize, arguments: Guest<usize>) -> i32 {
        print(buffer, usize::MAX, format, Width::Narrow, Arguments::list(arguments))
    }

    /// Formats up to `count` characters.
    [any]
    fn _snprintf(buffer: usize, count: usize, format: usize, first: usize) -> i32 {
        print(buffer, count, format, Width::Narrow, Arguments::variadic(&[first]))
    }

    /// Formats as [`_snprintf`] does, with a `va_list`.
    [any]
    fn _vsnprintf(buffer: usize, count: usize, format: usize, arguments: Guest<usize>) -> i32 {
        print(buffer, count, format, Width::Narrow, Arguments::list(arguments))
    }

    /// Formats as [`_vsnprintf`] does, always terminated, into a buffer of `size` bytes. Text that is longer than `count`, or with a `count` of
    /// [`TRUNCATE`] than the buffer, is cut off; text that `count` allows but the buffer does not hold leaves it empty. Returns -1
    /// in these cases.
    [any]
    fn _vsnprintf_s(buffer: usize, size: usize, count: usize, format: usize, arguments: Guest<usize>) -> i32 {
        if buffer == 0 || size == 0 {
            return if buffer == 0 && size == 0 && count == 0 { 0 } else { -1 };
        }
        let format = text(format, Width::Narrow, LONGEST);
        let mut written = render(&format, Width::Narrow, &mut Arguments::list(arguments));
        let room = size - 1;
        let kept = if count == TRUNCATE { room } else { count };
        let is_cut = written.len() > kept;
        written.truncate(kept);
        if written.len() > room {
            written.clear();
            put(buffer, size, &written, Width::Narrow);
            return -1;
        }
        let length = put(buffer, size, &written, Width::Narrow);
        if is_cut { -1 } else { length }
    }

    /// Formats wide text as [`sprintf`] does.
    [any]
    fn swprintf(buffer: usize, format: usize, first: usize, second: usize) -> i32 {
        print(buffer, usize::MAX, format, Width::Wide, Arguments::variadic(&[first, second]))
    }

    /// Formats wide text as [`_snprintf`] does.
    [any]
    fn _snwprintf(buffer: usize, count: usize, format: usize, first: usize) -> i32 {
        print(buffer, count, format, Width::Wide, Arguments::variadic(&[first]))
    }

    /// Formats wide text as [`_vsnprintf`] does.
    [any]
    fn _vsnwprintf(buffer: usize, count: usize, format: usize, arguments: Guest<usize>) -> i32 {
        print(buffer, count, format, Width::Wide, Arguments::list(arguments))
    }
}
