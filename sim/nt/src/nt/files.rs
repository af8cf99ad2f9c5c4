// SPDX-License-Identifier: MIT OR Apache-2.0

//! File functions. All requests are completed inline.

use std::sync::Arc;

use ndk_abi::nt::{
    FILE_APPEND_DATA, FILE_DELETE_ON_CLOSE, FILE_DIRECTORY_FILE, FILE_NON_DIRECTORY_FILE, FILE_OPEN,
    FILE_READ_DATA, FILE_STANDARD_INFORMATION, FILE_WRITE_DATA, FilePositionInformation,
    FileStandardInformation, GENERIC_ALL, GENERIC_READ, GENERIC_WRITE, IO_STATUS_BLOCK,
    IO_STATUS_BLOCK_Anonymous, LARGE_INTEGER, OBJECT_ATTRIBUTES, STATUS_ACCESS_DENIED, STATUS_END_OF_FILE,
    STATUS_INFO_LENGTH_MISMATCH, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_INFO_CLASS,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_INVALID, STATUS_SUCCESS,
};
use parking_lot::Mutex;

use super::{
    file_tree::{Open, Opened},
    handles::{self, Object},
    runtime::unicode,
};
use crate::{Host, guest::Guest, imports, thread::current};

/// `FILE_SYNCHRONOUS_IO_ALERT` and `FILE_SYNCHRONOUS_IO_NONALERT`.
const SYNCHRONOUS: u32 = 0x30;
const FILE_DISPOSITION_INFORMATION: i32 = 13;
const FILE_END_OF_FILE_INFORMATION: i32 = 20;
/// Allocation unit of the volume in bytes.
const CLUSTER: i64 = 4096;

/// A file that a driver has opened.
struct FileHandle {
    opened: Opened,
    access: u32,
    synchronous: bool,
    position: Mutex<u64>,
}

impl Object for FileHandle {
    fn kind(&self) -> &'static str {
        "ZwCreateFile"
    }

    fn close(&self, host: &Host) {
        host.files().close(&self.opened);
    }
}

fn find(handle: usize) -> Result<Arc<FileHandle>, i32> {
    handles::find(current().host(), handle)
}

fn answer(block: Guest<IO_STATUS_BLOCK>, status: i32, information: usize) -> i32 {
    let status_of = IO_STATUS_BLOCK_Anonymous { Status: status };
    block.write(IO_STATUS_BLOCK { Anonymous: status_of, Information: information });
    status
}

/// Where a read or write starts.
enum Start {
    At(u64),
    Position,
    End,
}

impl FileHandle {
    fn may(&self, rights: u32) -> bool {
        self.access & (rights | GENERIC_ALL) != 0
    }

    /// Reads an offset: one of the special ones is -1 (the end) or -2 (the position) with an upper half of -1.
    fn start(&self, offset: Guest<LARGE_INTEGER>, writing: bool) -> Result<Start, i32> {
        let value = if offset.is_null() { None } else { Some(offset.read().QuadPart) };
        match value {
            None | Some(-2) if self.synchronous => Ok(Start::Position),
            Some(-1) if writing => Ok(Start::End),
            Some(at @ 0..) => Ok(Start::At(at.unsigned_abs())),
            _ => Err(STATUS_INVALID_PARAMETER),
        }
    }

    fn resolve(&self, start: &Start, length: usize) -> u64 {
        match start {
            Start::At(at) => *at,
            Start::Position => *self.position.lock(),
            Start::End => length as u64,
        }
    }

    fn moved(&self, end: u64) {
        if self.synchronous {
            *self.position.lock() = end;
        }
    }
}

/// Largest file.
const LARGEST: u64 = 1 << 30;

