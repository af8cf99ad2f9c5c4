// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several adapters on a host: each has an interface, addresses, keywords and objects of its own.

use std::{
    ffi::c_void,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use crate::common::scripted::{Script, host, register, simulation};
use device_sim::NicOptions;
use ndis_sim::{
    IpHost as _, Keyword, Miniport, NdisHost as _, StartError, config, event_log,
    netio::{identifiers, imports as netio},
    runtime,
};
use ndk_abi::{
    ndis::{
        NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER, NDIS_HANDLE,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
        NDIS_PARAMETER_TYPE, NDIS_STATUS_SUCCESS,
    },
    netio::{
        ADDRESS_FAMILY, AF_INET, AF_INET6, AF_UNSPEC, MIB_IPINTERFACE_ROW, MIB_UNICASTIPADDRESS_ROW, NET_LUID,
    },
    nt::{
        DRIVER_OBJECT, GUID, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_FOUND, STATUS_SUCCESS,
        UNICODE_STRING,
    },
};
use nt_sim::{Host, Sim, guest::Guest};

const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2))];

/// A host with two adapters of the scripted miniport, each with one of [`ADDRESSES`].
fn two(sim: &mut Sim, script: Script) -> (Arc<Host>, [Miniport; 2]) {
    let host = host(sim);
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 2]));
    for (nic, address) in host.nics().iter().zip(ADDRESSES) {
        host.add_address_on(nic, address, 24);
    }
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let adapters = [0, 1].map(|_| Miniport::start(&host).expect("there is a NIC"));
    (host, adapters)
}

/// Runs `body` on a thread of the host.
fn on<T: Send + 'static>(host: &Arc<Host>, body: impl FnOnce() -> T + Send + 'static) -> T {
    host.spawn("caller", body).join().expect("the host lives")
}

