// SPDX-License-Identifier: MIT OR Apache-2.0

//! Metadata of TraceLogging: names and types that are written with each event, so that a reader needs no manifest.
//!
//! Source: `TraceLoggingProvider.h` of the Windows SDK. An event: length in two bytes, tag (one byte, 0), name, and for each field its name, its
//! type and, if bit 7 of the type is set, how it is shown. Names end with a zero.

use super::value::Field;

/// Set in the type of a field that a code of its presentation follows.
const HAS_OUT: u8 = 0x80;

/// Returns the length of the metadata of a provider.
#[must_use]
pub const fn traits_length(name: &str) -> usize {
    2 + name.len() + 1
}

/// Returns the metadata of a provider: length and name.
#[must_use]
pub const fn traits<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let bytes = put_length([0; LENGTH]);
    put_name(bytes, 2, name).0
}

/// Returns the length of the metadata of an event.
#[must_use]
pub const fn event_length(name: &str, fields: &[Field]) -> usize {
    let mut length = 3 + name.len() + 1;
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        let codes = if field.kind.codes().1.is_some() { 2 } else { 1 };
        length += field.name.len() + 1 + codes;
        rest = others;
    }
    length
}

/// Returns the metadata of an event. Evaluated at compile time, where a wrong `LENGTH` is an error.
#[must_use]
pub const fn event<const LENGTH: usize>(name: &str, fields: &[Field]) -> [u8; LENGTH] {
    let bytes = put_length([0; LENGTH]);
    let (mut bytes, mut at) = put_name(bytes, 3, name);
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        (bytes, at) = put_name(bytes, at, field.name);
        match field.kind.codes() {
            (kind, None) => {
                bytes[at] = kind;
                at += 1;
            }
            (kind, Some(out)) => {
                bytes[at] = kind | HAS_OUT;
                bytes[at + 1] = out;
                at += 2;
            }
        }
        rest = others;
    }
    assert!(at == LENGTH, "the length is not that of the metadata");
    bytes
}

const fn put_length<const LENGTH: usize>(mut bytes: [u8; LENGTH]) -> [u8; LENGTH] {
    assert!(LENGTH <= 0xFFFF, "too long");
    [bytes[0], bytes[1]] = (LENGTH as u16).to_le_bytes();
    bytes
}

/// Writes a name and the zero after it at `at`. Returns the position behind.
const fn put_name<const LENGTH: usize>(
    mut bytes: [u8; LENGTH],
    at: usize,
    name: &str,
) -> ([u8; LENGTH], usize) {
    let name = name.as_bytes();
    let mut index = 0;
    while index < name.len() {
        bytes[at + index] = name[index];
        index += 1;
    }
    (bytes, at + name.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::super::value::Kind;
    use super::*;

    #[test]
    fn metadata_has_length_names_and_types() {
        const FIELDS: &[Field] =
            &[Field { name: "Qp", kind: Kind::U32 }, Field { name: "To", kind: Kind::Address }];
        const LENGTH: usize = event_length("Ev", FIELDS);
        let metadata: [u8; LENGTH] = event("Ev", FIELDS);
        assert_eq!(&metadata, b"\x0f\0\0Ev\0Qp\0\x08To\0\x8e\x0a");
        let traits: [u8; traits_length("Name")] = traits("Name");
        assert_eq!(&traits, b"\x07\0Name\0");
    }
}
