// SPDX-License-Identifier: MIT OR Apache-2.0

//! Formats of the kernel's C run-time library: `%[flags][width][.precision][size]conversion`.
//!
//! Besides C's there are Windows' own: the sizes `I64`, `I32`, `I` and `w`, and the conversions `S`, `C` and `Z` (a
//! counted string). In the functions for wide text `%s` and `%c` are wide, and `%S` and `%C` are not.

use std::iter;

use ndk_abi::nt::{STRING, UNICODE_STRING};

use crate::{guest::Guest, image};

/// Maximum number of characters of a string without a terminator or precision.
const LONGEST: usize = 1 << 16;

/// The arguments that a format refers to: words, some in registers, the others in memory one after the other.
pub struct Arguments {
    registers: Vec<usize>,
    used: usize,
    memory: Guest<usize>,
}

impl Arguments {
    /// Returns the arguments of a `va_list`.
    #[must_use]
    pub fn list(list: Guest<usize>) -> Self {
        Self { registers: Vec::new(), used: 0, memory: list }
    }

    /// Returns the arguments of the variadic import that runs: `registers` are those among its first four arguments,
    /// the others are on the image's stack.
    #[must_use]
    pub fn variadic(registers: &[usize]) -> Self {
        Self { registers: registers.to_owned(), used: 0, memory: image::stack_arguments() }
    }

    fn next(&mut self) -> usize {
        let index = self.used;
        self.used += 1;
        match self.registers.get(index) {
            Some(&register) => register,
            None if self.memory.is_null() => 0,
            None => self.memory.add(index - self.registers.len()).read(),
        }
    }
}

impl Arguments {
    /// Returns the next argument as an `int`: the lower half of its word.
    fn next_int(&mut self) -> i32 {
        (self.next() as u32).cast_signed()
    }
}

/// Whether characters of a format are bytes or UTF-16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Narrow,
    Wide,
}

/// Reads terminated text of up to `longest` characters.
#[must_use]
pub fn text(address: usize, width: Width, longest: usize) -> Vec<u16> {
    let character = |index| match width {
        Width::Narrow => u16::from(Guest::<u8>::from_address(address).add(index).read()),
        Width::Wide => Guest::<u16>::from_address(address).add(index).read(),
    };
    (0..longest).map(character).take_while(|&character| character != 0).collect()
}

fn letters(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// Renders a format whose characters are of this width; so are those of the result, widened to 16 bits.
#[must_use]
pub fn render(format: &[u16], width: Width, arguments: &mut Arguments) -> Vec<u16> {
    let mut result = Vec::new();
    let mut characters =
        format.iter().map(|&one| char::from_u32(one.into()).unwrap_or('?')).zip(format).peekable();
    while let Some((character, &raw)) = characters.next() {
        if character != '%' {
            result.push(raw);
            continue;
        }
        let mut next_if = |wanted: &dyn Fn(char) -> bool| {
            characters.next_if(|(character, _)| wanted(*character)).map(|(character, _)| character)
        };
        let mut spec = Spec { text: width, ..Spec::default() };
        while let Some(flag) = next_if(&|one| "-+ #0".contains(one)) {
            spec.flag(flag);
        }
        if next_if(&|one| one == '*').is_some() {
            let width = arguments.next_int();
            spec.left |= width < 0;
            spec.width = width.unsigned_abs() as usize;
        }
        while let Some(digit) = next_if(&|one| one.is_ascii_digit()) {
            spec.width = spec.width * 10 + digit as usize - '0' as usize;
        }
        if next_if(&|one| one == '.').is_some() {
            let mut precision = 0;
            if next_if(&|one| one == '*').is_some() {
                precision = usize::try_from(arguments.next_int()).unwrap_or(0);
            }
            while let Some(digit) = next_if(&|one| one.is_ascii_digit()) {
                precision = precision * 10 + digit as usize - '0' as usize;
            }
            spec.precision = Some(precision);
        }
        let sizes: String =
            iter::from_fn(|| next_if(&|one| "hlwLIzjt".contains(one) || one.is_ascii_digit())).collect();
        spec.size(&sizes);
        match next_if(&|_| true) {
            Some('%') => result.push(u16::from(b'%')),
            Some(conversion) => result.extend(spec.convert(conversion, arguments)),
            None => break,
        }
    }
    result
}

struct Spec {
    left: bool,
    zeros: bool,
    prefix: bool,
    /// The character before a number that is not negative.
    plus: Option<char>,
    width: usize,
    precision: Option<usize>,
    /// Bytes of an integer.
    bytes: u32,
    /// The width that the size gives to text; the function's own otherwise.
    sized_text: Option<Width>,
    text: Width,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            left: false,
            zeros: false,
            prefix: false,
            plus: None,
            width: 0,
            precision: None,
            bytes: 4,
            sized_text: None,
            text: Width::Narrow,
        }
    }
}