#[test]
fn adapters_have_interfaces_of_their_own() {
    let mut sim = simulation();
    let (host, [first, second]) = two(&mut sim, Script::default());
    let interfaces = [first.adapter().interface.clone(), second.adapter().interface.clone()];
    assert_eq!(interfaces.each_ref().map(|interface| interface.index()), [4, 5]);
    assert_eq!(interfaces.each_ref().map(|interface| interface.alias.clone()), ["Ethernet", "Ethernet 2"]);
    assert_ne!(interfaces[0].luid, interfaces[1].luid);
    assert_ne!(interfaces[0].guid, interfaces[1].guid);
    second.halt().expect("the host lives");
    let nic = host.nics()[1].clone();
    host.set_interface_index(&nic, 12);
    let second = Miniport::start_on(&host, &nic).expect("the NIC is free");
    assert_eq!(second.adapter().if_index, 12);
    assert_eq!(second.adapter().interface.luid, interfaces[1].luid, "the interface remains");
    assert_eq!(Miniport::start_on(&host, &nic).err(), Some(StartError::NothingToStart), "it is in use");
    for miniport in [first, second] {
        miniport.halt().expect("the host lives");
    }
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn identifiers_of_interfaces_are_converted() {
    let mut sim = simulation();
    let (host, adapters) = two(&mut sim, Script::default());
    let expected = adapters.map(|miniport| miniport.adapter().interface.clone());
    on(&host, move || {
        for interface in expected {
            let mut luid = NET_LUID { Value: 0 };
            let to = Guest::new(&raw mut luid);
            assert_eq!(identifiers::ConvertInterfaceIndexToLuid(interface.index(), to), STATUS_SUCCESS);
            assert_eq!(luid.Value, interface.luid);
            let mut index = 0;
            let to_index = Guest::new(&raw mut index);
            assert_eq!(identifiers::ConvertInterfaceLuidToIndex(to, to_index), STATUS_SUCCESS);
            assert_eq!(index, interface.index());
            let mut guid = GUID::zeroed();
            let to_guid = Guest::new(&raw mut guid);
            assert_eq!(identifiers::ConvertInterfaceLuidToGuid(to, to_guid), STATUS_SUCCESS);
            let mut back = NET_LUID { Value: 0 };
            let to_back = Guest::new(&raw mut back);
            assert_eq!(identifiers::ConvertInterfaceGuidToLuid(to_guid, to_back), STATUS_SUCCESS);
            assert_eq!(back, luid);
            let mut alias = [0_u16; 257];
            let to_alias = Guest::new(alias.as_mut_ptr());
            let needed = interface.alias.len() + 1;
            let convert = |length| identifiers::ConvertInterfaceLuidToAlias(to, to_alias, length);
            assert_eq!(convert(needed - 1), STATUS_NO_MEMORY);
            assert_eq!(alias[0], 0, "nothing was written");
            assert_eq!(convert(needed), STATUS_SUCCESS);
            assert_eq!(String::from_utf16_lossy(&alias[..needed - 1]), interface.alias);
            assert_eq!(alias[needed - 1], 0);
        }
    });
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

/// Null pointers and identifiers that do not exist: the statuses that the functions' pages name. A LUID or index that
/// was not found is zeroed, as on Windows.
#[test]
fn identifiers_that_do_not_exist_are_invalid_parameters() {
    let mut sim = simulation();
    let (host, _adapters) = two(&mut sim, Script::default());
    on(&host, || {
        let mut luid = NET_LUID { Value: u64::MAX };
        let to = Guest::new(&raw mut luid);
        let mut index = u32::MAX;
        let to_index = Guest::new(&raw mut index);
        let mut guid = GUID::from_u128(1);
        let to_guid = Guest::new(&raw mut guid);
        let mut alias = [1_u16; 257];
        let to_alias = Guest::new(alias.as_mut_ptr());
        let statuses = [
            identifiers::ConvertInterfaceIndexToLuid(4, Guest::null()),
            identifiers::ConvertInterfaceIndexToLuid(0, to),
            identifiers::ConvertInterfaceIndexToLuid(99, to),
            identifiers::ConvertInterfaceLuidToIndex(Guest::null(), to_index),
            identifiers::ConvertInterfaceLuidToIndex(to, Guest::null()),
            identifiers::ConvertInterfaceLuidToIndex(to, to_index),
            identifiers::ConvertInterfaceLuidToGuid(to, to_guid),
            identifiers::ConvertInterfaceGuidToLuid(to_guid, to),
            identifiers::ConvertInterfaceLuidToAlias(to, to_alias, 257),
            identifiers::ConvertInterfaceLuidToAlias(to, Guest::null(), 257),
        ];
        assert_eq!(statuses, [STATUS_INVALID_PARAMETER; 10]);
        assert_eq!((luid.Value, index, guid.to_u128(), alias[0]), (0, 0, 1, 1));
    });
}

/// Interface index and last byte of the addresses in the system's table.
fn table(family: ADDRESS_FAMILY) -> Result<Vec<(u32, u8)>, i32> {
    let mut table = 0_usize;
    let status = netio::GetUnicastIpAddressTable(family, Guest::new(&raw mut table));
    if status != STATUS_SUCCESS {
        return Err(status);
    }
    let block = Guest::<u8>::from_address(table);
    let first = size_of::<u32>().next_multiple_of(align_of::<MIB_UNICASTIPADDRESS_ROW>());
    let rows = (0..block.cast::<u32>().read() as usize).map(|index| {
        let row = block.field::<MIB_UNICASTIPADDRESS_ROW>(first).add(index).read();
        // SAFETY: an address of IPv4, as the test added it.
        let address = unsafe { row.Address.Ipv4.sin_addr.S_un.S_addr };
        (row.InterfaceIndex, address.to_ne_bytes()[3])
    });
    let rows = rows.collect();
    netio::FreeMibTable(block);
    Ok(rows)
}

#[test]
fn addresses_belong_to_an_interface() {
    let mut sim = simulation();
    let (host, _adapters) = two(&mut sim, Script::default());
    assert_eq!(on(&host, || table(AF_INET)), Ok(vec![(4, 1), (5, 2)]));
    assert_eq!(on(&host, || table(AF_UNSPEC)), Ok(vec![(4, 1), (5, 2)]));
    assert_eq!(on(&host, || table(AF_INET6)), Err(STATUS_NOT_FOUND), "no address of this family");
    assert_eq!(on(&host, || table(3)), Err(STATUS_INVALID_PARAMETER), "no such family");
    on(&host, || {
        let none = Guest::null();
        assert_eq!(netio::GetUnicastIpAddressTable(AF_INET, none), STATUS_INVALID_PARAMETER);
        let entry = |index| {
            let mut row = MIB_UNICASTIPADDRESS_ROW::zeroed();
            row.Address.Ipv4.sin_family = AF_INET;
            row.Address.Ipv4.sin_addr.S_un.S_addr = u32::from_ne_bytes([10, 0, 0, 2]);
            row.InterfaceIndex = index;
            netio::GetUnicastIpAddressEntry(Guest::new(&raw mut row))
        };
        let statuses = [5, 4, 99, 0].map(entry);
        let expected = [STATUS_SUCCESS, STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_INVALID_PARAMETER];
        assert_eq!(statuses, expected);
        let interface = |family, index| {
            let mut row = MIB_IPINTERFACE_ROW::zeroed();
            (row.Family, row.InterfaceIndex) = (family, index);
            netio::GetIpInterfaceEntry(Guest::new(&raw mut row))
        };
        assert_eq!(interface(AF_INET, 5), STATUS_SUCCESS);
        assert_eq!(interface(AF_UNSPEC, 5), STATUS_INVALID_PARAMETER);
        assert_eq!(interface(AF_INET, 0), STATUS_INVALID_PARAMETER);
        assert_eq!(interface(AF_INET, 99), STATUS_NOT_FOUND);
    });
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

fn configuration(handle: usize) -> usize {
    let mut object = NDIS_CONFIGURATION_OBJECT::zeroed();
    let kind = NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT;
    object.Header = NDIS_OBJECT_HEADER { Type: kind, Revision: 1, Size: 0 };
    object.NdisHandle = std::ptr::without_provenance_mut(handle);
    let mut opened = 0;
    config::NdisOpenConfigurationEx(Guest::new(&raw mut object), Guest::new(&raw mut opened));
    opened
}

/// The number that a keyword has in the registry key of an adapter.
fn number(handle: usize, keyword: &str) -> Option<u32> {
    let opened = configuration(handle);
    let mut text: Vec<u16> = keyword.encode_utf16().collect();
    let length = (text.len() * 2) as u16;
    let mut name = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: text.as_mut_ptr() };
    let (mut status, mut value) = (0, std::ptr::null_mut::<NDIS_CONFIGURATION_PARAMETER>());
    config::NdisReadConfiguration(
        Guest::new(&raw mut status),
        Guest::new(&raw mut value),
        opened,
        Guest::new(&raw mut name),
        NDIS_PARAMETER_TYPE::NdisParameterInteger,
    );
    // SAFETY: the member of the type that was requested.
    let found = (status == 0).then(|| unsafe { Guest::new(value).read().ParameterData.IntegerData });
    config::NdisCloseConfiguration(opened);
    found
}

#[test]
fn adapters_have_keywords_and_event_log_entries_of_their_own() {
    static READ: Mutex<Vec<Option<u32>>> = Mutex::new(Vec::new());
    let initialize = |handle| {
        READ.lock().unwrap().extend([number(handle, "*NetworkDirect"), number(handle, "Shared")]);
        event_log::NdisWriteErrorLogEntry(handle, 0xc000_0001, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    };
    let mut sim = simulation();
    let host = host(&mut sim);
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 2]));
    host.set_keyword("Shared", 7);
    host.interface(&host.nics()[1]).set_keyword("*NetworkDirect", 1);
    let script = Script { initialize: Some(initialize), ..Script::default() };
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    for _ in 0..2 {
        Miniport::start(&host).expect("there is a NIC");
    }
    assert_eq!(*READ.lock().unwrap(), [None, Some(7), Some(1), Some(7)]);
    assert_eq!(host.keyword_of(&host.nics()[1], "*networkdirect"), Some(Keyword::Number(1)));
    let log: Vec<_> = host.event_log().iter().map(|entry| entry.interface).collect();
    assert_eq!(log, [4, 5]);
}

