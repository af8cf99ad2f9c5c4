// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counted strings, formats into buffers, searching and sorting.
//!
//! What Windows does is known from the documentation of each function, unless a test says otherwise.

use crate::common::{Outcome, TEST_DRIVER};
use crate::on_host::{correct, counted, memory, narrow, text, wide};
use ndk_abi::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, STRING,
    UNICODE_STRING,
};
use nt_sim::{
    Sim,
    guest::Guest,
    nt::{ip_strings, stdio, strings, wide_text},
};

#[test]
fn appending_needs_room_for_the_text_but_not_for_a_terminator() {
    correct(|host| {
        let path = counted(host, r"\DosDevices\", 15);
        assert_eq!(strings::RtlAppendUnicodeToString(path, wide(host, "abc")), STATUS_SUCCESS);
        assert_eq!(text(path), r"\DosDevices\abc");
        assert_eq!(strings::RtlAppendUnicodeToString(path, wide(host, "d")), STATUS_BUFFER_TOO_SMALL);
        assert_eq!(text(path), r"\DosDevices\abc");
        assert_eq!(strings::RtlAppendUnicodeToString(path, Guest::null()), STATUS_SUCCESS);
        let other = counted(host, "x", 3);
        assert_eq!(strings::RtlAppendUnicodeStringToString(other, counted(host, "yz", 2)), STATUS_SUCCESS);
        assert_eq!(text(other), "xyz");
        let roomy = counted(host, "", 8);
        Guest::new(roomy.read().Buffer).add(2).write(0x7777);
        strings::RtlAppendUnicodeToString(roomy, wide(host, "ab"));
        assert_eq!(Guest::new(roomy.read().Buffer).add(2).read(), 0, "terminated where there is room");
    });
}

#[test]
fn a_counted_string_of_a_terminated_one_counts_the_terminator_in_its_room() {
    correct(|host| {
        let string = memory::<UNICODE_STRING>(host);
        strings::RtlInitUnicodeString(string, wide(host, "abc"));
        assert_eq!((string.read().Length, string.read().MaximumLength), (6, 8));
        strings::RtlInitUnicodeString(string, Guest::null());
        assert_eq!((string.read().Length, string.read().MaximumLength), (0, 0));
    });
}

#[test]
fn strings_are_compared_with_or_without_case() {
    correct(|host| {
        let (upper, lower, longer) =
            (counted(host, "ABC", 3), counted(host, "abc", 3), counted(host, "abcd", 4));
        assert_eq!(strings::RtlEqualUnicodeString(upper, lower, 1), 1);
        assert_eq!(strings::RtlEqualUnicodeString(upper, lower, 0), 0);
        assert!(strings::RtlCompareUnicodeString(upper, lower, 0) < 0);
        assert!(strings::RtlCompareUnicodeString(longer, upper, 1) > 0);
        assert_eq!(strings::RtlPrefixUnicodeString(upper, longer, 1), 1);
        assert_eq!(strings::RtlPrefixUnicodeString(upper, longer, 0), 0);
    });
}

#[test]
fn conversions_allocate_or_use_the_targets_buffer() {
    correct(|host| {
        let ansi = memory::<STRING>(host);
        strings::RtlInitAnsiString(ansi, narrow(host, "text"));
        let target = memory::<UNICODE_STRING>(host);
        assert_eq!(strings::RtlAnsiStringToUnicodeString(target, ansi, 1), STATUS_SUCCESS);
        assert_eq!(text(target), "text");
        strings::RtlFreeUnicodeString(target);
        assert!(target.read().Buffer.is_null());
        assert!(host.memory.pool.blocks().is_empty());
        let short = counted(host, "", 4);
        assert_eq!(strings::RtlAnsiStringToUnicodeString(short, ansi, 0), STATUS_BUFFER_OVERFLOW);
    });
}

#[test]
fn numbers_are_read_and_written_to_four_bases() {
    correct(|host| {
        let value = memory::<u32>(host);
        for (digits, base, expected) in
            [("42", 0, 42), ("0x2A", 0, 42), (" -1", 10, u32::MAX), ("101b", 2, 5), ("z", 10, 0)]
        {
            let status = strings::RtlUnicodeStringToInteger(counted(host, digits, 8), base, value);
            assert_eq!((status, value.read()), (STATUS_SUCCESS, expected), "{digits}");
        }
        let status = strings::RtlUnicodeStringToInteger(counted(host, "1", 8), 7, value);
        assert_eq!(status, STATUS_INVALID_PARAMETER);
        let target = counted(host, "", 3);
        assert_eq!(strings::RtlIntegerToUnicodeString(0xabc, 16, target), STATUS_SUCCESS);
        assert_eq!(text(target), "ABC");
        assert_eq!(strings::RtlIntegerToUnicodeString(1000, 0, target), STATUS_BUFFER_OVERFLOW);
    });
}

/// `_vsnprintf` of a number; returns the result and the buffer, in which `*` is what was not written.
fn print(count: usize) -> (i32, String) {
    let buffer = [b'*'; 8];
    let arguments = [123_usize];
    let address = buffer.as_ptr().expose_provenance();
    let format = c"<%d>".as_ptr().expose_provenance();
    let result = stdio::_vsnprintf(address, count, format, Guest::new(arguments.as_ptr().cast_mut()));
    (result, String::from_utf8(buffer.to_vec()).unwrap())
}

#[test]
fn formatting_terminates_text_that_is_shorter_than_the_buffer_only() {
    correct(|host| {
        let _ = host;
        assert_eq!(print(6), (5, "<123>\0**".to_owned()));
        assert_eq!(print(5), (5, "<123>***".to_owned()));
        assert_eq!(print(4), (-1, "<123****".to_owned()));
        assert_eq!(print(0), (-1, "********".to_owned()));
    });
}

/// Prints as [`print`] does, by `_vsnprintf_s` with a buffer of `size` bytes.
fn print_safely(size: usize, count: usize) -> (i32, String) {
    let buffer = [b'*'; 8];
    let arguments = [123_usize];
    let address = buffer.as_ptr().expose_provenance();
    let format = c"<%d>".as_ptr().expose_provenance();
    let list = Guest::new(arguments.as_ptr().cast_mut());
    let result = stdio::_vsnprintf_s(address, size, count, format, list);
    (result, String::from_utf8(buffer.to_vec()).unwrap())
}

/// (sec_api: "_vsnprintf_s": _TRUNCATE cuts the text off; text that does not fit otherwise is an invalid parameter)
#[test]
fn safe_formatting_terminates_every_text() {
    correct(|_| {
        const TRUNCATE: usize = usize::MAX;
        assert_eq!(print_safely(6, TRUNCATE), (5, "<123>\0**".to_owned()));
        assert_eq!(print_safely(5, TRUNCATE), (-1, "<123\0***".to_owned()));
        assert_eq!(print_safely(8, 3), (-1, "<12\0****".to_owned()));
        assert_eq!(print_safely(8, 7), (5, "<123>\0**".to_owned()));
        assert_eq!(print_safely(4, 7), (-1, "\0*******".to_owned()), "the text and its end need 6 bytes");
        assert_eq!(print_safely(0, TRUNCATE), (-1, "********".to_owned()));
    });
}

#[test]
fn wide_text_is_searched_and_compared() {
    correct(|host| {
        let path = wide(host, "a/B/c").address();
        assert_eq!(wide_text::wcschr(path, u16::from(b'/')), path + 2);
        assert_eq!(wide_text::wcsrchr(path, u16::from(b'/')), path + 6);
        assert_eq!(wide_text::wcschr(path, 0), path + 10);
        assert_eq!(wide_text::wcschr(path, u16::from(b'x')), 0);
        assert_eq!(wide_text::wcslen(path), 5);
        let other = wide(host, "A/b/d").address();
        assert_eq!(wide_text::_wcsnicmp(path, other, 4), 0);
        assert!(wide_text::_wcsicmp(path, other) < 0);
        assert!(wide_text::wcscmp(path, other) > 0);
    });
}

extern "efiapi" fn compare(left: *const u32, right: *const u32) -> i32 {
    // SAFETY: an element of the array below.
    let left = unsafe { left.read_unaligned() };
    // SAFETY: the sort passes pointers to two elements of the array below.
    let right = unsafe { right.read_unaligned() };
    left.cmp(&right) as i32
}

#[test]
fn qsort_sorts_elements_in_place() {
    correct(|host| {
        let array = memory::<u32>(host);
        let values: Vec<u32> = (0..100).map(|index| index * 7919 % 101).collect();
        for (index, &value) in values.iter().enumerate() {
            array.add(index).write(value);
        }
        wide_text::qsort(array.cast(), values.len(), 4, compare as *const () as usize);
        let sorted: Vec<u32> = (0..values.len()).map(|index| array.add(index).read()).collect();
        assert!(sorted.is_sorted(), "{sorted:?}");
    });
}

#[test]
fn variadic_functions_take_arguments_from_registers_and_from_the_images_stack() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = Sim::builder().build();
    let host = sim.add_host(nt_sim::host::HostOptions::new("host"));
    let path = TEST_DRIVER.as_ref().unwrap();
    let driver = host.load_driver(path, nt_sim::DriverOptions::new("formats")).unwrap();
    let outcome = host.spawn("driver", move || {
        assert_eq!(driver.start(), STATUS_SUCCESS);
        driver.unload();
        Outcome::Unloaded
    });
    assert_eq!(outcome.join(), Ok(Outcome::Unloaded));
    assert_eq!(host.debug_output(), ["1 2 3 4 5 6 7 eight", "1 2 3 4 5 6", "<1 22 333 4444>"]);
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

/// WDK, `RtlIpv4StringToAddressExW`: strict text has four decimal parts; other text has one to four, also octal or hexadecimal.
#[test]
fn text_is_converted_to_an_ipv4_address_and_a_port() {
    correct(|host| {
        let (address, port): (Guest<[u8; 4]>, Guest<[u8; 2]>) = (memory(host), memory(host));
        let convert = |text: &str, strict: u8| {
            let string = wide(host, text);
            let status = ip_strings::RtlIpv4StringToAddressExW(string, strict, address, port);
            (status == 0).then(|| (address.read(), u16::from_be_bytes(port.read())))
        };
        assert_eq!(convert("10.0.0.2:445", 1), Some(([10, 0, 0, 2], 445)));
        assert_eq!(convert("10.0.0.2", 1), Some(([10, 0, 0, 2], 0)));
        assert_eq!(convert("0x0a.1.0x203", 0), Some(([10, 1, 2, 3], 0)));
        assert_eq!(convert("012.0.0.1", 0), Some(([10, 0, 0, 1], 0)));
        for text in ["10.1", "0xa.0.0.1", "10.0.0.256", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1 ", ""] {
            assert_eq!(convert(text, 1), None, "{text}");
        }
        for text in ["1.2.3.4.5", "256.1", "1.2.3.256", "09.0.0.1", "1..2"] {
            assert_eq!(convert(text, 0), None, "{text}");
        }
    });
}

#[test]
fn text_is_converted_to_an_ipv6_address_a_scope_and_a_port() {
    correct(|host| {
        let (address, port): (Guest<[u8; 16]>, Guest<[u8; 2]>) = (memory(host), memory(host));
        let scope: Guest<u32> = memory(host);
        let convert = |text: &str| {
            let string = wide(host, text);
            let status = ip_strings::RtlIpv6StringToAddressExW(string, address, scope, port);
            (status == 0).then(|| (address.read(), scope.read(), u16::from_be_bytes(port.read())))
        };
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(convert("fe80::1"), Some((local, 0, 0)));
        assert_eq!(convert("fe80::1%4"), Some((local, 4, 0)));
        assert_eq!(convert("[fe80::1%4]:445"), Some((local, 4, 445)));
        assert_eq!(convert("[fe80::1]"), Some((local, 0, 0)));
        for text in ["fe80:::1", "[fe80::1", "[fe80::1]445", "fe80::1%x", "[fe80::1]:70000", ""] {
            assert_eq!(convert(text), None, "{text}");
        }
    });
}