impl Spec {
    fn flag(&mut self, flag: char) {
        match flag {
            '-' => self.left = true,
            '0' => self.zeros = true,
            '#' => self.prefix = true,
            '+' => self.plus = Some('+'),
            _ => self.plus = self.plus.or(Some(' ')),
        }
    }

    fn size(&mut self, sizes: &str) {
        self.bytes = match sizes {
            "hh" => 1,
            "h" => 2,
            "ll" | "I64" | "I" | "z" | "j" | "t" | "L" => 8,
            _ => 4,
        };
        self.sized_text = match sizes {
            "h" => Some(Width::Narrow),
            "l" | "w" => Some(Width::Wide),
            _ => None,
        };
    }

    fn convert(&self, conversion: char, arguments: &mut Arguments) -> Vec<u16> {
        let other = if self.text == Width::Wide { Width::Narrow } else { Width::Wide };
        match conversion {
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' => self.number(conversion, arguments.next() as u64),
            'p' => self.padded(letters(&format!("{:016X}", arguments.next())), false),
            'c' => self.character(self.sized_text.unwrap_or(self.text), arguments.next()),
            'C' => self.character(self.sized_text.unwrap_or(other), arguments.next()),
            's' => self.string(self.sized_text.unwrap_or(self.text), arguments.next()),
            'S' => self.string(self.sized_text.unwrap_or(other), arguments.next()),
            'Z' => self.counted(arguments.next()),
            'f' | 'e' | 'g' | 'E' | 'G' => {
                let value = f64::from_bits(arguments.next() as u64);
                let digits = self.precision.unwrap_or(6);
                self.padded(letters(&format!("{value:.digits$}")), true)
            }
            'n' => {
                arguments.next();
                Vec::new()
            }
            unknown => letters(&unknown.to_string()),
        }
    }

