// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS reports violations: a miniport written for the test violates one rule at a time.

use std::{ffi::c_void, net::IpAddr, sync::Mutex};

use crate::common::device::run_device_with_queue;
use crate::common::scripted::{
    Script, assert_reported, general, header, host, in_initialize, interrupt_with, kept, register,
    simulation, verdict,
};
use device_sim::pci;
use ndis_sim::{
    IpHost as _, Miniport, NdisHost as _, StartError, adapter, bus, config, data_path, event_log, interrupt,
    ndk, netio::imports as netio, runtime, shared_memory,
};
use ndk_abi::{
    ndis::{
        NDIS_CONFIGURATION_OBJECT, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
        NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION,
    },
    ndk::{NDIS_NDK_CAPABILITIES, NDIS_NDK_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1},
    nt::{GROUP_AFFINITY, LARGE_INTEGER},
};
use nt_sim::{
    Irql, current,
    guest::Guest,
    nt::{mdl, pool},
};

fn share(handle: usize) -> (usize, LARGE_INTEGER) {
    let (mut address, mut physical) = (0, LARGE_INTEGER { QuadPart: 0 });
    shared_memory::NdisMAllocateSharedMemory(
        handle,
        4096,
        1,
        Guest::new(&raw mut address),
        Guest::new(&raw mut physical),
    );
    (address, physical)
}

fn registers(handle: usize) -> usize {
    let mut mapped = 0;
    let start = LARGE_INTEGER { QuadPart: pci::VIRTIO_BAR_AT.cast_signed() };
    let len = pci::VIRTIO_BAR_LEN as u32;
    assert_eq!(bus::NdisMMapIoSpace(Guest::new(&raw mut mapped), handle, start, len), NDIS_STATUS_SUCCESS);
    mapped
}

fn net_event(handle: usize, event: NET_PNP_EVENT_CODE) {
    let mut notification = NET_PNP_EVENT_NOTIFICATION::zeroed();
    notification.NetPnPEvent.NetEvent = event;
    ndk::NdisMNetPnPEvent(handle, Guest::new(&raw mut notification));
}
#[test]
fn a_miniport_that_keeps_the_rules_is_left_alone() {
    let everything = |handle| {
        let (address, physical) = share(handle);
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
        let mapped = registers(handle);
        // SAFETY: a window of registers: the access is trapped.
        let status = unsafe { std::ptr::with_exposed_provenance::<u8>(mapped + 0x14).read_volatile() };
        assert_eq!(status, 0, "the device is reset");
        bus::NdisMUnmapIoSpace(handle, mapped, pci::VIRTIO_BAR_LEN as u32);
        let item = runtime::NdisAllocateIoWorkItem(handle);
        runtime::NdisFreeIoWorkItem(item);
        runtime::NdisMSleep(10);
        event_log::NdisWriteErrorLogEntry(handle, 0xc000_0001, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0);
    };
    assert_eq!(verdict(in_initialize(everything)), "no violation");
}

fn of_revision_2(characteristics: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS, minor: u8) {
    characteristics.Header.Revision = 2;
    characteristics.Header.Size = 0x98;
    characteristics.MinorNdisVersion = minor;
}

#[test]
fn registration_is_checked() {
    let registered = |edit: fn(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS)| {
        let mut sim = simulation();
        let host = host(&mut sim);
        (register(&host, Script::default(), edit), sim.verdict().to_string())
    };
    let (_, verdict) = registered(|characteristics| characteristics.PauseHandler = None);
    assert!(verdict.contains("NdisMRegisterMiniportDriver: PauseHandler is missing"), "{verdict}");
    for edit in [
        (|characteristics| characteristics.MinorNdisVersion = 86)
            as fn(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS),
        |characteristics| characteristics.Header.Revision = 1,
        |characteristics| characteristics.Header.Size -= 8,
        |characteristics| characteristics.Header.Type = 0x80,
        // NDIS 6.80 and later have revision 3.
        |characteristics| of_revision_2(characteristics, 80),
        |characteristics| of_revision_2(characteristics, 85),
    ] {
        let (status, verdict) = registered(edit);
        assert!(status.is_some_and(|status| status != NDIS_STATUS_SUCCESS), "{verdict}");
    }
    let (status, verdict) = registered(|characteristics| of_revision_2(characteristics, 79));
    assert_eq!(status, Some(NDIS_STATUS_SUCCESS), "{verdict}");
}

