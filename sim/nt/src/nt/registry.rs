// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registry functions.

use std::sync::Arc;

use ndk_abi::nt::{
    KeyValueBasicInformation, KeyValueFullInformation, KeyValuePartialInformation, OBJECT_ATTRIBUTES,
    REG_CREATED_NEW_KEY, REG_OPENED_EXISTING_KEY, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_INVALID, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    UNICODE_STRING,
};

use super::{
    handles::{self, Object},
    registry_tree::Value,
    runtime::unicode,
};
use crate::{Host, guest::Guest, imports, thread::current};

/// An open key.
struct Key {
    path: String,
}

impl Object for Key {
    fn kind(&self) -> &'static str {
        "ZwOpenKey"
    }
}

/// Returns the path of an open key.
pub(super) fn path_of(host: &Host, handle: usize) -> Result<String, i32> {
    handles::find::<Key>(host, handle).map(|key| key.path.clone())
}

/// Returns the path that object attributes name: absolute, or below an open key.
fn path(attributes: Guest<OBJECT_ATTRIBUTES>) -> Result<String, i32> {
    let attributes = attributes.read();
    if attributes.Length as usize != size_of::<OBJECT_ATTRIBUTES>() {
        return Err(STATUS_INVALID_PARAMETER);
    }
    if attributes.ObjectName.is_null() {
        return Err(STATUS_OBJECT_NAME_INVALID);
    }
    let name = text(Guest::new(attributes.ObjectName));
    let root = attributes.RootDirectory.addr();
    if root == 0 {
        return Ok(name);
    }
    let root = handles::find::<Key>(current().host(), root)?;
    Ok(format!(r"{}\{name}", root.path))
}

fn text(string: Guest<UNICODE_STRING>) -> String {
    if string.is_null() { String::new() } else { String::from_utf16_lossy(&unicode(string)) }
}

/// Returns the information of a class, and the length of the part without name and data.
fn information(value: &Value, class: i32) -> Option<(Vec<u8>, usize)> {
    let words = |words: &[usize]| -> Vec<u8> {
        words.iter().flat_map(|&word| u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes()).collect()
    };
    let name: Vec<u8> = value.name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let kind = value.kind as usize;
    match class {
        KEY_VALUE_BASIC => {
            let mut bytes = words(&[0, kind, name.len()]);
            bytes.extend(name);
            Some((bytes, 12))
        }
        KEY_VALUE_FULL => {
            let start = (20 + name.len()).next_multiple_of(4);
            let mut bytes = words(&[0, kind, start, value.data.len(), name.len()]);
            bytes.extend(name);
            bytes.resize(start, 0);
            bytes.extend(&value.data);
            Some((bytes, 20))
        }
        KEY_VALUE_PARTIAL => {
            let mut bytes = words(&[0, kind, value.data.len()]);
            bytes.extend(&value.data);
            Some((bytes, 12))
        }
        _ => None,
    }
}

const KEY_VALUE_BASIC: i32 = KeyValueBasicInformation;
const KEY_VALUE_FULL: i32 = KeyValueFullInformation;
const KEY_VALUE_PARTIAL: i32 = KeyValuePartialInformation;

fn query(
    handle: usize,
    name: Guest<UNICODE_STRING>,
    class: i32,
    target: Guest<u8>,
    length: usize,
    result: Guest<u32>,
) -> Result<(), i32> {
    let me = current();
    let key = handles::find::<Key>(me.host(), handle)?;
    let value = me.host().registry().value(&key.path, &text(name)).ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?;
    let (bytes, fixed) = information(&value, class).ok_or(STATUS_INVALID_PARAMETER)?;
    result.write(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    if length < fixed {
        return Err(STATUS_BUFFER_TOO_SMALL);
    }
    target.write_bytes(&bytes[..length.min(bytes.len())]);
    if length < bytes.len() { Err(STATUS_BUFFER_OVERFLOW) } else { Ok(()) }
}

fn status(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(STATUS_SUCCESS)
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Opens a key.
    [<= PASSIVE_LEVEL]
    fn ZwOpenKey(handle: Guest<usize>, access: u32, attributes: Guest<OBJECT_ATTRIBUTES>) -> i32 {
        let _ = access;
        let me = current();
        let host = me.host();
        status(path(attributes).and_then(|path| host.registry().open(&path)).map(|path| {
            handle.write(handles::open(host, Arc::new(Key { path })));
        }))
    }

    /// Opens a key, or makes it below one that exists.
    [<= PASSIVE_LEVEL]
    fn ZwCreateKey(
        handle: Guest<usize>,
        access: u32,
        attributes: Guest<OBJECT_ATTRIBUTES>,
        title: u32,
        class: Guest<UNICODE_STRING>,
        options: u32,
        disposition: Guest<u32>,
    ) -> i32 {
        let _ = (access, title, class, options);
        let me = current();
        let host = me.host();
        status(path(attributes).and_then(|path| host.registry().create(&path)).map(|(path, new)| {
            handle.write(handles::open(host, Arc::new(Key { path })));
            if !disposition.is_null() {
                disposition.write(if new { REG_CREATED_NEW_KEY } else { REG_OPENED_EXISTING_KEY });
            }
        }))
    }

    /// Returns a value of a key, or as much of it as there is room for.
    [<= PASSIVE_LEVEL]
    fn ZwQueryValueKey(
        handle: usize,
        name: Guest<UNICODE_STRING>,
        class: i32,
        target: Guest<u8>,
        length: u32,
        result: Guest<u32>,
    ) -> i32 {
        status(query(handle, name, class, target, length as usize, result))
    }

    /// Sets a value of a key.
    [<= PASSIVE_LEVEL]
    fn ZwSetValueKey(
        handle: usize,
        name: Guest<UNICODE_STRING>,
        title: u32,
        kind: u32,
        data: Guest<u8>,
        size: u32,
    ) -> i32 {
        let _ = title;
        let me = current();
        let host = me.host();
        status(handles::find::<Key>(host, handle).and_then(|key| {
            let mut bytes = vec![0; size as usize];
            data.read_bytes(&mut bytes);
            host.registry().set_value(&key.path, &text(name), kind, &bytes)
        }))
    }

    /// Removes a value of a key.
    [<= PASSIVE_LEVEL]
    fn ZwDeleteValueKey(handle: usize, name: Guest<UNICODE_STRING>) -> i32 {
        let me = current();
        let host = me.host();
        status(handles::find::<Key>(host, handle).and_then(|key| {
            let removed = host.registry().remove_value(&key.path, &text(name));
            removed.then_some(()).ok_or(STATUS_OBJECT_NAME_NOT_FOUND)
        }))
    }
}
