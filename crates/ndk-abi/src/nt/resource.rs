// SPDX-License-Identifier: MIT OR Apache-2.0

//! Assigned resources, PCI configuration space, scatter/gather lists.

use core::ffi::c_void;

use super::{KAFFINITY, KIRQL, PHYSICAL_ADDRESS};

/// Kind of a bus.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct INTERFACE_TYPE(pub i32);

impl INTERFACE_TYPE {
    pub const InterfaceTypeUndefined: Self = Self(-1);
    pub const Internal: Self = Self(0);
    pub const Isa: Self = Self(1);
    pub const Eisa: Self = Self(2);
    pub const MicroChannel: Self = Self(3);
    pub const TurboChannel: Self = Self(4);
    pub const PCIBus: Self = Self(5);
    pub const VMEBus: Self = Self(6);
    pub const NuBus: Self = Self(7);
    pub const PCMCIABus: Self = Self(8);
    pub const CBus: Self = Self(9);
    pub const MPIBus: Self = Self(10);
    pub const MPSABus: Self = Self(11);
    pub const ProcessorInternal: Self = Self(12);
    pub const InternalPowerBus: Self = Self(13);
    pub const PNPISABus: Self = Self(14);
    pub const PNPBus: Self = Self(15);
    pub const Vmcs: Self = Self(16);
    pub const ACPIBus: Self = Self(17);
    pub const MaximumInterfaceType: Self = Self(18);
}

/// A device power state.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DEVICE_POWER_STATE(pub i32);

impl DEVICE_POWER_STATE {
    pub const PowerDeviceUnspecified: Self = Self(0);
    pub const PowerDeviceD0: Self = Self(1);
    pub const PowerDeviceD1: Self = Self(2);
    pub const PowerDeviceD2: Self = Self(3);
    pub const PowerDeviceD3: Self = Self(4);
    pub const PowerDeviceMaximum: Self = Self(5);
}

/// A system power state.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SYSTEM_POWER_STATE(pub i32);

impl SYSTEM_POWER_STATE {
    pub const PowerSystemUnspecified: Self = Self(0);
    pub const PowerSystemWorking: Self = Self(1);
    pub const PowerSystemSleeping1: Self = Self(2);
    pub const PowerSystemSleeping2: Self = Self(3);
    pub const PowerSystemSleeping3: Self = Self(4);
    pub const PowerSystemHibernate: Self = Self(5);
    pub const PowerSystemShutdown: Self = Self(6);
    pub const PowerSystemMaximum: Self = Self(7);
}

/// A piece of memory contiguous for the device. Length in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SCATTER_GATHER_ELEMENT {
    pub Address: PHYSICAL_ADDRESS,
    pub Length: u32,
    pub Reserved: usize,
}

/// Pieces of memory for DMA; `Elements` follow the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SCATTER_GATHER_LIST {
    pub NumberOfElements: u32,
    pub Reserved: usize,
    pub Elements: [SCATTER_GATHER_ELEMENT; 0],
}

/// Resources on all buses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CM_RESOURCE_LIST {
    pub Count: u32,
    pub List: [CM_FULL_RESOURCE_DESCRIPTOR; 1],
}

/// Resources on one bus.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CM_FULL_RESOURCE_DESCRIPTOR {
    pub InterfaceType: INTERFACE_TYPE,
    pub BusNumber: u32,
    pub PartialResourceList: CM_PARTIAL_RESOURCE_LIST,
}

/// Resources of a device; variable length, `PartialDescriptors` is the first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_LIST {
    pub Version: u16,
    pub Revision: u16,
    pub Count: u32,
    pub PartialDescriptors: [CM_PARTIAL_RESOURCE_DESCRIPTOR; 1],
}

/// One resource assigned to a device. Packed to 4: read 8-byte members unaligned.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR {
    pub Type: u8,
    pub ShareDisposition: u8,
    pub Flags: u16,
    pub u: CM_PARTIAL_RESOURCE_DESCRIPTOR_u,
}