#[test]
fn attributes_are_checked() {
    assert_reported(
        Script { silent: true, ..Script::default() },
        "MiniportInitializeEx succeeded without general attributes",
    );
    let early = |handle| _ = general(handle);
    assert_reported(
        Script { silent: true, ..in_initialize(early) },
        "NdisMSetMiniportAttributes: attributes of type",
    );
    let late = |handle| _ = general(handle);
    assert_reported(
        Script { restart: Some(late), ..Script::default() },
        "NdisMSetMiniportAttributes was called in state Restarting",
    );
}

#[test]
fn objects_kept_beyond_halt_are_reported() {
    assert_reported(
        in_initialize(|handle| _ = share(handle)),
        "MiniportHaltEx returned without releasing: NdisMAllocateSharedMemory",
    );
    assert_reported(
        in_initialize(|handle| _ = registers(handle)),
        "MiniportHaltEx returned without releasing: NdisMMapIoSpace",
    );
    let configuration = |handle| {
        let mut object = NDIS_CONFIGURATION_OBJECT::zeroed();
        object.Header = header(NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, 1, 0x14);
        object.NdisHandle = std::ptr::without_provenance_mut(handle);
        let mut opened = 0;
        config::NdisOpenConfigurationEx(Guest::new(&raw mut object), Guest::new(&raw mut opened));
    };
    assert_reported(
        in_initialize(configuration),
        "MiniportHaltEx returned without releasing: NdisOpenConfigurationEx",
    );
}

#[test]
fn shared_memory_must_be_freed_as_it_was_allocated() {
    let twice = |handle| {
        let (address, physical) = share(handle);
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
    };
    assert_reported(in_initialize(twice), "NdisMFreeSharedMemory");
    let more = |handle| {
        let (address, physical) = share(handle);
        shared_memory::NdisMFreeSharedMemory(handle, 8192, 1, address, physical);
    };
    assert_reported(in_initialize(more), "more than were allocated");
    let part = |handle| {
        let (address, physical) = share(handle);
        let physical = LARGE_INTEGER { QuadPart: physical.QuadPart + 64 };
        shared_memory::NdisMFreeSharedMemory(handle, 64, 1, address + 64, physical);
    };
    assert_reported(in_initialize(part), "which was not allocated");
    let elsewhere = |handle| {
        let (address, physical) = share(handle);
        let physical = LARGE_INTEGER { QuadPart: physical.QuadPart + 4096 };
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
    };
    assert_reported(in_initialize(elsewhere), "its logical address is not");
    let none = |handle| {
        shared_memory::NdisMAllocateSharedMemory(handle, 0, 1, kept(0), kept(LARGE_INTEGER { QuadPart: 0 }));
    };
    assert_reported(in_initialize(none), "NdisMAllocateSharedMemory of 0 bytes");
    let ring = |handle| {
        let (address, physical) = share(handle);
        run_device_with_queue(handle, physical.QuadPart.cast_unsigned());
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
    };
    assert_reported(in_initialize(ring), "which holds a ring of the running device; reset the device first");
    let after = |handle| {
        let (address, physical) = share(handle);
        shared_memory::NdisMFreeSharedMemory(handle, 4096, 1, address, physical);
        assert!(current().host().memory.pfn(address).is_none(), "freed memory has no access");
    };
    assert_eq!(verdict(in_initialize(after)), "no violation");
}

/// The WDK calls what `NdisMAllocateSharedMemory` returns a physical address that the NIC can use: with DMA remapping it
/// is a logical address, and `MmGetPhysicalAddress` returns another one ("NdisMAllocateSharedMemory"; "DMA remapping").
#[test]
fn device_address_of_shared_memory_is_not_its_physical_address() {
    let addresses = |handle| {
        let (address, logical) = share(handle);
        let (logical, physical) =
            (logical.QuadPart.cast_unsigned(), mdl::MmGetPhysicalAddress(address).QuadPart.cast_unsigned());
        assert_ne!(logical, physical);
        let nic = current().host().nics().remove(0);
        assert!(nic.memory().is_mapped(logical, 4096));
        assert!(!nic.memory().is_mapped(physical, 1), "the device reached a physical address");
        shared_memory::NdisMFreeSharedMemory(
            handle,
            4096,
            1,
            address,
            LARGE_INTEGER { QuadPart: logical.cast_signed() },
        );
        assert!(!nic.memory().is_mapped(logical, 1));
    };
    assert_eq!(verdict(in_initialize(addresses)), "no violation");
}

