// SPDX-License-Identifier: MIT OR Apache-2.0

//! I/O requests and file objects.

use core::ffi::c_void;

use super::{
    BOOLEAN, DEVICE_OBJECT, ETHREAD, KEVENT, KIRQL, KPROCESSOR_MODE, LARGE_INTEGER, LIST_ENTRY, MDL,
    NTSTATUS, UNICODE_STRING,
};

/// Outcome of an I/O request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STATUS_BLOCK {
    pub Anonymous: IO_STATUS_BLOCK_Anonymous,
    pub Information: usize,
}

/// Status, or a pointer of the I/O manager.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IO_STATUS_BLOCK_Anonymous {
    pub Status: NTSTATUS,
    pub Pointer: *mut c_void,
}

/// An asynchronous procedure call object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KAPC {
    _opaque: [u64; 11],
}

/// An I/O request; its stack locations follow in memory. `Size` in bytes, with them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IRP {
    pub Type: i16,
    pub Size: u16,
    pub MdlAddress: *mut MDL,
    pub Flags: u32,
    pub AssociatedIrp: IRP_AssociatedIrp,
    pub ThreadListEntry: LIST_ENTRY,
    pub IoStatus: IO_STATUS_BLOCK,
    pub RequestorMode: KPROCESSOR_MODE,
    pub PendingReturned: BOOLEAN,
    pub StackCount: i8,
    pub CurrentLocation: i8,
    pub Cancel: BOOLEAN,
    pub CancelIrql: KIRQL,
    pub ApcEnvironment: i8,
    pub AllocationFlags: u8,
    pub UserIosb: *mut IO_STATUS_BLOCK,
    pub UserEvent: *mut KEVENT,
    pub Overlay: IRP_Overlay,
    pub CancelRoutine: Option<DRIVER_CANCEL>,
    pub UserBuffer: *mut c_void,
    pub Tail: IRP_Tail,
}

/// The buffer of buffered I/O.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IRP_AssociatedIrp {
    pub MasterIrp: *mut IRP,
    pub IrpCount: i32,
    pub SystemBuffer: *mut c_void,
}

/// Parameters of the completion by the I/O manager.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IRP_Overlay {
    pub AsynchronousParameters: IRP_Overlay_AsynchronousParameters,
    pub AllocationSize: LARGE_INTEGER,
}

/// The requestor's APC.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IRP_Overlay_AsynchronousParameters {
    pub UserApcRoutine: *mut c_void,
    pub UserApcContext: *mut c_void,
}

/// The owner's members while the request runs, the system's after it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IRP_Tail {
    pub Overlay: IRP_Tail_Overlay,
    pub Apc: KAPC,
    pub CompletionKey: *mut c_void,
}

/// Members of a request that runs. `DriverContext` belongs to the driver that has the request, and `ListEntry`, too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IRP_Tail_Overlay {
    pub DriverContext: [*mut c_void; 4],
    pub Thread: *mut ETHREAD,
    pub AuxiliaryBuffer: *mut i8,
    pub ListEntry: LIST_ENTRY,
    pub CurrentStackLocation: *mut IO_STACK_LOCATION,
    pub OriginalFileObject: *mut FILE_OBJECT,
}

/// The request of an IRP to one driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION {
    /// `IRP_MJ_*`.
    pub MajorFunction: u8,
    pub MinorFunction: u8,
    pub Flags: u8,
    /// `SL_*`.
    pub Control: u8,
    pub Parameters: IO_STACK_LOCATION_Parameters,
    pub DeviceObject: *mut DEVICE_OBJECT,
    pub FileObject: *mut FILE_OBJECT,
    pub CompletionRoutine: Option<IO_COMPLETION_ROUTINE>,
    pub Context: *mut c_void,
}

/// Parameters, by major function.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IO_STACK_LOCATION_Parameters {
    pub Create: IO_STACK_LOCATION_Parameters_Create,
    pub Read: IO_STACK_LOCATION_Parameters_Read,
    pub Write: IO_STACK_LOCATION_Parameters_Write,
    pub DeviceIoControl: IO_STACK_LOCATION_Parameters_DeviceIoControl,
    pub Others: IO_STACK_LOCATION_Parameters_Others,
}