/// The work item that the second adapter keeps.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

#[test]
fn objects_are_released_before_their_adapter_is_halted() {
    // Each adapter allocates a work item; the second one keeps it.
    let allocate = |handle| KEPT.lock().unwrap().push(runtime::NdisAllocateIoWorkItem(handle));
    let free = |_| {
        let mut kept = KEPT.lock().unwrap();
        if kept.len() == 2 {
            runtime::NdisFreeIoWorkItem(kept.remove(0));
        }
    };
    let mut sim = simulation();
    let script = Script { initialize: Some(allocate), halt: Some(free), ..Script::default() };
    let (_host, [first, second]) = two(&mut sim, script);
    first.halt().expect("the host lives");
    assert!(sim.verdict().is_clean(), "the second adapter may hold its object: {}", sim.verdict());
    let _ = second.halt();
    let expected = "MiniportHaltEx returned without releasing: NdisAllocateIoWorkItem";
    assert!(sim.verdict().to_string().contains(expected), "{}", sim.verdict());
}

#[test]
fn miniport_drivers_stand_side_by_side() {
    let mut sim = simulation();
    let host = host(&mut sim);
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 2]));
    for _ in 0..2 {
        assert_eq!(register(&host, Script::default(), |_| {}), Some(NDIS_STATUS_SUCCESS));
    }
    let [left, right] = [0, 1].map(|index| {
        let object = host.miniport_drivers()[index];
        Miniport::start_with(&host, &host.nics()[index], object).expect("the NIC is free")
    });
    assert!(!Arc::ptr_eq(&left.adapter().driver, &right.adapter().driver));
    let handle = left.adapter().driver.handle;
    left.halt().expect("the host lives");
    // The first driver may deregister while the second has an adapter.
    on(&host, move || ndis_sim::registration::NdisMDeregisterMiniportDriver(handle));
    assert_eq!(host.miniport_drivers().len(), 1);
    right.pause().expect("the host lives");
    let handle = right.adapter().driver.handle;
    let early = move || ndis_sim::registration::NdisMDeregisterMiniportDriver(handle);
    let _ = host.spawn("unload", early).join();
    let verdict = sim.verdict().to_string();
    assert!(
        verdict.contains("NdisMDeregisterMiniportDriver was called before all adapters were halted"),
        "{verdict}"
    );
}