/// The resource; `Type` says which.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub union CM_PARTIAL_RESOURCE_DESCRIPTOR_u {
    pub Generic: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Generic,
    pub Port: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Port,
    pub Interrupt: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Interrupt,
    pub MessageInterrupt: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt,
    pub Memory: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Memory,
    pub DevicePrivate: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_DevicePrivate,
}

/// A range of addresses.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Generic {
    pub Start: PHYSICAL_ADDRESS,
    pub Length: u32,
}

/// A range of ports.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Port {
    pub Start: PHYSICAL_ADDRESS,
    pub Length: u32,
}

/// A range of memory.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Memory {
    pub Start: PHYSICAL_ADDRESS,
    pub Length: u32,
}

/// A line interrupt.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_Interrupt {
    pub Level: u32,
    pub Vector: u32,
    pub Affinity: KAFFINITY,
}

/// A message interrupt, as the device or as the processor sees it.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub union CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt {
    pub Raw: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt_Raw,
    pub Translated: CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt_Translated,
}

/// A message interrupt as the device sees it.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt_Raw {
    pub Reserved: u16,
    pub MessageCount: u16,
    pub Vector: u32,
    pub Affinity: KAFFINITY,
}

/// A message interrupt as the processor sees it.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_MessageInterrupt_Translated {
    pub Level: u32,
    pub Vector: u32,
    pub Affinity: KAFFINITY,
}

/// Whatever the bus driver likes.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR_u_DevicePrivate {
    pub Data: [u32; 3],
}

/// The first 64 bytes of PCI configuration space.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PCI_COMMON_HEADER {
    pub VendorID: u16,
    pub DeviceID: u16,
    pub Command: u16,
    pub Status: u16,
    pub RevisionID: u8,
    pub ProgIf: u8,
    pub SubClass: u8,
    pub BaseClass: u8,
    pub CacheLineSize: u8,
    pub LatencyTimer: u8,
    pub HeaderType: u8,
    pub BIST: u8,
    pub u: PCI_COMMON_HEADER_u,
}

/// The rest of the header; `HeaderType` says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union PCI_COMMON_HEADER_u {
    pub type0: PCI_HEADER_TYPE_0,
}

/// Header of a device that is no bridge.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PCI_HEADER_TYPE_0 {
    pub BaseAddresses: [u32; 6],
    pub CIS: u32,
    pub SubVendorID: u16,
    pub SubSystemID: u16,
    pub ROMBaseAddress: u32,
    pub CapabilitiesPtr: u8,
    pub Reserved1: [u8; 3],
    pub Reserved2: u32,
    pub InterruptLine: u8,
    pub InterruptPin: u8,
    pub MinimumGrant: u8,
    pub MaximumLatency: u8,
}

/// Head of a capability in configuration space.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PCI_CAPABILITIES_HEADER {
    pub CapabilityID: u8,
    pub Next: u8,
}

pub const CmResourceTypeNull: u8 = 0;
pub const CmResourceTypePort: u8 = 1;
pub const CmResourceTypeInterrupt: u8 = 2;
pub const CmResourceTypeMemory: u8 = 3;
pub const CmResourceTypeDma: u8 = 4;
pub const CmResourceTypeDeviceSpecific: u8 = 5;
pub const CmResourceTypeBusNumber: u8 = 6;
pub const CmResourceTypeMemoryLarge: u8 = 7;
pub const CmResourceTypeMaximum: u8 = 8;
pub const CmResourceTypeConfigData: u8 = 128;
pub const CmResourceTypeNonArbitrated: u8 = 128;
pub const CmResourceTypeDevicePrivate: u8 = 129;
pub const CmResourceTypePcCardConfig: u8 = 130;
pub const CmResourceTypeMfCardConfig: u8 = 131;
pub const CmResourceTypeConnection: u8 = 132;