fn write(handle: usize, data: &[u8], offset: Guest<LARGE_INTEGER>) -> Result<usize, i32> {
    let file = find(handle)?;
    if !file.may(FILE_WRITE_DATA | FILE_APPEND_DATA | GENERIC_WRITE) {
        return Err(STATUS_ACCESS_DENIED);
    }
    let start = file.start(offset, true)?;
    // With the right to append only, every write is at the end.
    let start = if file.may(FILE_WRITE_DATA | GENERIC_WRITE) { start } else { Start::End };
    let me = current();
    let written = me.host().files().with_data(&file.opened, |contents| {
        let at = file.resolve(&start, contents.len());
        let end = at.saturating_add(data.len() as u64);
        if end > LARGEST {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let (at, end) = (at as usize, end as usize);
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[at..end].copy_from_slice(data);
        file.moved(end as u64);
        Ok(data.len())
    });
    written.unwrap_or(Err(STATUS_INVALID_DEVICE_REQUEST))
}

fn read(handle: usize, length: usize, offset: Guest<LARGE_INTEGER>) -> Result<Vec<u8>, i32> {
    let file = find(handle)?;
    if !file.may(FILE_READ_DATA | GENERIC_READ) {
        return Err(STATUS_ACCESS_DENIED);
    }
    let start = file.start(offset, false)?;
    let me = current();
    let data = me.host().files().with_data(&file.opened, |contents| {
        let at = usize::try_from(file.resolve(&start, contents.len())).unwrap_or(usize::MAX);
        if at >= contents.len() && length != 0 {
            return Err(STATUS_END_OF_FILE);
        }
        let end = at.saturating_add(length).min(contents.len());
        file.moved(end as u64);
        Ok(contents.get(at..end).unwrap_or_default().to_vec())
    });
    data.unwrap_or(Err(STATUS_INVALID_DEVICE_REQUEST))
}

/// Returns the bytes of an information class.
fn query(handle: usize, class: i32) -> Result<Vec<u8>, i32> {
    let file = find(handle)?;
    let me = current();
    let length = me.host().files().with_data(&file.opened, |contents| contents.len() as u64).unwrap_or(0);
    if class == FilePositionInformation {
        return Ok(file.position.lock().to_le_bytes().to_vec());
    }
    if class != FileStandardInformation {
        return Err(STATUS_INVALID_INFO_CLASS);
    }
    let end = i64::try_from(length).unwrap_or(i64::MAX);
    let mut bytes = ((end + CLUSTER - 1) / CLUSTER * CLUSTER).to_le_bytes().to_vec();
    bytes.extend(end.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0, file.opened.directory.into(), 0, 0]);
    debug_assert_eq!(bytes.len(), size_of::<FILE_STANDARD_INFORMATION>());
    Ok(bytes)
}

