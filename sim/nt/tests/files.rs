// SPDX-License-Identifier: MIT OR Apache-2.0

//! File functions against the host's file tree.
//!
//! What Windows does is known from the documentation of each function, and from NTFS's answers as the documentation of
//! `NtCreateFile` and of its statuses describes them.

use crate::on_host::{correct, counted, memory, violates};
use ndk_abi::nt::{
    FILE_CREATE, FILE_CREATED, FILE_DELETE_ON_CLOSE, FILE_NON_DIRECTORY_FILE, FILE_OPEN, FILE_OPEN_IF,
    FILE_OPENED, FILE_OVERWRITE_IF, FILE_OVERWRITTEN, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FILE_STANDARD_INFORMATION, FILE_SYNCHRONOUS_IO_NONALERT, FileStandardInformation, GENERIC_READ,
    GENERIC_WRITE, IO_STATUS_BLOCK, LARGE_INTEGER, OBJECT_ATTRIBUTES, STATUS_ACCESS_DENIED,
    STATUS_END_OF_FILE, STATUS_FILE_IS_A_DIRECTORY, STATUS_INFO_LENGTH_MISMATCH, STATUS_INVALID_HANDLE,
    STATUS_INVALID_INFO_CLASS, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_COLLISION,
    STATUS_OBJECT_NAME_INVALID, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_NOT_FOUND,
    STATUS_OBJECT_PATH_SYNTAX_BAD, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{files, handles},
};

/// Access of consumer drivers to their logs: read, write, append.
const ACCESS: u32 = 0xc000_0004;
const BOTH: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE;

/// Opens a file; returns its handle and what was done.
fn open(
    host: &Host,
    name: &str,
    access: u32,
    share: u32,
    disposition: u32,
    options: u32,
) -> Result<(usize, usize), i32> {
    let attributes = memory::<OBJECT_ATTRIBUTES>(host);
    attributes.write(OBJECT_ATTRIBUTES {
        Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).unwrap(),
        ObjectName: counted(host, name, 0).as_ptr(),
        Attributes: 0x240,
        ..OBJECT_ATTRIBUTES::zeroed()
    });
    let (handle, block) = (memory::<usize>(host), memory::<IO_STATUS_BLOCK>(host));
    let options = options | FILE_SYNCHRONOUS_IO_NONALERT;
    let status = files::ZwCreateFile(
        handle,
        access,
        attributes,
        block,
        Guest::null(),
        0x80,
        share,
        disposition,
        options,
        0,
        0,
    );
    if status == STATUS_SUCCESS { Ok((handle.read(), block.read().Information)) } else { Err(status) }
}

fn log(host: &Host, disposition: u32) -> Result<(usize, usize), i32> {
    open(host, r"\DosDevices\C:\Test.log", ACCESS, 0, disposition, 0)
}

fn write(host: &Host, handle: usize, text: &str, offset: Option<i64>) -> i32 {
    let (block, buffer) = (memory::<IO_STATUS_BLOCK>(host), memory::<u8>(host));
    buffer.write_bytes(text.as_bytes());
    let place = offset_at(host, offset);
    let length = u32::try_from(text.len()).unwrap();
    files::ZwWriteFile(handle, 0, 0, 0, block, buffer, length, place, Guest::null())
}

fn read(host: &Host, handle: usize, length: u32, offset: Option<i64>) -> Result<String, i32> {
    let (block, buffer) = (memory::<IO_STATUS_BLOCK>(host), memory::<u8>(host));
    let place = offset_at(host, offset);
    let status = files::ZwReadFile(handle, 0, 0, 0, block, buffer, length, place, Guest::null());
    let mut bytes = vec![0; block.read().Information];
    buffer.read_bytes(&mut bytes);
    if status == STATUS_SUCCESS { Ok(String::from_utf8(bytes).unwrap()) } else { Err(status) }
}

fn offset_at(host: &Host, offset: Option<i64>) -> Guest<LARGE_INTEGER> {
    offset.map_or(Guest::null(), |offset| {
        let place = memory::<LARGE_INTEGER>(host);
        place.write(LARGE_INTEGER { QuadPart: offset });
        place
    })
}

#[test]
fn a_log_grows_at_its_end_over_several_opens() {
    correct(|host| {
        for (line, outcome) in [("one\n", FILE_CREATED), ("two\n", FILE_OPENED)] {
            let (handle, done) = log(host, FILE_OPEN_IF).unwrap();
            assert_eq!(done, outcome);
            assert_eq!(write(host, handle, line, Some(-1)), STATUS_SUCCESS);
            assert_eq!(handles::ZwClose(handle), STATUS_SUCCESS);
        }
        assert_eq!(host.files().read(r"C:\test.LOG").unwrap(), b"one\ntwo\n");
        assert_eq!(host.files().list(), [r"c:\Test.log"]);
    });
}