pub const CM_RESOURCE_INTERRUPT_LEVEL_SENSITIVE: u32 = 0;
pub const CM_RESOURCE_INTERRUPT_LATCHED: u32 = 1;
pub const CM_RESOURCE_INTERRUPT_LEVEL_LATCHED_BITS: u32 = 1;
pub const CM_RESOURCE_INTERRUPT_MESSAGE: u32 = 2;
pub const CM_RESOURCE_INTERRUPT_POLICY_INCLUDED: u32 = 4;
pub const CM_RESOURCE_INTERRUPT_SECONDARY_INTERRUPT: u32 = 0x10;
pub const CM_RESOURCE_INTERRUPT_WAKE_HINT: u32 = 0x20;

pub const CM_RESOURCE_MEMORY_READ_WRITE: u32 = 0;
pub const CM_RESOURCE_MEMORY_READ_ONLY: u32 = 1;
pub const CM_RESOURCE_MEMORY_WRITE_ONLY: u32 = 2;
pub const CM_RESOURCE_MEMORY_WRITEABILITY_MASK: u32 = 3;
pub const CM_RESOURCE_MEMORY_PREFETCHABLE: u32 = 4;
pub const CM_RESOURCE_MEMORY_COMBINEDWRITE: u32 = 8;
pub const CM_RESOURCE_MEMORY_24: u32 = 0x10;
pub const CM_RESOURCE_MEMORY_CACHEABLE: u32 = 0x20;
pub const CM_RESOURCE_MEMORY_WINDOW_DECODE: u32 = 0x40;
pub const CM_RESOURCE_MEMORY_BAR: u32 = 0x80;
pub const CM_RESOURCE_MEMORY_COMPAT_FOR_INACCESSIBLE_RANGE: u32 = 0x100;
pub const CM_RESOURCE_MEMORY_LARGE_40: u32 = 0x200;
pub const CM_RESOURCE_MEMORY_LARGE_48: u32 = 0x400;
pub const CM_RESOURCE_MEMORY_LARGE_64: u32 = 0x800;
pub const CM_RESOURCE_MEMORY_LARGE: u32 = 0xe00;
pub const CM_RESOURCE_MEMORY_LARGE_40_MAXLEN: u64 = 0xffffffff00;
pub const CM_RESOURCE_MEMORY_LARGE_48_MAXLEN: u64 = 0xffffffff0000;
pub const CM_RESOURCE_MEMORY_LARGE_64_MAXLEN: u64 = 0xffffffff00000000;

pub const CM_RESOURCE_PORT_MEMORY: u32 = 0;
pub const CM_RESOURCE_PORT_IO: u32 = 1;
pub const CM_RESOURCE_PORT_10_BIT_DECODE: u32 = 4;
pub const CM_RESOURCE_PORT_12_BIT_DECODE: u32 = 8;
pub const CM_RESOURCE_PORT_16_BIT_DECODE: u32 = 0x10;
pub const CM_RESOURCE_PORT_POSITIVE_DECODE: u32 = 0x20;
pub const CM_RESOURCE_PORT_PASSIVE_DECODE: u32 = 0x40;
pub const CM_RESOURCE_PORT_WINDOW_DECODE: u32 = 0x80;
pub const CM_RESOURCE_PORT_BAR: u32 = 0x100;

pub const PCI_CAPABILITY_ID_POWER_MANAGEMENT: u32 = 1;
pub const PCI_CAPABILITY_ID_AGP: u32 = 2;
pub const PCI_CAPABILITY_ID_VPD: u32 = 3;
pub const PCI_CAPABILITY_ID_SLOT_ID: u32 = 4;
pub const PCI_CAPABILITY_ID_MSI: u32 = 5;
pub const PCI_CAPABILITY_ID_CPCI_HOTSWAP: u32 = 6;
pub const PCI_CAPABILITY_ID_PCIX: u32 = 7;
pub const PCI_CAPABILITY_ID_HYPERTRANSPORT: u32 = 8;
pub const PCI_CAPABILITY_ID_VENDOR_SPECIFIC: u32 = 9;
pub const PCI_CAPABILITY_ID_DEBUG_PORT: u32 = 0xa;
pub const PCI_CAPABILITY_ID_CPCI_RES_CTRL: u32 = 0xb;
pub const PCI_CAPABILITY_ID_SHPC: u32 = 0xc;
pub const PCI_CAPABILITY_ID_P2P_SSID: u32 = 0xd;
pub const PCI_CAPABILITY_ID_AGP_TARGET: u32 = 0xe;
pub const PCI_CAPABILITY_ID_SECURE: u32 = 0xf;
pub const PCI_CAPABILITY_ID_PCI_EXPRESS: u32 = 0x10;
pub const PCI_CAPABILITY_ID_MSIX: u32 = 0x11;
pub const PCI_CAPABILITY_ID_SATA_CONFIG: u32 = 0x12;
pub const PCI_CAPABILITY_ID_ADVANCED_FEATURES: u32 = 0x13;