fn set(handle: usize, class: i32, information: Guest<u8>, length: u32) -> Result<(), i32> {
    let file = find(handle)?;
    let needed = if class == FILE_DISPOSITION_INFORMATION { 1 } else { 8 };
    let known = [FilePositionInformation, FILE_DISPOSITION_INFORMATION, FILE_END_OF_FILE_INFORMATION];
    if !known.contains(&class) {
        return Err(STATUS_INVALID_INFO_CLASS);
    }
    if length < needed {
        return Err(STATUS_INFO_LENGTH_MISMATCH);
    }
    let me = current();
    let files = me.host().files();
    if class == FILE_DISPOSITION_INFORMATION {
        files.set_delete_pending(&file.opened, information.read() != 0);
        return Ok(());
    }
    let value = u64::try_from(information.cast::<i64>().read()).ok().filter(|&value| value <= LARGEST);
    let value = value.ok_or(STATUS_INVALID_PARAMETER)?;
    if class == FilePositionInformation {
        *file.position.lock() = value;
    } else {
        let _ = files.with_data(&file.opened, |contents| contents.resize(value as usize, 0));
    }
    Ok(())
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Opens or makes a file.
    [<= PASSIVE_LEVEL]
    fn ZwCreateFile(
        handle: Guest<usize>,
        access: u32,
        attributes: Guest<OBJECT_ATTRIBUTES>,
        block: Guest<IO_STATUS_BLOCK>,
        allocation: Guest<LARGE_INTEGER>,
        file_attributes: u32,
        share: u32,
        disposition: u32,
        options: u32,
        extended: usize,
        extended_length: u32,
    ) -> i32 {
        let _ = (allocation, file_attributes, extended, extended_length);
        let attributes = attributes.read();
        if attributes.Length as usize != size_of::<OBJECT_ATTRIBUTES>() || !attributes.RootDirectory.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        if attributes.ObjectName.is_null() {
            return STATUS_OBJECT_NAME_INVALID;
        }
        let name = String::from_utf16_lossy(&unicode(Guest::new(attributes.ObjectName)));
        let me = current();
        let host = me.host();
        let open = Open {
            access,
            share,
            disposition,
            directory: options & FILE_DIRECTORY_FILE != 0,
            no_directory: options & FILE_NON_DIRECTORY_FILE != 0,
        };
        match host.files().open(&name, open) {
            Ok(opened) => {
                let outcome = opened.outcome;
                host.files().set_delete_pending(&opened, options & FILE_DELETE_ON_CLOSE != 0);
                let file = FileHandle {
                    opened,
                    access,
                    synchronous: options & SYNCHRONOUS != 0,
                    position: Mutex::new(0),
                };
                handle.write(handles::open(host, Arc::new(file)));
                answer(block, STATUS_SUCCESS, outcome)
            }
            Err(status) => answer(block, status, 0),
        }
    }

    /// Opens a file that exists.
    [<= PASSIVE_LEVEL]
    fn ZwOpenFile(
        handle: Guest<usize>,
        access: u32,
        attributes: Guest<OBJECT_ATTRIBUTES>,
        block: Guest<IO_STATUS_BLOCK>,
        share: u32,
        options: u32,
    ) -> i32 {
        ZwCreateFile(handle, access, attributes, block, Guest::null(), 0, share, FILE_OPEN, options, 0, 0)
    }

    /// Writes to a file. At the offset -1 it appends.
    [<= PASSIVE_LEVEL]
    fn ZwWriteFile(
        handle: usize,
        event: usize,
        routine: usize,
        context: usize,
        block: Guest<IO_STATUS_BLOCK>,
        buffer: Guest<u8>,
        length: u32,
        offset: Guest<LARGE_INTEGER>,
        key: Guest<u32>,
    ) -> i32 {
        let _ = (event, routine, context, key);
        if let Err(status) = find(handle) {
            return status;
        }
        let mut data = vec![0; length as usize];
        buffer.read_bytes(&mut data);
        match write(handle, &data, offset) {
            Ok(written) => answer(block, STATUS_SUCCESS, written),
            Err(status) => answer(block, status, 0),
        }
    }

    /// Reads from a file; fails at its end.
    [<= PASSIVE_LEVEL]
    fn ZwReadFile(
        handle: usize,
        event: usize,
        routine: usize,
        context: usize,
        block: Guest<IO_STATUS_BLOCK>,
        buffer: Guest<u8>,
        length: u32,
        offset: Guest<LARGE_INTEGER>,
        key: Guest<u32>,
    ) -> i32 {
        let _ = (event, routine, context, key);
        if let Err(status) = find(handle) {
            return status;
        }
        match read(handle, length as usize, offset) {
            Ok(data) => {
                buffer.write_bytes(&data);
                answer(block, STATUS_SUCCESS, data.len())
            }
            Err(status) => answer(block, status, 0),
        }
    }

    /// Returns information about a file: its size, or its position.
    [<= PASSIVE_LEVEL]
    fn ZwQueryInformationFile(
        handle: usize,
        block: Guest<IO_STATUS_BLOCK>,
        information: Guest<u8>,
        length: u32,
        class: i32,
    ) -> i32 {
        match query(handle, class) {
            Ok(bytes) if bytes.len() <= length as usize => {
                information.write_bytes(&bytes);
                answer(block, STATUS_SUCCESS, bytes.len())
            }
            Ok(_) => STATUS_INFO_LENGTH_MISMATCH,
            Err(status) => status,
        }
    }

    /// Sets a file's position or size, or lets it be deleted when it is closed.
    [<= PASSIVE_LEVEL]
    fn ZwSetInformationFile(
        handle: usize,
        block: Guest<IO_STATUS_BLOCK>,
        information: Guest<u8>,
        length: u32,
        class: i32,
    ) -> i32 {
        match set(handle, class, information, length) {
            Ok(()) => answer(block, STATUS_SUCCESS, 0),
            Err(status) => status,
        }
    }

    /// Writes a file's contents to the volume.
    [<= PASSIVE_LEVEL]
    fn ZwFlushBuffersFile(handle: usize, block: Guest<IO_STATUS_BLOCK>) -> i32 {
        match find(handle) {
            Ok(_) => answer(block, STATUS_SUCCESS, 0),
            Err(status) => status,
        }
    }
}
