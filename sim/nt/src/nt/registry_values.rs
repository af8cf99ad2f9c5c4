// SPDX-License-Identifier: MIT OR Apache-2.0

//! `RtlQueryRegistryValues`: several values of a key and of keys below it, by a table of the caller.
//!
//! References to environment variables are not expanded.

use ndk_abi::nt::{
    REG_MULTI_SZ, REG_SZ, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, UNICODE_STRING,
};

use super::{
    registry,
    registry_tree::Value,
    strings::{self, terminated},
};
use crate::{
    guest::Guest,
    host::Host,
    image, imports,
    thread::current,
    verifier::{BugCheck, violation},
};

const REG_NONE: u32 = 0;
const REG_EXPAND_SZ: u32 = 2;

/// Flags of `RelativeTo`.
const HANDLE: u32 = 0x4000_0000;
const OPTIONAL: u32 = 0x8000_0000;
/// The paths of `RelativeTo` without its flags.
const ROOTS: [&str; 6] = [
    "",
    r"\Registry\Machine\System\CurrentControlSet\Services",
    r"\Registry\Machine\System\CurrentControlSet\Control",
    r"\Registry\Machine\Software\Microsoft\Windows NT\CurrentVersion",
    r"\Registry\Machine\Hardware\DeviceMap",
    r"\Registry\User\.Default",
];
/// The key above the hives of the system; others are not trusted.
const TRUSTED: &str = r"\registry\machine";

/// Flags of an entry.
const SUBKEY: u32 = 0x1;
const TOPKEY: u32 = 0x2;
const REQUIRED: u32 = 0x4;
const NOVALUE: u32 = 0x8;
const NOEXPAND: u32 = 0x10;
const DIRECT: u32 = 0x20;
const DELETE: u32 = 0x40;
const TYPECHECK: u32 = 0x100;
/// The bits of `DefaultType` with the expected type.
const TYPECHECK_SHIFT: u32 = 24;

/// `QueryRoutine`: name, type, data and their length, contexts of the call and of the entry.
type Routine = unsafe extern "efiapi" fn(usize, u32, usize, u32, usize, usize) -> i32;

/// `RTL_QUERY_REGISTRY_TABLE`, by its members on x64.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    routine: usize,
    flags: u32,
    name: usize,
    context: usize,
    default_type: u32,
    default_data: usize,
    default_length: u32,
}

const _: () = assert!(size_of::<Entry>() == 56);

/// A query: its key, and the context of the call.
struct Query<'a> {
    host: &'a Host,
    key: &'a str,
    context: usize,
}

fn is_text(kind: u32) -> bool {
    matches!(kind, REG_SZ | REG_EXPAND_SZ | REG_MULTI_SZ)
}

fn text_at(address: usize) -> String {
    String::from_utf16_lossy(&terminated(Guest::from_address(address)))
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Returns the strings of a REG_MULTI_SZ value, each with its terminator.
fn parts(data: &[u8]) -> Vec<Vec<u8>> {
    let units: Vec<_> = data.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit)).collect();
    let texts = units.split(|&unit| unit == 0).take_while(|text| !text.is_empty());
    texts.map(|text| utf16(&String::from_utf16_lossy(text))).collect()
}

impl Entry {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn is_end(&self) -> bool {
        self.routine == 0 && self.name == 0 && !self.has(SUBKEY | TOPKEY | DIRECT)
    }

    /// Returns the default value, if the entry has one.
    fn default(&self, name: &str) -> Option<Value> {
        let kind = self.default_type & 0xff;
        if kind == REG_NONE || self.has(REQUIRED) {
            return None;
        }
        let from: Guest<u8> = Guest::from_address(self.default_data);
        let mut length = self.default_length as usize;
        if length == 0 && is_text(kind) {
            length = 2 * (terminated(from.cast()).len() + 1);
            if kind == REG_MULTI_SZ {
                // Up to the empty string at the end.
                while from.cast::<u16>().add(length / 2).read() != 0 {
                    length += 2 * (terminated(from.cast::<u16>().add(length / 2)).len() + 1);
                }
                length += 2;
            }
        }
        let mut data = vec![0; length];
        from.read_bytes(&mut data);
        Some(Value { name: name.to_owned(), kind, data })
    }

