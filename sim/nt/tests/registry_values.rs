// SPDX-License-Identifier: MIT OR Apache-2.0

//! `RtlQueryRegistryValues` (its page of the WDK).

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI32, Ordering::SeqCst},
};

use crate::on_host::{correct, memory, violates, wide};
use ndk_abi::nt::{
    REG_BINARY, REG_DWORD, REG_MULTI_SZ, REG_SZ, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, UNICODE_STRING,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{registry_values::RtlQueryRegistryValues, runtime::unicode, strings::RtlFreeUnicodeString},
};

const SERVICES: u32 = 1;
const OPTIONAL: u32 = 0x8000_0000;
const SUBKEY: u32 = 1;
const TOPKEY: u32 = 2;
const REQUIRED: u32 = 4;
const NOVALUE: u32 = 8;
const NOEXPAND: u32 = 0x10;
const DIRECT: u32 = 0x20;
const DELETE: u32 = 0x40;
const TYPECHECK: u32 = 0x100;
const KEY: &str = r"\Registry\Machine\System\CurrentControlSet\Services\Test";

/// An entry of the table; zeroes are its end.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    routine: usize,
    flags: u32,
    name: usize,
    context: usize,
    default_type: u32,
    default_data: usize,
    default_length: u32,
}

/// A value that the routine has got: name, type, data, and the sum of the contexts.
type Seen = (String, u32, Vec<u8>, usize);

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
static STATUS: AtomicI32 = AtomicI32::new(0);
/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn routine(
    name: Guest<u16>,
    kind: u32,
    data: Guest<u8>,
    length: u32,
    context: usize,
    of_entry: usize,
) -> i32 {
    let name = if name.is_null() {
        String::new()
    } else {
        let units = (0..).map(|index| name.add(index).read()).take_while(|&unit| unit != 0);
        String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
    };
    let mut bytes = vec![0; length as usize];
    if length != 0 {
        data.read_bytes(&mut bytes);
    }
    SEEN.lock().unwrap().push((name, kind, bytes, context + of_entry));
    STATUS.load(SeqCst)
}

fn text(of: &str) -> Vec<u8> {
    of.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn prepared(host: &Host) {
    let registry = host.registry();
    registry.set_value(KEY, "Depth", REG_DWORD, &[7, 0, 0, 0]).unwrap();
    registry.set_value(KEY, "Names", REG_MULTI_SZ, &text("one\0two\0\0")).unwrap();
    let below = format!(r"{KEY}\Parameters");
    registry.set_value(&below, "Title", REG_SZ, &text("viordma\0")).unwrap();
    registry.set_value(&below, "Bytes", REG_BINARY, &[1, 2, 3, 4, 5]).unwrap();
}

/// Queries by a table; returns the status, and what the routine has got.
fn query(host: &Host, entries: &[Entry]) -> (i32, Vec<Seen>) {
    query_at(host, SERVICES, "Test", entries)
}

fn query_at(host: &Host, relative_to: u32, path: &str, entries: &[Entry]) -> (i32, Vec<Seen>) {
    SEEN.lock().unwrap().clear();
    let table: Guest<Entry> = memory(host);
    for (index, &entry) in entries.iter().chain([&Entry::default()]).enumerate() {
        table.add(index).write(entry);
    }
    let status = RtlQueryRegistryValues(relative_to, wide(host, path).address(), table.cast(), 100, 0);
    (status, std::mem::take(&mut SEEN.lock().unwrap()))
}

fn entry(host: &Host, name: &str, flags: u32) -> Entry {
    let routine = routine as *const () as usize;
    Entry { routine, flags, name: wide(host, name).address(), context: 1, ..Entry::default() }
}

/// An entry that stores a value at an address, if it has this type.
fn direct(host: &Host, name: &str, kind: u32, at: usize) -> Entry {
    let flags = DIRECT | TYPECHECK | NOEXPAND;
    Entry { routine: 0, context: at, default_type: kind << 24, ..entry(host, name, flags) }
}

#[test]
fn routine_gets_named_values_those_of_subkeys_and_defaults() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    correct(|host| {
        prepared(host);
        let default = wide(host, "none").address();
        let missing = Entry { default_type: REG_SZ, default_data: default, ..entry(host, "Missing", 0) };
        let all = Entry { name: 0, ..entry(host, "", TOPKEY | NOEXPAND) };
        let (status, seen) = query(
            host,
            &[
                entry(host, "depth", 0),
                entry(host, "Names", 0),
                entry(host, "Absent", 0),
                missing,
                Entry { routine: 0, ..entry(host, "Parameters", SUBKEY) },
                entry(host, "Title", 0),
                Entry { name: 0, ..entry(host, "", NOVALUE) },
                all,
            ],
        );
        assert_eq!(status, STATUS_SUCCESS);
        let value = |name: &str, kind, data: &[u8]| (name.to_owned(), kind, data.to_vec(), 101);
        assert_eq!(
            seen,
            [
                value("Depth", REG_DWORD, &[7, 0, 0, 0]),
                value("Names", REG_SZ, &text("one\0")),
                value("Names", REG_SZ, &text("two\0")),
                value("Missing", REG_SZ, &text("none\0")),
                value("Title", REG_SZ, &text("viordma\0")),
                value("", 0, &[]),
                value("Depth", REG_DWORD, &[7, 0, 0, 0]),
                value("Names", REG_MULTI_SZ, &text("one\0two\0\0")),
            ]
        );
    });
}