pub const PCI_ENABLE_IO_SPACE: u32 = 1;
pub const PCI_ENABLE_MEMORY_SPACE: u32 = 2;
pub const PCI_ENABLE_BUS_MASTER: u32 = 4;
pub const PCI_ENABLE_SPECIAL_CYCLES: u32 = 8;
pub const PCI_ENABLE_WRITE_AND_INVALIDATE: u32 = 0x10;
pub const PCI_ENABLE_VGA_COMPATIBLE_PALETTE: u32 = 0x20;
pub const PCI_ENABLE_PARITY: u32 = 0x40;
pub const PCI_ENABLE_WAIT_CYCLE: u32 = 0x80;
pub const PCI_ENABLE_SERR: u32 = 0x100;
pub const PCI_ENABLE_FAST_BACK_TO_BACK: u32 = 0x200;

pub const PCI_STATUS_INTERRUPT_PENDING: u32 = 8;
pub const PCI_STATUS_CAPABILITIES_LIST: u32 = 0x10;
pub const PCI_STATUS_66MHZ_CAPABLE: u32 = 0x20;
pub const PCI_STATUS_UDF_SUPPORTED: u32 = 0x40;
pub const PCI_STATUS_FAST_BACK_TO_BACK: u32 = 0x80;
pub const PCI_STATUS_DATA_PARITY_DETECTED: u32 = 0x100;
pub const PCI_STATUS_DEVSEL: u32 = 0x600;
pub const PCI_STATUS_SIGNALED_TARGET_ABORT: u32 = 0x800;
pub const PCI_STATUS_RECEIVED_TARGET_ABORT: u32 = 0x1000;
pub const PCI_STATUS_RECEIVED_MASTER_ABORT: u32 = 0x2000;
pub const PCI_STATUS_SIGNALED_SYSTEM_ERROR: u32 = 0x4000;
pub const PCI_STATUS_DETECTED_PARITY_ERROR: u32 = 0x8000;

pub const PCI_TYPE_32BIT: u32 = 0;
pub const PCI_TYPE_20BIT: u32 = 2;
pub const PCI_TYPE_64BIT: u32 = 4;

pub const PCI_MAX_FUNCTION: u32 = 8;
pub const PCI_MAX_DEVICES: u32 = 0x20;
pub const PCI_MAX_BRIDGE_NUMBER: u32 = 0xff;

pub const PCI_DISABLE_LEVEL_INTERRUPT: u32 = 0x400;
pub const PCI_INVALID_VENDORID: u32 = 0xffff;

/// Messages of an interrupt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_INTERRUPT_MESSAGE_INFO {
    pub UnifiedIrql: KIRQL,
    pub MessageCount: u32,
    /// `MessageCount` of them.
    pub MessageInfo: [IO_INTERRUPT_MESSAGE_INFO_ENTRY; 1],
}

/// One message of an interrupt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_INTERRUPT_MESSAGE_INFO_ENTRY {
    pub MessageAddress: PHYSICAL_ADDRESS,
    pub TargetProcessorSet: KAFFINITY,
    pub InterruptObject: *mut c_void,
    pub MessageData: u32,
    pub Vector: u32,
    pub Irql: KIRQL,
    pub Mode: i32,
    pub Polarity: i32,
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct DMA_ADAPTER {
    _opaque: [u8; 0],
}