    /// Stores a value where the entry says.
    fn store(&self, value: &Value) -> Result<(), i32> {
        let target = Guest::<u8>::from_address(self.context);
        let length = value.data.len();
        if is_text(value.kind) {
            return self.store_text(&value.data);
        }
        if length <= 4 {
            target.write_bytes(&value.data);
            return Ok(());
        }
        // The buffer says how long it is, and a negative length that it gets the data alone.
        let room = target.cast::<i32>().read();
        let room_bytes = room.unsigned_abs() as usize;
        let (at, needed) = if room < 0 { (0, length) } else { (8, length + 8) };
        if room_bytes < needed {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        if room >= 0 {
            target.cast::<u32>().write(u32::try_from(length).unwrap_or(u32::MAX));
            target.cast::<u32>().add(1).write(value.kind);
        }
        target.add(at).write_bytes(&value.data);
        Ok(())
    }

    /// Stores text in the counted string at the context, which gets a buffer if it has none.
    fn store_text(&self, data: &[u8]) -> Result<(), i32> {
        let target: Guest<UNICODE_STRING> = Guest::from_address(self.context);
        let mut string = target.read();
        let size = u16::try_from(data.len()).map_err(|_| STATUS_BUFFER_TOO_SMALL)?;
        if string.Buffer.is_null() {
            let buffer = strings::allocate(data.len().max(2)).ok_or(STATUS_NO_MEMORY)?;
            string.Buffer = buffer.cast().as_ptr();
            string.MaximumLength = size;
        } else if string.MaximumLength < size {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        Guest::new(string.Buffer).cast::<u8>().write_bytes(data);
        // Without the terminator, if there is one.
        string.Length = if data.ends_with(&[0, 0]) { size - 2 } else { size };
        target.write(string);
        Ok(())
    }
}

impl Query<'_> {
    /// Calls the routine of an entry; `STATUS_BUFFER_TOO_SMALL` of it is ignored.
    fn call(&self, entry: &Entry, name: Option<&str>, kind: u32, data: &[u8]) -> Result<(), i32> {
        let mut name = name.map(utf16);
        let mut data = data.to_vec();
        let name = name.as_mut().map_or(0, |name| name.as_mut_ptr().expose_provenance());
        let (at, length) =
            (data.as_mut_ptr().expose_provenance(), u32::try_from(data.len()).unwrap_or(u32::MAX));
        let at = if length == 0 { 0 } else { at };
        // SAFETY: what the driver passed as the routine of the entry.
        let routine: Routine = unsafe { image::function("a QueryRoutine", entry.routine) };
        let status = image::call("a QueryRoutine", || {
            // SAFETY: the arguments of this function; name and data live through the call.
            unsafe { routine(name, kind, at, length, self.context, entry.context) }
        });
        if status < 0 && status != STATUS_BUFFER_TOO_SMALL { Err(status) } else { Ok(()) }
    }

    /// Passes a value to an entry's routine, or stores it.
    fn pass(&self, entry: &Entry, value: &Value) -> Result<(), i32> {
        if entry.has(DIRECT) {
            return entry.store(value);
        }
        if value.kind == REG_MULTI_SZ && !entry.has(NOEXPAND) {
            return parts(&value.data)
                .iter()
                .try_for_each(|part| self.call(entry, Some(&value.name), REG_SZ, part));
        }
        let kind = if value.kind == REG_EXPAND_SZ && !entry.has(NOEXPAND) { REG_SZ } else { value.kind };
        self.call(entry, Some(&value.name), kind, &value.data)
    }

    /// Handles an entry with a name.
    fn named(&self, entry: &Entry) -> Result<(), i32> {
        let name = text_at(entry.name);
        let found = self.host.registry().value(self.key, &name);
        if entry.has(DIRECT) {
            self.check_direct(entry, found.as_ref())?;
        }
        let is_found = found.is_some();
        match found.or_else(|| entry.default(&name)) {
            Some(value) => self.pass(entry, &value)?,
            None if entry.has(REQUIRED) => return Err(STATUS_OBJECT_NAME_NOT_FOUND),
            None => {}
        }
        if is_found && entry.has(DELETE) {
            self.host.registry().remove_value(self.key, &name);
        }
        Ok(())
    }

    fn check_direct(&self, entry: &Entry, found: Option<&Value>) -> Result<(), i32> {
        if entry.routine != 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if !entry.has(TYPECHECK) {
            if !self.key.to_lowercase().starts_with(TRUSTED) {
                violation(
                    BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
                    format!(
                        "RtlQueryRegistryValues with RTL_QUERY_REGISTRY_DIRECT and without RTL_QUERY_REGISTRY_TYPECHECK reads {}, which is no hive of the system",
                        self.key
                    ),
                );
            }
            return Ok(());
        }
        let expected = entry.default_type >> TYPECHECK_SHIFT;
        let differs = found.is_some_and(|value| value.kind != expected);
        if differs { Err(STATUS_OBJECT_TYPE_MISMATCH) } else { Ok(()) }
    }

    /// Handles an entry without a name: all values of the key, or none.
    fn all(&self, entry: &Entry) -> Result<(), i32> {
        if entry.has(DIRECT) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if entry.has(NOVALUE) {
            return self.call(entry, None, REG_NONE, &[]);
        }
        let values = self.host.registry().values(self.key);
        if values.is_empty() && entry.has(REQUIRED) {
            return Err(STATUS_OBJECT_NAME_NOT_FOUND);
        }
        for value in values {
            self.pass(entry, &value)?;
            if entry.has(DELETE) {
                self.host.registry().remove_value(self.key, &value.name);
            }
        }
        Ok(())
    }
}

/// Returns the key that the first arguments name; `None` if it is optional and does not exist.
fn top_key(host: &Host, relative_to: u32, path: usize) -> Result<Option<String>, i32> {
    if relative_to & HANDLE != 0 {
        return registry::path_of(host, path).map(Some);
    }
    let root = ROOTS.get((relative_to & !OPTIONAL) as usize).ok_or(STATUS_INVALID_PARAMETER)?;
    let path = if path == 0 { String::new() } else { text_at(path) };
    let whole =
        if root.is_empty() || path.is_empty() { format!("{root}{path}") } else { format!(r"{root}\{path}") };
    match host.registry().open(&whole) {
        Ok(key) => Ok(Some(key)),
        Err(STATUS_OBJECT_NAME_NOT_FOUND) if relative_to & OPTIONAL != 0 => Ok(None),
        Err(status) => Err(status),
    }
}

fn query(relative_to: u32, path: usize, table: Guest<u8>, context: usize) -> Result<(), i32> {
    let me = current();
    let host = me.host();
    let Some(top) = top_key(host, relative_to, path)? else { return Ok(()) };
    let mut key = Some(top.clone());
    for entry in (0..).map(|index| table.cast::<Entry>().add(index).read()) {
        if entry.is_end() {
            break;
        }
        if entry.has(SUBKEY | TOPKEY) {
            key = Some(top.clone());
        }
        if entry.has(SUBKEY) {
            if entry.name == 0 {
                return Err(STATUS_INVALID_PARAMETER);
            }
            let below = format!(r"{top}\{}", text_at(entry.name));
            key = host.registry().open(&below).ok();
            if key.is_none() && entry.has(REQUIRED) {
                return Err(STATUS_OBJECT_NAME_NOT_FOUND);
            }
        }
        let Some(key) = &key else { continue };
        let query = Query { host, key, context };
        if entry.name == 0 || entry.has(SUBKEY) {
            if entry.routine != 0 || entry.has(DIRECT) {
                query.all(&entry)?;
            }
        } else {
            query.named(&entry)?;
        }
    }
    Ok(())
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Passes values of the registry to routines of the caller, or stores them where its table says.
    [<= PASSIVE_LEVEL]
    fn RtlQueryRegistryValues(
        relative_to: u32,
        path: usize,
        table: Guest<u8>,
        context: usize,
        environment: usize,
    ) -> i32 {
        let _ = environment;
        query(relative_to, path, table, context).err().unwrap_or(STATUS_SUCCESS)
    }
}
