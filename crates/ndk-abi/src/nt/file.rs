// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files and the registry.

use core::ffi::c_void;

use super::{
    ACCESS_MASK, HANDLE, IO_STATUS_BLOCK, LARGE_INTEGER, NTSTATUS, OBJECT_ATTRIBUTES, UNICODE_STRING,
};

pub const OBJ_CASE_INSENSITIVE: u32 = 0x40;
pub const OBJ_KERNEL_HANDLE: u32 = 0x200;

pub const DELETE: u32 = 0x0001_0000;
pub const SYNCHRONIZE: u32 = 0x0010_0000;
pub const GENERIC_ALL: u32 = 0x1000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
pub const FILE_READ_DATA: u32 = 0x1;
pub const FILE_WRITE_DATA: u32 = 0x2;
pub const FILE_APPEND_DATA: u32 = 0x4;

pub const FILE_ATTRIBUTE_NORMAL: u32 = 0x80;
pub const FILE_SHARE_READ: u32 = 0x1;
pub const FILE_SHARE_WRITE: u32 = 0x2;
pub const FILE_SHARE_DELETE: u32 = 0x4;

pub const FILE_SUPERSEDE: u32 = 0;
pub const FILE_OPEN: u32 = 1;
pub const FILE_CREATE: u32 = 2;
pub const FILE_OPEN_IF: u32 = 3;
pub const FILE_OVERWRITE: u32 = 4;
pub const FILE_OVERWRITE_IF: u32 = 5;

pub const FILE_DIRECTORY_FILE: u32 = 0x1;
pub const FILE_SYNCHRONOUS_IO_NONALERT: u32 = 0x20;
pub const FILE_NON_DIRECTORY_FILE: u32 = 0x40;
pub const FILE_DELETE_ON_CLOSE: u32 = 0x1000;

pub const FILE_SUPERSEDED: usize = 0;
pub const FILE_OPENED: usize = 1;
pub const FILE_CREATED: usize = 2;
pub const FILE_OVERWRITTEN: usize = 3;
pub const FILE_EXISTS: usize = 4;
pub const FILE_DOES_NOT_EXIST: usize = 5;

/// Offset of a write: at the end of the file. The upper half of the offset is -1, too.
pub const FILE_WRITE_TO_END_OF_FILE: u32 = 0xffff_ffff;
/// Offset of a read or write: the file object's own position.
pub const FILE_USE_FILE_POINTER_POSITION: u32 = 0xffff_fffe;

pub const FileStandardInformation: i32 = 5;
pub const FilePositionInformation: i32 = 14;

pub const KEY_QUERY_VALUE: u32 = 0x1;
pub const KEY_SET_VALUE: u32 = 0x2;
pub const KEY_READ: u32 = 0x2_0019;
pub const KEY_WRITE: u32 = 0x2_0006;
pub const KEY_ALL_ACCESS: u32 = 0xf_003f;
pub const REG_OPTION_NON_VOLATILE: u32 = 0;
pub const REG_CREATED_NEW_KEY: u32 = 1;
pub const REG_OPENED_EXISTING_KEY: u32 = 2;
pub const REG_SZ: u32 = 1;
pub const REG_BINARY: u32 = 3;
pub const REG_DWORD: u32 = 4;
pub const REG_MULTI_SZ: u32 = 7;
pub const KeyValueBasicInformation: i32 = 0;
pub const KeyValueFullInformation: i32 = 1;
pub const KeyValuePartialInformation: i32 = 2;

/// Size of a file in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FILE_STANDARD_INFORMATION {
    pub AllocationSize: LARGE_INTEGER,
    pub EndOfFile: LARGE_INTEGER,
    pub NumberOfLinks: u32,
    pub DeletePending: u8,
    pub Directory: u8,
}

/// A value of a registry key without its name; the data follow the header. `DataLength` in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KEY_VALUE_PARTIAL_INFORMATION {
    pub TitleIndex: u32,
    pub Type: u32,
    pub DataLength: u32,
    pub Data: [u8; 1],
}

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwCreateFile(
        FileHandle: *mut HANDLE,
        DesiredAccess: ACCESS_MASK,
        ObjectAttributes: *mut OBJECT_ATTRIBUTES,
        IoStatusBlock: *mut IO_STATUS_BLOCK,
        AllocationSize: *mut LARGE_INTEGER,
        FileAttributes: u32,
        ShareAccess: u32,
        CreateDisposition: u32,
        CreateOptions: u32,
        EaBuffer: *mut c_void,
        EaLength: u32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwReadFile(
        FileHandle: HANDLE,
        Event: HANDLE,
        ApcRoutine: *mut c_void,
        ApcContext: *mut c_void,
        IoStatusBlock: *mut IO_STATUS_BLOCK,
        Buffer: *mut c_void,
        Length: u32,
        ByteOffset: *mut LARGE_INTEGER,
        Key: *mut u32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwWriteFile(
        FileHandle: HANDLE,
        Event: HANDLE,
        ApcRoutine: *mut c_void,
        ApcContext: *mut c_void,
        IoStatusBlock: *mut IO_STATUS_BLOCK,
        Buffer: *mut c_void,
        Length: u32,
        ByteOffset: *mut LARGE_INTEGER,
        Key: *mut u32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwQueryInformationFile(
        FileHandle: HANDLE,
        IoStatusBlock: *mut IO_STATUS_BLOCK,
        FileInformation: *mut c_void,
        Length: u32,
        FileInformationClass: i32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwOpenKey(
        KeyHandle: *mut HANDLE,
        DesiredAccess: ACCESS_MASK,
        ObjectAttributes: *mut OBJECT_ATTRIBUTES,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwCreateKey(
        KeyHandle: *mut HANDLE,
        DesiredAccess: ACCESS_MASK,
        ObjectAttributes: *mut OBJECT_ATTRIBUTES,
        TitleIndex: u32,
        Class: *mut UNICODE_STRING,
        CreateOptions: u32,
        Disposition: *mut u32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwQueryValueKey(
        KeyHandle: HANDLE,
        ValueName: *mut UNICODE_STRING,
        KeyValueInformationClass: i32,
        KeyValueInformation: *mut c_void,
        Length: u32,
        ResultLength: *mut u32,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn ZwSetValueKey(
        KeyHandle: HANDLE,
        ValueName: *mut UNICODE_STRING,
        TitleIndex: u32,
        Type: u32,
        Data: *mut c_void,
        DataSize: u32,
    ) -> NTSTATUS;
}
