// SPDX-License-Identifier: MIT OR Apache-2.0

//! Basic types of the NT kernel: scalars, strings, lists, processors.

use core::ffi::c_void;

/// Kernel or user.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MODE(pub i32);

impl MODE {
    pub const KernelMode: Self = Self(0);
    pub const UserMode: Self = Self(1);
    pub const MaximumMode: Self = Self(2);
}

/// A 64-bit integer; the header's union, seen as its 64-bit member.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LARGE_INTEGER {
    pub QuadPart: i64,
}

/// A 64-bit integer; the header's union, seen as its 64-bit member.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ULARGE_INTEGER {
    pub QuadPart: u64,
}

/// A globally unique identifier, its first three members in host byte order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GUID {
    pub Data1: u32,
    pub Data2: u16,
    pub Data3: u16,
    pub Data4: [u8; 8],
}

impl GUID {
    /// The identifier whose text form, without its hyphens, is `value` in hexadecimal.
    #[must_use]
    pub const fn from_u128(value: u128) -> Self {
        Self {
            Data1: (value >> 96) as u32,
            Data2: (value >> 80) as u16,
            Data3: (value >> 64) as u16,
            Data4: (value as u64).to_be_bytes(),
        }
    }

    /// Undoes [`from_u128`](Self::from_u128).
    #[must_use]
    pub const fn to_u128(&self) -> u128 {
        (self.Data1 as u128) << 96
            | (self.Data2 as u128) << 80
            | (self.Data3 as u128) << 64
            | u64::from_be_bytes(self.Data4) as u128
    }
}

/// A counted UTF-16 string. Lengths in bytes; no terminator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UNICODE_STRING {
    pub Length: u16,
    pub MaximumLength: u16,
    pub Buffer: *mut u16,
}

/// A counted 8-bit string. Lengths in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct STRING {
    pub Length: u16,
    pub MaximumLength: u16,
    pub Buffer: *mut i8,
}

/// A link of a doubly linked list, or its head.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LIST_ENTRY {
    pub Flink: *mut LIST_ENTRY,
    pub Blink: *mut LIST_ENTRY,
}

/// A link of a singly linked list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SINGLE_LIST_ENTRY {
    pub Next: *mut SINGLE_LIST_ENTRY,
}

/// A link of an interlocked singly linked list.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct SLIST_ENTRY {
    pub Next: *mut SLIST_ENTRY,
}

/// Head of an interlocked singly linked list.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct SLIST_HEADER {
    _opaque: [u64; 2],
}

/// A processor: its group, and its number in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PROCESSOR_NUMBER {
    pub Group: u16,
    pub Number: u8,
    pub Reserved: u8,
}

/// A set of processors of one group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GROUP_AFFINITY {
    pub Mask: KAFFINITY,
    pub Group: u16,
    pub Reserved: [u16; 3],
}

/// Name and attributes of an object to open or create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OBJECT_ATTRIBUTES {
    pub Length: u32,
    pub RootDirectory: HANDLE,
    pub ObjectName: *mut UNICODE_STRING,
    pub Attributes: u32,
    pub SecurityDescriptor: *mut c_void,
    pub SecurityQualityOfService: *mut c_void,
}

/// A thread and its process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CLIENT_ID {
    pub UniqueProcess: HANDLE,
    pub UniqueThread: HANDLE,
}

/// Version of the system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RTL_OSVERSIONINFOW {
    pub dwOSVersionInfoSize: u32,
    pub dwMajorVersion: u32,
    pub dwMinorVersion: u32,
    pub dwBuildNumber: u32,
    pub dwPlatformId: u32,
    pub szCSDVersion: [u16; 128],
}

/// Status of a kernel call; negative values are errors.
pub type NTSTATUS = i32;
/// 0 or 1.
pub type BOOLEAN = u8;
/// Interrupt request level.
pub type KIRQL = u8;
/// Scheduling priority.
pub type KPRIORITY = i32;
/// A [`MODE`] in a byte.
pub type KPROCESSOR_MODE = i8;
/// A spin lock.
pub type KSPIN_LOCK = usize;
/// A set of processors of one group.
pub type KAFFINITY = usize;
/// A page frame number.
pub type PFN_NUMBER = usize;
/// A handle.
pub type HANDLE = *mut c_void;
/// An address on the memory bus.
pub type PHYSICAL_ADDRESS = LARGE_INTEGER;
/// `POOL_FLAG_*`.
pub type POOL_FLAGS = u64;
/// Access rights.
pub type ACCESS_MASK = u32;
/// Registration of an ETW provider.
pub type REGHANDLE = u64;

/// Whether `status` means success or information, as the kernel's `NT_SUCCESS` does.
#[must_use]
pub const fn NT_SUCCESS(status: NTSTATUS) -> bool {
    status >= 0
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct EPROCESS {
    _opaque: [u8; 0],
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct KTHREAD {
    _opaque: [u8; 0],
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct ETHREAD {
    _opaque: [u8; 0],
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct OBJECT_TYPE {
    _opaque: [u8; 0],
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct XSTATE_SAVE {
    _opaque: [u8; 0],
}
