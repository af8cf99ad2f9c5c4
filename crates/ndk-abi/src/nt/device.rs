// SPDX-License-Identifier: MIT OR Apache-2.0

//! Driver objects, device objects, symbolic links.

use core::ffi::c_void;

use super::{BOOLEAN, GUID, IRP, KDPC, KEVENT, KSPIN_LOCK, LIST_ENTRY, NTSTATUS, UNICODE_STRING};

/// The I/O manager's object of a driver. `DriverSize` in bytes; `DriverName` is `\Driver\` and the service's name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DRIVER_OBJECT {
    pub Type: i16,
    pub Size: i16,
    pub DeviceObject: *mut DEVICE_OBJECT,
    pub Flags: u32,
    pub DriverStart: *mut c_void,
    pub DriverSize: u32,
    pub DriverSection: *mut c_void,
    pub DriverExtension: *mut DRIVER_EXTENSION,
    pub DriverName: UNICODE_STRING,
    pub HardwareDatabase: *mut UNICODE_STRING,
    pub FastIoDispatch: *mut c_void,
    pub DriverInit: Option<DRIVER_INITIALIZE>,
    pub DriverStartIo: Option<DRIVER_STARTIO>,
    pub DriverUnload: Option<DRIVER_UNLOAD>,
    /// By `IRP_MJ_*`.
    pub MajorFunction: [Option<DRIVER_DISPATCH>; 28],
}

/// Continues a driver object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DRIVER_EXTENSION {
    pub DriverObject: *mut DRIVER_OBJECT,
    pub AddDevice: Option<DRIVER_ADD_DEVICE>,
    pub Count: u32,
    pub ServiceKeyName: UNICODE_STRING,
}

/// The I/O manager's object of a device. The device extension follows it in memory.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct DEVICE_OBJECT {
    pub Type: i16,
    pub Size: u16,
    pub ReferenceCount: i32,
    pub DriverObject: *mut DRIVER_OBJECT,
    pub NextDevice: *mut DEVICE_OBJECT,
    pub AttachedDevice: *mut DEVICE_OBJECT,
    pub CurrentIrp: *mut IRP,
    pub Timer: *mut c_void,
    /// `DO_*`.
    pub Flags: u32,
    pub Characteristics: u32,
    pub Vpb: *mut c_void,
    pub DeviceExtension: *mut c_void,
    /// `FILE_DEVICE_*`.
    pub DeviceType: u32,
    pub StackSize: i8,
    pub Queue: DEVICE_OBJECT_Queue,
    pub AlignmentRequirement: u32,
    pub DeviceQueue: KDEVICE_QUEUE,
    pub Dpc: KDPC,
    pub ActiveThreadCount: u32,
    pub SecurityDescriptor: *mut c_void,
    pub DeviceLock: KEVENT,
    pub SectorSize: u16,
    pub Spare1: u16,
    pub DeviceObjectExtension: *mut c_void,
    pub Reserved: *mut c_void,
}

/// The device's place in a queue of the system, or its wait for a DMA channel.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DEVICE_OBJECT_Queue {
    pub ListEntry: LIST_ENTRY,
    pub _wait: [u64; 9],
}

/// A queue of IRPs that wait for a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KDEVICE_QUEUE {
    pub Type: i16,
    pub Size: i16,
    pub DeviceListHead: LIST_ENTRY,
    pub Lock: KSPIN_LOCK,
    pub Hint: i64,
}

/// A driver's entry point.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type DRIVER_INITIALIZE = unsafe extern "efiapi" fn(
    DriverObject: *mut DRIVER_OBJECT,
    RegistryPath: *mut UNICODE_STRING,
) -> NTSTATUS;

/// The driver leaves memory.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type DRIVER_UNLOAD = unsafe extern "efiapi" fn(DriverObject: *mut DRIVER_OBJECT);

/// A driver is handed a request.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type DRIVER_DISPATCH =
    unsafe extern "efiapi" fn(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP) -> NTSTATUS;

/// A driver is handed the next request of its device's queue.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type DRIVER_STARTIO = unsafe extern "efiapi" fn(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP);

/// A driver is handed a device.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type DRIVER_ADD_DEVICE = unsafe extern "efiapi" fn(
    DriverObject: *mut DRIVER_OBJECT,
    PhysicalDeviceObject: *mut DEVICE_OBJECT,
) -> NTSTATUS;

pub const IO_TYPE_DEVICE: i16 = 3;
pub const IO_TYPE_DRIVER: i16 = 4;
pub const IO_TYPE_FILE: i16 = 5;
pub const IO_TYPE_IRP: i16 = 6;

pub const DO_VERIFY_VOLUME: u32 = 0x2;
pub const DO_BUFFERED_IO: u32 = 0x4;
pub const DO_EXCLUSIVE: u32 = 0x8;
pub const DO_DIRECT_IO: u32 = 0x10;
pub const DO_MAP_IO_BUFFER: u32 = 0x20;
pub const DO_DEVICE_HAS_NAME: u32 = 0x40;
pub const DO_DEVICE_INITIALIZING: u32 = 0x80;
pub const DO_SHUTDOWN_REGISTERED: u32 = 0x800;
pub const DO_BUS_ENUMERATED_DEVICE: u32 = 0x1000;
pub const DO_POWER_PAGABLE: u32 = 0x2000;
pub const DO_POWER_INRUSH: u32 = 0x4000;

pub const FILE_DEVICE_UNKNOWN: u32 = 0x22;
/// The name behind the device's is subject to the device's security descriptor, too.
pub const FILE_DEVICE_SECURE_OPEN: u32 = 0x100;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `<= APC_LEVEL`.
    pub fn IoCreateDevice(
        DriverObject: *mut DRIVER_OBJECT,
        DeviceExtensionSize: u32,
        DeviceName: *mut UNICODE_STRING,
        DeviceType: u32,
        DeviceCharacteristics: u32,
        Exclusive: BOOLEAN,
        DeviceObject: *mut *mut DEVICE_OBJECT,
    ) -> NTSTATUS;
    /// IRQL: `<= APC_LEVEL`.
    pub fn IoDeleteDevice(DeviceObject: *mut DEVICE_OBJECT);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoAttachDeviceToDeviceStack(
        SourceDevice: *mut DEVICE_OBJECT,
        TargetDevice: *mut DEVICE_OBJECT,
    ) -> *mut DEVICE_OBJECT;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn IoDetachDevice(TargetDevice: *mut DEVICE_OBJECT);
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn IoCreateSymbolicLink(
        SymbolicLinkName: *mut UNICODE_STRING,
        DeviceName: *mut UNICODE_STRING,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn IoDeleteSymbolicLink(SymbolicLinkName: *mut UNICODE_STRING) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn IoWMIRegistrationControl(DeviceObject: *mut DEVICE_OBJECT, Action: u32) -> NTSTATUS;
}

/// `IoCreateDevice` with a security descriptor in its text form, and a setup class. Newer systems export it; drivers
/// find it with `MmGetSystemRoutineAddress`, and link a library that does the same with older calls.
///
/// IRQL: `<= APC_LEVEL`.
pub type IO_CREATE_DEVICE_SECURE = unsafe extern "efiapi" fn(
    DriverObject: *mut DRIVER_OBJECT,
    DeviceExtensionSize: u32,
    DeviceName: *mut UNICODE_STRING,
    DeviceType: u32,
    DeviceCharacteristics: u32,
    Exclusive: BOOLEAN,
    DefaultSDDLString: *const UNICODE_STRING,
    DeviceClassGuid: *const GUID,
    DeviceObject: *mut *mut DEVICE_OBJECT,
) -> NTSTATUS;