#[test]
fn reads_and_writes_move_the_position() {
    correct(|host| {
        let (handle, _) = log(host, FILE_CREATE).unwrap();
        assert_eq!(write(host, handle, "abcdef", None), STATUS_SUCCESS);
        assert_eq!(write(host, handle, "X", Some(1)), STATUS_SUCCESS);
        assert_eq!(read(host, handle, 2, Some(-2)).unwrap(), "cd");
        assert_eq!(read(host, handle, 9, None).unwrap(), "ef");
        assert_eq!(read(host, handle, 9, None), Err(STATUS_END_OF_FILE));
        assert_eq!(read(host, handle, 1, Some(-1)), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(write(host, handle, "x", Some(-3)), STATUS_INVALID_PARAMETER);
        assert_eq!(write(host, handle, "!", Some(8)), STATUS_SUCCESS);
        assert_eq!(host.files().read(r"C:\Test.log").unwrap(), b"aXcdef\0\0!");
        handles::ZwClose(handle);
    });
}

#[test]
fn dispositions_say_what_exists_and_what_is_made() {
    correct(|host| {
        assert_eq!(log(host, FILE_OPEN), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        host.files().write(r"C:\Test.log", b"old").unwrap();
        assert_eq!(log(host, FILE_CREATE), Err(STATUS_OBJECT_NAME_COLLISION));
        assert_eq!(log(host, 6), Err(STATUS_INVALID_PARAMETER));
        let (handle, done) = log(host, FILE_OVERWRITE_IF).unwrap();
        assert_eq!(done, FILE_OVERWRITTEN);
        handles::ZwClose(handle);
        assert_eq!(host.files().read(r"C:\Test.log").unwrap(), b"");
    });
}

#[test]
fn names_that_cannot_be_opened_have_the_file_systems_answers() {
    correct(|host| {
        for (name, status) in [
            (r"\DosDevices\C:\None\a.log", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\DosDevices\D:\a.log", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\??\C:\a?.log", STATUS_OBJECT_NAME_INVALID),
            (r"C:\a.log", STATUS_OBJECT_PATH_SYNTAX_BAD),
        ] {
            assert_eq!(open(host, name, ACCESS, 0, FILE_OPEN_IF, 0), Err(status), "{name}");
        }
        let folder = open(host, r"\SystemRoot\Temp", ACCESS, BOTH, FILE_OPEN, FILE_NON_DIRECTORY_FILE);
        assert_eq!(folder, Err(STATUS_FILE_IS_A_DIRECTORY));
        let (handle, _) = open(host, r"\SystemRoot\Temp\x", ACCESS, 0, FILE_CREATE, 0).unwrap();
        handles::ZwClose(handle);
        assert!(host.files().read(r"C:\Windows\Temp\x").is_some());
    });
}

#[test]
fn sharing_is_granted_by_both_opens() {
    correct(|host| {
        let name = r"\??\C:\shared";
        let (first, _) = open(host, name, GENERIC_WRITE, FILE_SHARE_READ, FILE_CREATE, 0).unwrap();
        let refused = Err(STATUS_SHARING_VIOLATION);
        assert_eq!(
            open(host, name, GENERIC_WRITE, BOTH, FILE_OPEN, 0),
            refused,
            "the first shares no writing"
        );
        assert_eq!(
            open(host, name, GENERIC_READ, FILE_SHARE_READ, FILE_OPEN, 0),
            refused,
            "the second shares none"
        );
        let (second, _) = open(host, name, GENERIC_READ, BOTH, FILE_OPEN, 0).unwrap();
        assert_eq!(write(host, second, "x", Some(0)), STATUS_ACCESS_DENIED);
        assert_eq!(read(host, first, 1, Some(0)), Err(STATUS_ACCESS_DENIED));
        handles::ZwClose(first);
        handles::ZwClose(second);
        let (third, _) = open(host, name, ACCESS, 0, FILE_OPEN, 0).unwrap();
        handles::ZwClose(third);
    });
}

#[test]
fn a_file_may_be_deleted_when_it_is_closed() {
    correct(|host| {
        let (handle, _) = open(host, r"\??\C:\brief", ACCESS, 0, FILE_CREATE, FILE_DELETE_ON_CLOSE).unwrap();
        assert!(host.files().read(r"C:\brief").is_some());
        handles::ZwClose(handle);
        assert!(host.files().read(r"C:\brief").is_none());
    });
}

#[test]
fn the_size_of_a_file_can_be_queried() {
    correct(|host| {
        host.files().write(r"C:\Test.log", b"12345").unwrap();
        let (handle, _) = log(host, FILE_OPEN).unwrap();
        let (block, information) =
            (memory::<IO_STATUS_BLOCK>(host), memory::<FILE_STANDARD_INFORMATION>(host));
        let query =
            |class, length| files::ZwQueryInformationFile(handle, block, information.cast(), length, class);
        assert_eq!(query(FileStandardInformation, 24), STATUS_SUCCESS);
        assert_eq!(information.read().EndOfFile.QuadPart, 5);
        assert_eq!(query(FileStandardInformation, 23), STATUS_INFO_LENGTH_MISMATCH);
        assert_eq!(query(99, 24), STATUS_INVALID_INFO_CLASS);
        handles::ZwClose(handle);
        assert_eq!(query(FileStandardInformation, 24), STATUS_INVALID_HANDLE);
    });
}

#[test]
fn closing_a_handle_twice_is_a_bug_check() {
    violates(BugCheck::INVALID_KERNEL_HANDLE, "which is no handle or is closed already", |host| {
        let (handle, _) = log(host, FILE_CREATE).unwrap();
        handles::ZwClose(handle);
        handles::ZwClose(handle);
    });
}