/// `IRP_MJ_CREATE`. The upper byte of `Options` is the disposition.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION_Parameters_Create {
    pub SecurityContext: *mut IO_SECURITY_CONTEXT,
    pub Options: u32,
    _align: u32,
    pub FileAttributes: u16,
    pub ShareAccess: u16,
    _align2: u32,
    pub EaLength: u32,
}

/// `IRP_MJ_READ`. Lengths and offsets in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION_Parameters_Read {
    pub Length: u32,
    _align: u32,
    pub Key: u32,
    pub Flags: u32,
    pub ByteOffset: LARGE_INTEGER,
}

/// `IRP_MJ_WRITE`. Lengths and offsets in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION_Parameters_Write {
    pub Length: u32,
    _align: u32,
    pub Key: u32,
    pub Flags: u32,
    pub ByteOffset: LARGE_INTEGER,
}

/// `IRP_MJ_DEVICE_CONTROL`. Lengths in bytes; the lowest two bits of the code are the `METHOD_*`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION_Parameters_DeviceIoControl {
    pub OutputBufferLength: u32,
    _align: u32,
    pub InputBufferLength: u32,
    _align2: u32,
    pub IoControlCode: u32,
    _align3: u32,
    pub Type3InputBuffer: *mut c_void,
}

/// Requests of other kinds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STACK_LOCATION_Parameters_Others {
    pub Argument1: *mut c_void,
    pub Argument2: *mut c_void,
    pub Argument3: *mut c_void,
    pub Argument4: *mut c_void,
}

/// Who opens a file, and for what.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_SECURITY_CONTEXT {
    pub SecurityQos: *mut c_void,
    pub AccessState: *mut c_void,
    pub DesiredAccess: u32,
    pub FullCreateOptions: u32,
}

/// An open file or device. `FsContext` and `FsContext2` belong to the driver; `FileName` is what followed the
/// device's name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FILE_OBJECT {
    pub Type: i16,
    pub Size: i16,
    pub DeviceObject: *mut DEVICE_OBJECT,
    pub Vpb: *mut c_void,
    pub FsContext: *mut c_void,
    pub FsContext2: *mut c_void,
    pub SectionObjectPointer: *mut c_void,
    pub PrivateCacheMap: *mut c_void,
    pub FinalStatus: NTSTATUS,
    pub RelatedFileObject: *mut FILE_OBJECT,
    pub LockOperation: BOOLEAN,
    pub DeletePending: BOOLEAN,
    pub ReadAccess: BOOLEAN,
    pub WriteAccess: BOOLEAN,
    pub DeleteAccess: BOOLEAN,
    pub SharedRead: BOOLEAN,
    pub SharedWrite: BOOLEAN,
    pub SharedDelete: BOOLEAN,
    pub Flags: u32,
    pub FileName: UNICODE_STRING,
    pub CurrentByteOffset: LARGE_INTEGER,
    pub Waiters: u32,
    pub Busy: u32,
    pub LastLock: *mut c_void,
    pub Lock: KEVENT,
    pub Event: KEVENT,
    pub CompletionContext: *mut c_void,
    pub IrpListLock: usize,
    pub IrpList: LIST_ENTRY,
    pub FileObjectExtension: *mut c_void,
}

/// A request is to be completed early. The cancel spin lock is held; `IoReleaseCancelSpinLock(Irp->CancelIrql)` is the
/// routine's first duty.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type DRIVER_CANCEL = unsafe extern "efiapi" fn(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP);

/// A lower driver has completed a request.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type IO_COMPLETION_ROUTINE = unsafe extern "efiapi" fn(
    DeviceObject: *mut DEVICE_OBJECT,
    Irp: *mut IRP,
    Context: *mut c_void,
) -> NTSTATUS;