/// Handle of the driver that queues a work item while it unloads, and whether the item's routine has ended.
static UNLOADING: AtomicUsize = AtomicUsize::new(0);
static ROUTINE_ENDED: AtomicBool = AtomicBool::new(false);

unsafe extern "efiapi" fn slow_routine(_context: *mut c_void, item: NDIS_HANDLE) {
    runtime::NdisFreeIoWorkItem(item.addr());
    runtime::NdisMSleep(1000);
    ROUTINE_ENDED.store(true, SeqCst);
}

unsafe extern "efiapi" fn unload_with_a_work_item(_object: *mut DRIVER_OBJECT) {
    let driver = UNLOADING.load(SeqCst);
    let item = runtime::NdisAllocateIoWorkItem(driver);
    runtime::NdisQueueIoWorkItem(item, Some(slow_routine), 0);
    ndis_sim::registration::NdisMDeregisterMiniportDriver(driver);
}

/// On Windows an I/O work item refers to its device object until the routine has returned ("IoQueueWorkItem"), so that
/// the driver's code stays.
#[test]
fn driver_stays_loaded_until_the_routines_of_its_work_items_have_returned() {
    let mut sim = simulation();
    let host = host(&mut sim);
    let edit = |characteristics: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        characteristics.UnloadHandler = Some(unload_with_a_work_item);
    };
    assert_eq!(register(&host, Script::default(), edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("there is a NIC");
    UNLOADING.store(miniport.adapter().driver.handle, SeqCst);
    miniport.halt().expect("the host lives");
    let object = host.miniport_drivers()[0];
    on(&host, move || {
        let unload = object.read().DriverUnload.expect("NDIS has set it");
        // SAFETY: NDIS's routine, with the driver's object.
        unsafe { unload(object.as_ptr()) };
    });
    assert!(ROUTINE_ENDED.load(SeqCst));
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}
