// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffer descriptors.

use smb_direct::{BufferDescriptor, Channel, DescriptorError, Descriptors};

fn bytes(descriptors: &[(u64, u32, u32)]) -> Vec<u8> {
    let mut all = Vec::new();
    for &(offset, token, length) in descriptors {
        let mut bytes = [0; BufferDescriptor::LEN];
        BufferDescriptor { offset, token, length }.emit(&mut bytes);
        all.extend(bytes);
    }
    all
}

//= R-SMBD-75
#[test]
fn a_descriptor_is_offset_token_and_length() {
    let bytes = bytes(&[(0x0102_0304_0506_0708, 0x1112_1314, 0x2122_2324)]);
    let expected = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21];
    assert_eq!(bytes, expected);
    let descriptor =
        BufferDescriptor { offset: 0x0102_0304_0506_0708, token: 0x1112_1314, length: 0x2122_2324 };
    assert_eq!(BufferDescriptor::parse(&expected), descriptor);
}

//= R-SMBD-76, R-SMBD-77, R-SMBD-78
#[test]
fn every_range_is_found_in_its_descriptors() {
    let array = [(100, 1, 3), (200, 2, 0), (300, 3, 1), (400, 4, 4)];
    let info = bytes(&array);
    let descriptors = Descriptors::parse(&info, 4).unwrap();
    assert_eq!(descriptors.length(), 8);
    // Each byte of the buffer by itself.
    let flat: Vec<_> = array
        .iter()
        .flat_map(|&(offset, token, length)| (0..u64::from(length)).map(move |at| (offset + at, token)))
        .collect();
    for offset in 0..=9u32 {
        for length in 0..=9u32 {
            let segments = descriptors.segments(offset, length);
            let Some(expected) = flat.get(offset as usize..(offset + length) as usize) else {
                assert_eq!(segments.err(), Some(DescriptorError::OutOfBounds));
                continue;
            };
            let segments: Vec<_> = segments.unwrap().collect();
            assert!(segments.len() <= 3 && segments.iter().all(|segment| segment.length > 0));
            let found: Vec<_> = segments
                .iter()
                .flat_map(|s| (0..u64::from(s.length)).map(move |at| (s.offset + at, s.token)))
                .collect();
            assert_eq!(found, expected, "{length} from {offset}");
        }
    }
    assert_eq!(descriptors.segments(u32::MAX, 2).err(), Some(DescriptorError::OutOfBounds));
}

//= R-SMBD-79
#[test]
fn arrays_that_are_malformed_are_refused() {
    let one = bytes(&[(0, 1, 4096)]);
    assert_eq!(Descriptors::parse(&[], 8), Err(DescriptorError::Length));
    for length in 1..16 {
        assert_eq!(Descriptors::parse(&one[..length], 8), Err(DescriptorError::Length));
        assert_eq!(Descriptors::parse(&[&one[..], &one[..length]].concat(), 8), Err(DescriptorError::Length));
    }
    assert_eq!(Descriptors::parse(&one.repeat(9), 8), Err(DescriptorError::TooMany));
    assert!(Descriptors::parse(&one.repeat(8), 8).is_ok());
    let wraps = bytes(&[(u64::MAX, 1, 1)]);
    assert_eq!(Descriptors::parse(&wraps, 8), Err(DescriptorError::Overflow));
    let longer = bytes(&[(0, 1, u32::MAX), (0, 2, 1)]);
    assert_eq!(Descriptors::parse(&longer, 8), Err(DescriptorError::Overflow));
    assert!(Descriptors::parse(&bytes(&[(u64::MAX - 1, 1, 1), (0, 2, u32::MAX - 1)]), 8).is_ok());
}

//= R-SMBD-80
#[test]
fn the_answer_invalidates_the_first_token_if_the_channel_says_so() {
    let info = bytes(&[(0, 7, 1), (0, 8, 1)]);
    let descriptors = Descriptors::parse(&info, 2).unwrap();
    let expected = [(0, None), (1, None), (2, Some(7))];
    for (value, token) in expected {
        let channel = Channel::from_value(value).unwrap();
        assert_eq!((channel.value(), channel.invalidated_token(&descriptors)), (value, token));
    }
    assert_eq!(Channel::from_value(3), Err(DescriptorError::Channel));
}