pub const IRP_MJ_CREATE: u8 = 0x00;
pub const IRP_MJ_CREATE_NAMED_PIPE: u8 = 0x01;
pub const IRP_MJ_CLOSE: u8 = 0x02;
pub const IRP_MJ_READ: u8 = 0x03;
pub const IRP_MJ_WRITE: u8 = 0x04;
pub const IRP_MJ_QUERY_INFORMATION: u8 = 0x05;
pub const IRP_MJ_SET_INFORMATION: u8 = 0x06;
pub const IRP_MJ_QUERY_EA: u8 = 0x07;
pub const IRP_MJ_SET_EA: u8 = 0x08;
pub const IRP_MJ_FLUSH_BUFFERS: u8 = 0x09;
pub const IRP_MJ_QUERY_VOLUME_INFORMATION: u8 = 0x0a;
pub const IRP_MJ_SET_VOLUME_INFORMATION: u8 = 0x0b;
pub const IRP_MJ_DIRECTORY_CONTROL: u8 = 0x0c;
pub const IRP_MJ_FILE_SYSTEM_CONTROL: u8 = 0x0d;
pub const IRP_MJ_DEVICE_CONTROL: u8 = 0x0e;
pub const IRP_MJ_INTERNAL_DEVICE_CONTROL: u8 = 0x0f;
pub const IRP_MJ_SHUTDOWN: u8 = 0x10;
pub const IRP_MJ_LOCK_CONTROL: u8 = 0x11;
pub const IRP_MJ_CLEANUP: u8 = 0x12;
pub const IRP_MJ_CREATE_MAILSLOT: u8 = 0x13;
pub const IRP_MJ_QUERY_SECURITY: u8 = 0x14;
pub const IRP_MJ_SET_SECURITY: u8 = 0x15;
pub const IRP_MJ_POWER: u8 = 0x16;
pub const IRP_MJ_SYSTEM_CONTROL: u8 = 0x17;
pub const IRP_MJ_DEVICE_CHANGE: u8 = 0x18;
pub const IRP_MJ_QUERY_QUOTA: u8 = 0x19;
pub const IRP_MJ_SET_QUOTA: u8 = 0x1a;
pub const IRP_MJ_PNP: u8 = 0x1b;
pub const IRP_MJ_MAXIMUM_FUNCTION: u8 = 0x1b;

/// `IoMarkIrpPending` sets it in `Control`.
pub const SL_PENDING_RETURNED: u8 = 0x01;
pub const SL_INVOKE_ON_CANCEL: u8 = 0x20;
pub const SL_INVOKE_ON_SUCCESS: u8 = 0x40;
pub const SL_INVOKE_ON_ERROR: u8 = 0x80;

pub const IRP_BUFFERED_IO: u32 = 0x10;
pub const IRP_DEALLOCATE_BUFFER: u32 = 0x20;
pub const IRP_INPUT_OPERATION: u32 = 0x40;
pub const IRP_SYNCHRONOUS_API: u32 = 0x4;
pub const IRP_CREATE_OPERATION: u32 = 0x80;
pub const IRP_CLOSE_OPERATION: u32 = 0x400;

pub const METHOD_BUFFERED: u32 = 0;
pub const METHOD_IN_DIRECT: u32 = 1;
pub const METHOD_OUT_DIRECT: u32 = 2;
pub const METHOD_NEITHER: u32 = 3;

pub const FILE_ANY_ACCESS: u32 = 0;
pub const FILE_READ_ACCESS: u32 = 1;
pub const FILE_WRITE_ACCESS: u32 = 2;

pub const FO_SYNCHRONOUS_IO: u32 = 0x2;
pub const FO_CLEANUP_COMPLETE: u32 = 0x4000;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoAllocateIrp(StackSize: i8, ChargeQuota: BOOLEAN) -> *mut IRP;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoFreeIrp(Irp: *mut IRP);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IofCallDriver(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP) -> NTSTATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IofCompleteRequest(Irp: *mut IRP, PriorityBoost: i8);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoCancelIrp(Irp: *mut IRP) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoAcquireCancelSpinLock(Irql: *mut KIRQL);
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn IoReleaseCancelSpinLock(Irql: KIRQL);
}