#[test]
fn query_ends_where_a_value_is_missing_or_the_routine_fails() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    correct(|host| {
        prepared(host);
        let (status, seen) = query(host, &[entry(host, "Absent", REQUIRED), entry(host, "Depth", 0)]);
        assert_eq!((status, seen.len()), (STATUS_OBJECT_NAME_NOT_FOUND, 0));
        let subkey = entry(host, "Nothing", SUBKEY | REQUIRED);
        assert_eq!(query(host, &[subkey]).0, STATUS_OBJECT_NAME_NOT_FOUND);
        STATUS.store(STATUS_INVALID_PARAMETER, SeqCst);
        let (status, seen) = query(host, &[entry(host, "Depth", 0), entry(host, "Names", 0)]);
        assert_eq!((status, seen.len()), (STATUS_INVALID_PARAMETER, 1));
        STATUS.store(STATUS_BUFFER_TOO_SMALL, SeqCst);
        let (status, seen) = query(host, &[entry(host, "Depth", 0), entry(host, "Names", NOEXPAND)]);
        assert_eq!((status, seen.len()), (STATUS_SUCCESS, 2), "the one status that is ignored");
        STATUS.store(0, SeqCst);
        assert_eq!(query_at(host, SERVICES, "None", &[]).0, STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(query_at(host, SERVICES | OPTIONAL, "None", &[]).0, STATUS_SUCCESS);
        assert_eq!(query_at(host, 9, "Test", &[]).0, STATUS_INVALID_PARAMETER);
    });
}

#[test]
fn values_are_stored_where_the_table_says_as_far_as_they_have_the_type() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    correct(|host| {
        prepared(host);
        let (number, string, bytes) =
            (memory::<u32>(host), memory::<UNICODE_STRING>(host), memory::<i32>(host));
        let below = Entry { routine: 0, ..entry(host, "Parameters", SUBKEY) };
        bytes.write(-5);
        let (status, _) = query(
            host,
            &[
                direct(host, "Depth", REG_DWORD, number.address()),
                below,
                direct(host, "Title", REG_SZ, string.address()),
                direct(host, "Bytes", REG_BINARY, bytes.address()),
            ],
        );
        assert_eq!((status, number.read()), (STATUS_SUCCESS, 7));
        assert_eq!(String::from_utf16(&unicode(string)).unwrap(), "viordma");
        assert_eq!(string.read().MaximumLength, 16, "with its terminator");
        RtlFreeUnicodeString(string);
        let mut raw = [0; 5];
        bytes.cast::<u8>().read_bytes(&mut raw);
        assert_eq!(raw, [1, 2, 3, 4, 5]);
        bytes.write(13);
        let with_header = direct(host, "Bytes", REG_BINARY, bytes.address());
        assert_eq!(query(host, &[below, with_header]).0, STATUS_SUCCESS);
        assert_eq!([bytes.read(), bytes.add(1).read()], [5, REG_BINARY.cast_signed()]);
        bytes.write(12);
        assert_eq!(query(host, &[below, with_header]).0, STATUS_BUFFER_TOO_SMALL);
        let wrong = direct(host, "Depth", REG_SZ, string.address());
        assert_eq!(query(host, &[wrong]).0, STATUS_OBJECT_TYPE_MISMATCH);
        let both = Entry { routine: 1, ..direct(host, "Depth", REG_DWORD, number.address()) };
        assert_eq!(query(host, &[both]).0, STATUS_INVALID_PARAMETER);
    });
}

#[test]
fn queried_values_are_deleted_on_request() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    correct(|host| {
        prepared(host);
        assert_eq!(query(host, &[entry(host, "Depth", DELETE)]).1.len(), 1);
        assert_eq!(host.registry().value(KEY, "Depth"), None);
    });
}

#[test]
fn value_of_another_hive_without_a_check_of_its_type_is_reported() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    violates(
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        "RtlQueryRegistryValues with RTL_QUERY_REGISTRY_DIRECT and without RTL_QUERY_REGISTRY_TYPECHECK reads \\registry\\user\\.default",
        |host| {
            let at: Guest<u32> = memory(host);
            let unchecked = Entry { flags: DIRECT, ..direct(host, "Depth", 0, at.address()) };
            query_at(host, 5, "", &[unchecked]);
        },
    );
}
