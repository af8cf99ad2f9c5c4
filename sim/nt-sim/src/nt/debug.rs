// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debug output.

use std::fmt::Write;

use ndk_abi::nt::UNICODE_STRING;

use super::runtime::unicode;
use crate::{guest::Guest, imports, thread::current};

/// Arguments that a format may use: the first ones of a variadic call. Those that the caller did not pass are words
/// of its stack; they are used only if the format refers to them.
type Arguments = [usize; 10];

/// Maximum text of one call: the size of the kernel's own buffer.
const LONGEST: usize = 512;

fn print(format: Guest<u8>, arguments: &Arguments) -> u32 {
    let text = render(&c_string(format, LONGEST), arguments);
    current().host().debug_print(text);
    0
}

fn c_string(text: Guest<u8>, longest: usize) -> Vec<u8> {
    (0..longest).map(|index| text.add(index).read()).take_while(|&byte| byte != 0).collect()
}

/// Formats as the kernel does: `%[flags][width][.precision][size]conversion`.
fn render(format: &[u8], arguments: &Arguments) -> String {
    let mut text = String::new();
    let mut arguments = arguments.iter().copied();
    let mut next = move || arguments.next().unwrap_or(0);
    let mut bytes = format.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            text.push(char::from(byte));
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = bytes.next_if(|byte| b"-+ #0".contains(byte)) {
            spec.left |= flag == b'-';
            spec.zeros |= flag == b'0';
            spec.prefix |= flag == b'#';
        }
        if bytes.next_if_eq(&b'*').is_some() {
            spec.width = next();
        }
        while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
            spec.width = spec.width * 10 + usize::from(digit - b'0');
        }
        if bytes.next_if_eq(&b'.').is_some() {
            let mut precision = 0;
            if bytes.next_if_eq(&b'*').is_some() {
                precision = next();
            }
            while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
                precision = precision * 10 + usize::from(digit - b'0');
            }
            spec.precision = Some(precision);
        }
        let mut size = Vec::new();
        while let Some(letter) = bytes.next_if(|byte| b"hlwIzjt3264".contains(byte)) {
            size.push(letter);
        }
        spec.wide = matches!(&*size, b"ll" | b"I64" | b"I" | b"z" | b"j" | b"t");
        spec.unicode = matches!(&*size, b"l" | b"w");
        let Some(conversion) = bytes.next() else { break };
        if conversion == b'%' {
            text.push('%');
        } else {
            spec.convert(&mut text, conversion, next());
        }
    }
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // A conversion's flags are independent of each other.
struct Spec {
    left: bool,
    zeros: bool,
    prefix: bool,
    width: usize,
    precision: Option<usize>,
    /// A 64-bit integer.
    wide: bool,
    /// A wide or counted wide string.
    unicode: bool,
}

impl Spec {
    fn convert(&self, text: &mut String, conversion: u8, value: usize) {
        let unsigned = if self.wide { value as u64 } else { value as u64 & 0xffff_ffff };
        let signed =
            if self.wide { value.cast_signed() as i64 } else { i64::from((value as u32).cast_signed()) };
        let body = match conversion {
            b'd' | b'i' => signed.to_string(),
            b'u' => unsigned.to_string(),
            b'x' if self.prefix => format!("{unsigned:#x}"),
            b'x' => format!("{unsigned:x}"),
            b'X' => format!("{unsigned:X}"),
            b'o' => format!("{unsigned:o}"),
            b'p' => format!("{value:016X}"),
            b'c' => char::from(value.to_le_bytes()[0]).to_string(),
            b's' | b'S' => self.string(Guest::from_address(value), self.unicode != (conversion == b'S')),
            b'Z' => String::from_utf16_lossy(&unicode(Guest::<UNICODE_STRING>::from_address(value))),
            other => format!("%{}", char::from(other)),
        };
        let fill = self.width.saturating_sub(body.chars().count());
        let result = match (self.left, self.zeros) {
            (true, _) => write!(text, "{body}{:fill$}", ""),
            (false, true) => write!(text, "{}{body}", "0".repeat(fill)),
            (false, false) => write!(text, "{:fill$}{body}", ""),
        };
        // Writing to a string cannot fail.
        debug_assert!(result.is_ok());
    }

    fn string(&self, text: Guest<u8>, wide: bool) -> String {
        let longest = self.precision.unwrap_or(LONGEST);
        if text.is_null() {
            "(null)".to_owned()
        } else if wide {
            let text = text.cast::<u16>();
            let characters = (0..longest).map(|index| text.add(index).read()).take_while(|&c| c != 0);
            String::from_utf16_lossy(&characters.collect::<Vec<_>>())
        } else {
            String::from_utf8_lossy(&c_string(text, longest)).into_owned()
        }
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Prints to the debugger.
    [<= DIRQL]
    fn DbgPrint(
        format: Guest<u8>,
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize,
    ) -> u32 {
        print(format, &[a, b, c, d, e, f, g, h, i, j])
    }

    /// Prints to the debugger; the component's filter is ignored.
    [<= DIRQL]
    fn DbgPrintEx(
        component: u32,
        level: u32,
        format: Guest<u8>,
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize,
    ) -> u32 {
        let _ = (component, level);
        print(format, &[a, b, c, d, e, f, g, h, i, j])
    }
}

#[cfg(test)]
mod tests {
    use super::render;

    fn rendered(format: &str, arguments: &[usize]) -> String {
        let mut all = [0; 10];
        all[..arguments.len()].copy_from_slice(arguments);
        render(format.as_bytes(), &all)
    }

    #[test]
    fn conversions_match_the_kernel() {
        let text = c"text".as_ptr().expose_provenance();
        assert_eq!(rendered("%s|%5d|%-5d|%05u|", &[text, 42, 42, 42]), "text|   42|42   |00042|");
        assert_eq!(rendered("%x %X %#x %p", &[255, 255, 255, 255]), "ff FF 0xff 00000000000000FF");
        assert_eq!(
            rendered("%d %I64d %llu", &[usize::MAX, usize::MAX, usize::MAX]),
            "-1 -1 18446744073709551615"
        );
        assert_eq!(rendered("%.*s%%", &[2, text]), "te%");
        let wide: Vec<u16> = "wide\0".encode_utf16().collect();
        assert_eq!(
            rendered("%ws %S", &[wide.as_ptr().expose_provenance(), wide.as_ptr().expose_provenance()]),
            "wide wide"
        );
    }
}