#[test]
fn irql_limits_are_enforced() {
    let high = |handle| {
        let me = current();
        let old = me.raise(Irql::DISPATCH_LEVEL);
        share(handle);
        me.lower(old);
    };
    assert_reported(in_initialize(high), "NdisMAllocateSharedMemory was called at DISPATCH_LEVEL");
    let claim = |handle| data_path::NdisMIndicateReceiveNetBufferLists(handle, Guest::null(), 0, 0, 1);
    assert_reported(
        Script { restart: Some(claim), ..Script::default() },
        "the flags say DISPATCH_LEVEL, but it was called at PASSIVE_LEVEL",
    );
}

/// Queues the DPC of message 1.
fn queue(handle: usize, mut targets: Option<GROUP_AFFINITY>) {
    let registered = interrupt_with(handle, |_| {});
    let targets = targets.as_mut().map_or(Guest::null(), |targets| Guest::new(targets));
    interrupt::NdisMQueueDpcEx(registered, 1, targets, 0);
    interrupt::NdisMDeregisterInterruptEx(registered);
}

#[test]
fn incomplete_interrupt_characteristics_and_invalid_targets_are_reported() {
    let lame = |handle| _ = interrupt_with(handle, |handlers| handlers.DisableInterruptHandler = None);
    assert_reported(in_initialize(lame), "DisableInterruptHandler and EnableInterruptHandler are required");
    let lame = |handle| _ = interrupt_with(handle, |handlers| handlers.EnableMessageInterruptHandler = None);
    assert_reported(
        in_initialize(lame),
        "NdisMRegisterInterruptEx: MsiSupported requires handlers to disable and enable a message",
    );
    assert_eq!(verdict(in_initialize(|handle| queue(handle, Some(ON_CPU_1)))), "no violation");
    assert_reported(in_initialize(|handle| queue(handle, None)), "NdisMQueueDpcEx: TargetProcessors is null");
    let elsewhere = |handle| queue(handle, Some(GROUP_AFFINITY { Group: 1, ..ON_CPU_1 }));
    assert_reported(in_initialize(elsewhere), "NdisMQueueDpcEx for processors 0x2 of group 1");
    let beyond = |handle| {
        let registered = interrupt_with(handle, |_| {});
        interrupt::NdisMQueueDpcEx(registered, 99, kept(ON_CPU_1), 0);
    };
    assert_reported(in_initialize(beyond), "NdisMQueueDpc of message 99 of");
}

const ON_CPU_1: GROUP_AFFINITY = GROUP_AFFINITY { Mask: 2, Group: 0, Reserved: [0; 3] };

#[test]
fn indication_by_an_adapter_that_does_not_run_is_reported() {
    let early = |handle| data_path::NdisMIndicateReceiveNetBufferLists(handle, Guest::null(), 0, 0, 0);
    assert_reported(
        in_initialize(early),
        "NdisMIndicateReceiveNetBufferLists was called in state Initializing",
    );
}

//= R-OIDNDK-11
#[test]
fn net_pnp_event_inside_an_oid_request_is_reported() {
    let violation = |handle| net_event(handle, NET_PNP_EVENT_CODE::NetEventNDKDisable);
    assert_reported(
        Script { oid: Some(violation), ..Script::default() },
        "NdisMNetPnPEvent was called inside MiniportOidRequest",
    );
}

#[test]
fn completion_without_a_request_is_reported() {
    let violation = |handle| adapter::NdisMPauseComplete(handle);
    assert_reported(
        Script { halt: Some(violation), ..Script::default() },
        "NdisMPauseComplete was called in state Paused",
    );
    let violation = |handle| data_path::NdisMSendNetBufferListsComplete(handle, invented_list(), 0);
    assert_reported(
        Script { restart: Some(violation), ..Script::default() },
        "which the miniport does not hold",
    );
}

fn invented_list() -> Guest<NET_BUFFER_LIST> {
    Guest::new(Box::leak(Box::new(NET_BUFFER_LIST::zeroed())))
}

#[test]
fn handle_of_another_kind_is_reported() {
    let violation = |handle| runtime::NdisFreeIoWorkItem(handle);
    assert_reported(in_initialize(violation), "is not a work item");
    assert_reported(in_initialize(|_| _ = share(0x1234)), "is not a miniport adapter handle");
}

#[test]
fn register_access_with_another_width_is_reported() {
    let violation = |handle| {
        let mapped = registers(handle);
        // SAFETY: a window of registers: the access is trapped.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(mapped + 0x14).write_volatile(0) };
    };
    assert_reported(in_initialize(violation), "32-bit access to common configuration 0x14");
}