    fn number(&self, conversion: char, value: u64) -> Vec<u16> {
        let unused = 64 - 8 * self.bytes;
        let unsigned = value << unused >> unused;
        let signed = (value.cast_signed()) << unused >> unused;
        let (sign, digits) = match conversion {
            'd' | 'i' if signed < 0 => ("-".to_owned(), signed.unsigned_abs().to_string()),
            'd' | 'i' => (self.plus.map(String::from).unwrap_or_default(), signed.to_string()),
            'x' if self.prefix && unsigned != 0 => ("0x".to_owned(), format!("{unsigned:x}")),
            'X' if self.prefix && unsigned != 0 => ("0X".to_owned(), format!("{unsigned:X}")),
            'o' if self.prefix => ("0".to_owned(), format!("{unsigned:o}")),
            'x' => (String::new(), format!("{unsigned:x}")),
            'X' => (String::new(), format!("{unsigned:X}")),
            'o' => (String::new(), format!("{unsigned:o}")),
            _ => (String::new(), unsigned.to_string()),
        };
        let least = match self.precision {
            Some(precision) => precision,
            None if self.zeros && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        self.padded(letters(&format!("{sign}{digits:0>least$}")), false)
    }

    fn character(&self, width: Width, value: usize) -> Vec<u16> {
        let raw = value as u16;
        self.padded(vec![if width == Width::Narrow { raw & 0xff } else { raw }], false)
    }

    fn string(&self, width: Width, address: usize) -> Vec<u16> {
        let longest = self.precision.unwrap_or(LONGEST);
        let body = if address == 0 {
            letters("(null)").into_iter().take(longest).collect()
        } else {
            text(address, width, longest)
        };
        self.padded(body, false)
    }

    fn counted(&self, address: usize) -> Vec<u16> {
        let body = if address == 0 {
            letters("(null)")
        } else if self.sized_text.unwrap_or(self.text) == Width::Wide {
            let string = Guest::<UNICODE_STRING>::from_address(address).read();
            let buffer = Guest::new(string.Buffer);
            (0..usize::from(string.Length) / 2).map(|index| buffer.add(index).read()).collect()
        } else {
            let string = Guest::<STRING>::from_address(address).read();
            let buffer = Guest::new(string.Buffer).cast::<u8>();
            (0..usize::from(string.Length)).map(|index| buffer.add(index).read().into()).collect()
        };
        self.padded(body, false)
    }

    /// Fills up to the width, with zeros on the left if `zeros` and the flag allow it.
    fn padded(&self, body: Vec<u16>, zeros: bool) -> Vec<u16> {
        let missing = self.width.saturating_sub(body.len());
        let fill = if zeros && self.zeros && !self.left { b'0' } else { b' ' };
        let padding = iter::repeat_n(u16::from(fill), missing);
        if self.left { body.into_iter().chain(padding).collect() } else { padding.chain(body).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(format: &str, width: Width, arguments: &[usize]) -> String {
        let mut words = arguments.to_vec();
        words.resize(16, 0);
        let list = Guest::new(words.as_mut_ptr());
        String::from_utf16_lossy(&render(&letters(format), width, &mut Arguments::list(list)))
    }

    fn narrow(format: &str, arguments: &[usize]) -> String {
        rendered(format, Width::Narrow, arguments)
    }

    #[test]
    fn conversions_match_the_kernel() {
        let text = c"text".as_ptr().expose_provenance();
        assert_eq!(narrow("%s|%5d|%-5d|%05u|", &[text, 42, 42, 42]), "text|   42|42   |00042|");
        assert_eq!(narrow("%x %X %#x %p", &[255, 255, 255, 255]), "ff FF 0xff 00000000000000FF");
        let ones = usize::MAX;
        assert_eq!(narrow("%d %I64d %llu", &[ones, ones, ones]), "-1 -1 18446744073709551615");
        assert_eq!(
            narrow("%I64x %Iu %I32u", &[ones, ones, ones]),
            "ffffffffffffffff 18446744073709551615 4294967295"
        );
        assert_eq!(narrow("%hd %hhu %lu", &[0x1_ffff, 0x1ff, ones]), "-1 255 4294967295");
        assert_eq!(narrow("%.*s%%", &[2, text]), "te%");
        assert_eq!(narrow("%*d|%-*d|", &[4, 7, (-3_isize).cast_unsigned(), 7]), "   7|7  |");
        assert_eq!(narrow("%+d % d %+d", &[5, 5, ones]), "+5  5 -1");
        assert_eq!(narrow("%.3d|%6.3d|%-06d|", &[7, 7, 7]), "007|   007|7     |");
        assert_eq!(narrow("%#x %#o %08lx", &[0, 8, 0xbeef]), "0 010 0000beef");
        assert_eq!(narrow("%c%c %y", &[65, 66]), "AB y");
        assert_eq!(narrow("%s %10s", &[0, text]), "(null)       text");
        let half = 0.5_f64.to_bits() as usize;
        assert_eq!(narrow("%.1f %6.2f", &[half, half]), "0.5   0.50");
    }

    #[test]
    fn text_is_wide_or_narrow_by_size_conversion_and_function() {
        let narrow_text = c"narrow".as_ptr().expose_provenance();
        let wide_text: Vec<u16> = "wide\0".encode_utf16().collect();
        let wide_text = wide_text.as_ptr().expose_provenance();
        assert_eq!(
            narrow("%ws %S %ls %s %hs", &[wide_text, wide_text, wide_text, narrow_text, narrow_text]),
            "wide wide wide narrow narrow"
        );
        let wide = |format, arguments: &[usize]| rendered(format, Width::Wide, arguments);
        assert_eq!(
            wide("%s %S %hs %ws", &[wide_text, narrow_text, narrow_text, wide_text]),
            "wide narrow narrow wide"
        );
    }

    #[test]
    fn counted_strings_end_where_they_say() {
        let mut characters: Vec<u16> = "counted".encode_utf16().collect();
        let string = UNICODE_STRING { Length: 10, MaximumLength: 14, Buffer: characters.as_mut_ptr() };
        let mut bytes = *b"counted";
        let ansi = STRING { Length: 5, MaximumLength: 7, Buffer: bytes.as_mut_ptr().cast() };
        let (string, ansi) = ((&raw const string).expose_provenance(), (&raw const ansi).expose_provenance());
        assert_eq!(narrow("%wZ|%8wZ|%Z", &[string, string, ansi]), "count|   count|count");
    }
}