#[test]
fn adapter_needs_a_driver_and_a_device() {
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(Miniport::start(&host).err(), Some(StartError::NothingToStart));
    assert_eq!(register(&host, Script::default(), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let first = Miniport::start(&host).expect("there is a device");
    assert_eq!(Miniport::start(&host).err(), Some(StartError::NothingToStart));
    first.halt().expect("the host lives");
}

/// Kinds of notifications that [`heard`] received.
static HEARD: Mutex<Vec<i32>> = Mutex::new(Vec::new());

unsafe extern "efiapi" fn heard(
    _context: *mut c_void,
    _row: *mut ndk_abi::netio::MIB_UNICASTIPADDRESS_ROW,
    kind: ndk_abi::netio::MIB_NOTIFICATION_TYPE,
) {
    HEARD.lock().unwrap().push(kind.0);
}

#[test]
fn address_changes_are_notified_until_cancelled() {
    let mut sim = simulation();
    let host = host(&mut sim);
    let address = IpAddr::from([10, 0, 0, 1]);
    let watch = || {
        let mut notification = 0;
        let out = Guest::new(&raw mut notification);
        netio::NotifyUnicastIpAddressChange(0, Some(heard), 0, 1, out);
        notification
    };
    let notification = host.spawn("watch", watch).join().expect("the host lives");
    host.add_address(address, 24);
    let _ = sim.event().wait(std::time::Duration::from_millis(1));
    let cancel = move || netio::CancelMibChangeNotify2(notification);
    assert_eq!(host.spawn("cancel", cancel).join(), Ok(0));
    host.remove_address(address);
    let _ = sim.event().wait(std::time::Duration::from_millis(1));
    assert_eq!(*HEARD.lock().unwrap(), [3, 1], "the initial notification, then the new address");
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn resolving_a_neighbor_in_a_work_item_is_reported() {
    let mut sim = simulation();
    let host = host(&mut sim);
    let resolve = || {
        // SAFETY: numbers and addresses; zero is valid for each.
        let row = unsafe { core::mem::zeroed::<ndk_abi::netio::MIB_IPNET_ROW2>() };
        netio::ResolveIpNetEntry2(kept(row), Guest::null())
    };
    assert!(host.spawn("thread", resolve).join().is_ok_and(|status| status < 0), "the row names no neighbor");
    host.queue_work(move || _ = resolve());
    let _ = sim.event().wait(std::time::Duration::from_millis(1));
    let verdict = sim.verdict().to_string();
    assert!(
        verdict.contains("ResolveIpNetEntry2 in a work item, which waits for the network on a worker thread"),
        "{verdict}"
    );
}

/// Sets NDK attributes whose capabilities are in pool that is changed, or freed, by `afterwards`.
fn set_ndk_capabilities(handle: usize, afterwards: fn(Guest<NDIS_NDK_CAPABILITIES>)) {
    let tag = u32::from_le_bytes(*b"Test");
    let kept = Guest::<NDIS_NDK_CAPABILITIES>::from_address(pool::ExAllocatePool2(0x40, 4096, tag).address());
    let info = Guest::from_address(kept.address() + 1024);
    kept.write(NDIS_NDK_CAPABILITIES {
        Header: header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_NDK_CAPABILITIES_REVISION_1,
            NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
        ),
        NdkInfo: info.as_ptr(),
        // SAFETY: numbers and a pointer; zero is valid for each.
        ..unsafe { core::mem::zeroed() }
    });
    let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
        Header: header(
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
            NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
            NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        ),
        Enabled: 0,
        NdkCapabilities: kept.as_ptr(),
    };
    let set = adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast());
    assert_eq!(set, NDIS_STATUS_SUCCESS);
    afterwards(kept);
}

//= R-INFO-11
#[test]
fn ndk_capabilities_have_to_stay_as_they_are_until_the_adapter_is_halted() {
    assert_reported(
        in_initialize(|handle| {
            set_ndk_capabilities(handle, |kept| {
                let mut changed = kept.read();
                changed.MaxQpCount += 1;
                kept.write(changed);
            });
        }),
        "the NDK capabilities, or the adapter information that they point to, were changed",
    );
    assert_reported(
        in_initialize(|handle| {
            set_ndk_capabilities(handle, |kept| pool::ExFreePool(kept.cast()));
        }),
        "DRIVER_PAGE_FAULT_IN_FREED_SPECIAL_POOL",
    );
}
