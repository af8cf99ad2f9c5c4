// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of arguments and states: each is reported to a miniport that commits the offence.

use std::{ffi::c_void, time::Duration};

use crate::common::device::{registers, run_device};
use crate::common::lists::{buffer_pool, list, list_pool, mdl, pool_with};
use crate::common::scripted::{
    Offence, Script, assert_all_reported, assert_reported, general_with, header, in_initialize,
    interrupt_with, kept, registration_with, verdict, verdict_while_running,
};
use ndis_sim::{Miniport, adapter, bus, config, data_path, dma, interrupt, nbl, ndk, oid, runtime};
use ndk_abi::{
    ndis::{
        LOCK_STATE_EX, NDIS_CONFIGURATION_OBJECT, NDIS_HANDLE, NDIS_MEDIA_CONNECT_STATE,
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, NDIS_OBJECT_TYPE_STATUS_INDICATION,
        NDIS_OID_REQUEST, NDIS_SG_DMA_64_BIT_ADDRESS, NDIS_SG_DMA_DESCRIPTION,
        NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_FAILURE, NDIS_STATUS_INDICATION, NDIS_STATUS_LINK_STATE, NDIS_STATUS_PENDING,
        NDIS_STATUS_SUCCESS, NDIS_TIMER_CHARACTERISTICS, NET_BUFFER, NET_BUFFER_LIST,
    },
    nt::{DEVICE_OBJECT, LARGE_INTEGER, SCATTER_GATHER_LIST},
};
use nt_sim::{Irql, current, guest::Guest, nt::pool};

fn at_dispatch_level(body: impl FnOnce()) {
    let me = current();
    let old = me.raise(Irql::DISPATCH_LEVEL);
    body();
    me.lower(old);
}

unsafe extern "efiapi" fn nothing(_: *mut c_void, _: NDIS_HANDLE) {}

#[test]
fn misuse_of_work_items_and_timers_is_reported() {
    assert_all_reported(&[
        (
            |handle| {
                let item = runtime::NdisAllocateIoWorkItem(handle);
                at_dispatch_level(|| {
                    runtime::NdisQueueIoWorkItem(item, Some(nothing), 0);
                    runtime::NdisQueueIoWorkItem(item, Some(nothing), 0);
                });
            },
            "NdisQueueIoWorkItem of a work item that is queued",
        ),
        (
            |handle| {
                let item = runtime::NdisAllocateIoWorkItem(handle);
                at_dispatch_level(|| {
                    runtime::NdisQueueIoWorkItem(item, Some(nothing), 0);
                    runtime::NdisFreeIoWorkItem(item);
                });
            },
            "NdisFreeIoWorkItem of a work item that is queued",
        ),
        (
            |handle| runtime::NdisQueueIoWorkItem(runtime::NdisAllocateIoWorkItem(handle), None, 0),
            "NdisQueueIoWorkItem: the function is null",
        ),
        (|_| _ = runtime::NdisAllocateIoWorkItem(1), "which is not the handle of a driver or an adapter"),
        (|handle| _ = timer(handle, None), "NdisAllocateTimerObject: TimerFunction is null"),
        (
            |handle| {
                let timer = timer(handle, Some(expired));
                runtime::NdisSetTimerObject(timer, LARGE_INTEGER { QuadPart: -10_000_000 }, 0, 0);
                runtime::NdisFreeTimerObject(timer);
            },
            "NdisFreeTimerObject of a timer that is set, or whose function is running",
        ),
    ]);
}

unsafe extern "efiapi" fn expired(_: *mut c_void, _: *mut c_void, _: *mut c_void, _: *mut c_void) {}

fn timer(handle: usize, function: Option<ndk_abi::ndis::NDIS_TIMER_FUNCTION>) -> usize {
    let mut characteristics = NDIS_TIMER_CHARACTERISTICS::zeroed();
    characteristics.TimerFunction = function;
    let out = kept(0_usize);
    runtime::NdisAllocateTimerObject(handle, kept(characteristics), out);
    out.read()
}

#[test]
fn misuse_of_locks_is_reported() {
    fn state() -> Guest<LOCK_STATE_EX> {
        kept(LOCK_STATE_EX { OldIrql: 2, LockState: 0, Flags: 0 })
    }
    assert_all_reported(&[
        (
            |handle| {
                let lock = runtime::NdisAllocateRWLock(handle);
                runtime::NdisAcquireRWLockRead(lock, state(), 0);
                runtime::NdisFreeRWLock(lock);
            },
            "NdisFreeRWLock of a lock that is held",
        ),
        (
            |handle| {
                let lock = runtime::NdisAllocateRWLock(handle);
                at_dispatch_level(|| runtime::NdisReleaseRWLock(lock, state()));
            },
            "NdisReleaseRWLock of a lock that is not held",
        ),
    ]);
}

fn buffer(list: Guest<NET_BUFFER_LIST>) -> Guest<NET_BUFFER> {
    Guest::new(list.field::<*mut NET_BUFFER>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read())
}

#[test]
fn misuse_of_net_buffers_is_reported() {
    assert_all_reported(&[
        (
            |handle| _ = pool_with(handle, |parameters| parameters.Header.Size = 4),
            "NdisAllocateNetBufferListPool with parameters of type 0x80 and 4 bytes",
        ),
        (
            |handle| _ = pool_with(handle, |parameters| parameters.PoolTag = 0),
            "NdisAllocateNetBufferListPool: PoolTag is 0",
        ),
        (
            |handle| {
                let pool = list_pool(handle);
                nbl::NdisAllocateNetBufferList(pool, 0, 0);
                nbl::NdisFreeNetBufferListPool(pool);
            },
            "1 NET_BUFFERs or NET_BUFFER_LISTs of the pool with tag tset are not freed",
        ),
        (|handle| _ = buffer_pool(handle, 0), "NdisAllocateNetBufferPool: PoolTag is 0"),
        (
            |handle| {
                let pool = buffer_pool(handle, u32::from_le_bytes(*b"ffub"));
                nbl::NdisAllocateNetBuffer(pool, mdl(handle, 60), 0, 60);
                nbl::NdisFreeNetBufferPool(pool);
            },
            "of the pool with tag ffub are not freed",
        ),
        (
            // The blocks have the pool's tag, as in a list of leaks.
            |handle| pool::ExFreePoolWithTag(list(handle).cast(), u32::from_le_bytes(*b"Ndbl")),
            "'tset'",
        ),
        (
            |handle| {
                let pool = pool_with(handle, |parameters| parameters.fAllocateNetBuffer = 0);
                nbl::NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, mdl(handle, 60), 0, 60);
            },
            "NdisAllocateNetBufferAndNetBufferList: the pool was not allocated with fAllocateNetBuffer",
        ),
        (
            |handle| {
                let mut invented = NET_BUFFER_LIST::zeroed();
                invented.NdisPoolHandle = std::ptr::without_provenance_mut(list_pool(handle));
                nbl::NdisFreeNetBufferList(kept(invented));
            },
            "which is not allocated from its pool",
        ),
        (
            |handle| {
                let mut invented = NET_BUFFER::zeroed();
                invented.NdisPoolHandle = std::ptr::without_provenance_mut(list_pool(handle));
                nbl::NdisFreeNetBuffer(kept(invented));
            },
            "NdisFreeNetBuffer of ",
        ),
        (
            |handle| nbl::NdisAdvanceNetBufferDataStart(buffer(list(handle)), 61, 0, 0),
            "data of 60 bytes advanced by 61",
        ),
        (|_| nbl::NdisFreeMdl(Guest::null()), "NdisFreeMdl of null"),
    ]);
}

fn indicate(handle: usize, list: Guest<NET_BUFFER_LIST>, count: u32) {
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, count, 0);
}

/// `MiniportPause`, with the adapter's handle.
type Pause = fn(usize) -> NDIS_STATUS;

/// Runs `offence` while the adapter pauses, when indications are still allowed.
fn while_pausing(offence: Pause) -> Script {
    Script { pause: Some(offence), ..Script::default() }
}

#[test]
fn misuse_of_received_lists_is_reported() {
    const NEXT: usize = std::mem::offset_of!(NET_BUFFER_LIST, Next);
    const SOURCE: usize = std::mem::offset_of!(NET_BUFFER_LIST, SourceHandle);
    let offences: [(Pause, &str); 5] = [
        (
            |handle| {
                indicate(handle, list(handle), 2);
                NDIS_STATUS_SUCCESS
            },
            "NdisMIndicateReceiveNetBufferLists: NumberOfNetBufferLists is 2, the chain has 1",
        ),
        (
            |handle| {
                let list = list(handle);
                list.field::<usize>(NEXT).write(list.address());
                indicate(handle, list, 1);
                NDIS_STATUS_SUCCESS
            },
            "a chain of NET_BUFFER_LISTs is longer than 65536",
        ),
        (
            |handle| {
                let list = list(handle);
                list.field::<usize>(SOURCE).write(0);
                indicate(handle, list, 1);
                NDIS_STATUS_SUCCESS
            },
            "the SourceHandle of a received NET_BUFFER_LIST is not the adapter's handle",
        ),
        (
            |handle| {
                let list = list(handle);
                indicate(handle, list, 1);
                // The stack has returned it, with its information changed.
                runtime::NdisMSleep(1000);
                indicate(handle, list, 1);
                NDIS_STATUS_SUCCESS
            },
            "has NetBufferListInfo of an earlier frame",
        ),
        (
            |handle| {
                let list = list(handle);
                let length = buffer(list).field::<usize>(std::mem::offset_of!(NET_BUFFER, Anonymous));
                length.write(61);
                indicate(handle, list, 1);
                NDIS_STATUS_SUCCESS
            },
            "a NET_BUFFER has DataLength 61, but its MDLs describe 60 bytes",
        ),
    ];
    for (offence, expected) in offences {
        assert_reported(while_pausing(offence), expected);
    }
}

#[test]
fn pause_that_completes_too_early_is_reported() {
    let lends = while_pausing(|handle| {
        indicate(handle, list(handle), 1);
        NDIS_STATUS_SUCCESS
    });
    let keeps = |miniport: &Miniport| miniport.stack().keep(true);
    let reported = verdict_while_running(lends, keeps);
    assert!(reported.contains("MiniportPause completed before 1 received lists were returned"), "{reported}");
    let twice = while_pausing(|handle| {
        let list = list(handle);
        indicate(handle, list, 1);
        indicate(handle, list, 1);
        NDIS_STATUS_SUCCESS
    });
    let reported = verdict_while_running(twice, keeps);
    assert!(reported.contains("was indicated that the stack has not returned yet"), "{reported}");
    // The scripted miniport completes no send.
    let sends = |miniport: &Miniport| {
        let _ = miniport.send(&[0; 60], Duration::from_millis(1));
    };
    let reported = verdict_while_running(Script::default(), sends);
    assert!(reported.contains("MiniportPause completed, but 1 sends are not"), "{reported}");
    assert_reported(while_pausing(|_| NDIS_STATUS_FAILURE), "MiniportPause failed: 0xc0000001");
    let twice = |handle| {
        adapter::NdisMPauseComplete(handle);
        adapter::NdisMPauseComplete(handle);
        NDIS_STATUS_PENDING
    };
    assert_reported(while_pausing(twice), "NdisMPauseComplete was called twice, or nothing is pending");
}

#[test]
fn device_that_is_left_running_is_reported() {
    assert_all_reported(&[
        (run_device, "MiniportHaltEx returned while the device is running; reset it first"),
        (
            |handle| {
                let registered = interrupt_with(handle, |_| {});
                run_device(handle);
                interrupt::NdisMDeregisterInterruptEx(registered);
            },
            "NdisMDeregisterInterruptEx while the device is running and may interrupt; reset it first",
        ),
        (
            |handle| {
                let registered = dma_with(handle, |_| {});
                run_device(handle);
                dma::NdisMDeregisterScatterGatherDma(registered);
            },
            "NdisMDeregisterScatterGatherDma while the device runs",
        ),
    ]);
}

#[test]
fn misuse_of_the_bus_is_reported() {
    assert_all_reported(&[
        (
            |handle| {
                let start = LARGE_INTEGER { QuadPart: 0x1000 };
                bus::NdisMMapIoSpace(kept(0), handle, start, 16);
            },
            "which are not among the adapter's resources",
        ),
        (|handle| _ = bus::NdisMGetBusData(handle, 1, 0, kept(0_u8), 1), "NdisMGetBusData of space 1"),
        (|handle| _ = bus::NdisMSetBusData(handle, 1, 0, kept(0_u8), 1), "NdisMSetBusData of space 1"),
        (
            |handle| bus::NdisMUnmapIoSpace(handle, 0x1000, 16),
            "NdisMUnmapIoSpace of 0x1000, which the adapter has not mapped",
        ),
        (
            |handle| bus::NdisMUnmapIoSpace(handle, registers(handle), 16),
            "; the length mapped there is Some(",
        ),
        (
            |handle| {
                let mut object = NDIS_CONFIGURATION_OBJECT::zeroed();
                object.Header = header(NDIS_OBJECT_TYPE_DEFAULT, 1, 0x14);
                object.NdisHandle = std::ptr::without_provenance_mut(handle);
                config::NdisOpenConfigurationEx(kept(object), kept(0));
            },
            "NdisOpenConfigurationEx with an object of type 0x80",
        ),
    ]);
}

unsafe extern "efiapi" fn process_list(
    _: *mut DEVICE_OBJECT,
    _: *mut c_void,
    _: *mut SCATTER_GATHER_LIST,
    _: *mut c_void,
) {
}

fn dma_with(handle: usize, edit: fn(&mut NDIS_SG_DMA_DESCRIPTION)) -> usize {
    let mut description = NDIS_SG_DMA_DESCRIPTION::zeroed();
    description.Header =
        header(NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, 1, NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1);
    description.Flags = NDIS_SG_DMA_64_BIT_ADDRESS;
    description.MaximumPhysicalMapping = 4096;
    description.ProcessSGListHandler = Some(process_list);
    edit(&mut description);
    let registered = kept(0_usize);
    dma::NdisMRegisterScatterGatherDma(handle, kept(description), registered);
    registered.read()
}

#[test]
fn incomplete_dma_descriptions_are_reported() {
    assert_all_reported(&[
        (
            |handle| _ = dma_with(handle, |description| description.Header.Size = 8),
            "NdisMRegisterScatterGatherDma: the description has type",
        ),
        (
            |handle| _ = dma_with(handle, |description| description.ProcessSGListHandler = None),
            "NdisMRegisterScatterGatherDma: ProcessSGListHandler is null",
        ),
        (
            |handle| _ = dma_with(handle, |description| description.Flags = 0),
            "NDIS_SG_DMA_64_BIT_ADDRESS is required for this device",
        ),
    ]);
}

#[test]
fn incomplete_interrupt_characteristics_are_reported() {
    assert_all_reported(&[
        (
            |handle| _ = interrupt_with(handle, |handlers| handlers.Header.Size = 8),
            "NdisMRegisterInterruptEx: the characteristics have type",
        ),
        (
            |handle| _ = interrupt_with(handle, |handlers| handlers.InterruptDpcHandler = None),
            "InterruptHandler and InterruptDpcHandler are required",
        ),
        (
            |handle| _ = interrupt_with(handle, |handlers| handlers.MessageInterruptHandler = None),
            "MsiSupported requires MessageInterruptHandler and MessageInterruptDpcHandler",
        ),
    ]);
}

#[test]
fn incomplete_attributes_are_reported() {
    fn attributes(handle: usize) {
        registration_with(handle, 1, |_| {});
    }
    let offences: [Offence; 10] = [
        (
            |handle| _ = registration_with(handle, 1, |attributes| attributes.Header.Size = 8),
            "NdisMSetMiniportAttributes: registration attributes of 8 bytes are shorter than revision 1",
        ),
        (
            |handle| {
                attributes(handle);
                attributes(handle);
            },
            "the registration attributes were set twice",
        ),
        (
            |handle| _ = registration_with(handle, 0, |_| {}),
            "NdisMSetMiniportAttributes: MiniportAdapterContext is null",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.Header.Size = 8);
            },
            "NdisMSetMiniportAttributes: general attributes of 8 bytes; NDIS 6.20 and later require revision 2",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.MtuSize = 0);
            },
            "the general attributes lack MTU, MAC address, link speed or packet filters",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.XmitLinkSpeed = 0);
            },
            "a link speed of 0 is reported; unknown is NDIS_LINK_SPEED_UNKNOWN:",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| {
                    attributes.MediaConnectState = NDIS_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected;
                });
            },
            "a disconnected link is reported with a speed or a duplex state",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.SupportedOidListLength = 6);
            },
            "NdisMSetMiniportAttributes: SupportedOidListLength is 6, or SupportedOidList is null",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.SupportedOidListLength = 0);
            },
            "NdisMSetMiniportAttributes: SupportedOidListLength is 0, or SupportedOidList is null",
        ),
        (
            |handle| {
                attributes(handle);
                general_with(handle, |attributes| attributes.SupportedOidList = std::ptr::null_mut());
            },
            "NdisMSetMiniportAttributes: SupportedOidListLength is 4, or SupportedOidList is null",
        ),
    ];
    for (offence, expected) in offences {
        assert_reported(Script { silent: true, ..in_initialize(offence) }, expected);
    }
}

/// `MiniportOidRequest`, with the adapter's handle.
type Answer = fn(usize, *mut NDIS_OID_REQUEST) -> NDIS_STATUS;

#[test]
fn misuse_of_transitions_and_requests_is_reported() {
    assert_reported(
        Script { status: NDIS_STATUS_PENDING, ..Script::default() },
        "MiniportInitializeEx pended",
    );
    let answers: [(Answer, &str); 3] = [
        (
            |_, request| {
                let mut answered = Guest::new(request).read();
                answered.DATA.QUERY_INFORMATION.BytesWritten = 5;
                Guest::new(request).write(answered);
                NDIS_STATUS_SUCCESS
            },
            "BytesWritten is 5, but the buffer has 4 bytes",
        ),
        (
            |handle, request| {
                oid::NdisMOidRequestComplete(handle, Guest::new(request), NDIS_STATUS_PENDING);
                NDIS_STATUS_PENDING
            },
            "an OID request was completed with NDIS_STATUS_PENDING",
        ),
        (
            |handle, request| {
                oid::NdisMOidRequestComplete(handle, Guest::new(request), NDIS_STATUS_SUCCESS);
                oid::NdisMOidRequestComplete(handle, Guest::new(request), NDIS_STATUS_SUCCESS);
                NDIS_STATUS_PENDING
            },
            "an OID request was completed twice",
        ),
    ];
    for (answer, expected) in answers {
        assert_reported(Script { answer: Some(answer), ..Script::default() }, expected);
    }
}

fn indicate_status(handle: usize, edit: fn(&mut NDIS_STATUS_INDICATION)) {
    let mut indication = NDIS_STATUS_INDICATION::zeroed();
    indication.Header =
        header(NDIS_OBJECT_TYPE_STATUS_INDICATION, 1, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);
    indication.SourceHandle = std::ptr::without_provenance_mut(handle);
    edit(&mut indication);
    ndk::NdisMIndicateStatusEx(handle, kept(indication));
}

#[test]
fn incomplete_status_indications_are_reported() {
    assert_eq!(verdict(in_initialize(|handle| indicate_status(handle, |_| {}))), "no violation");
    assert_all_reported(&[
        (
            |handle| indicate_status(handle, |indication| indication.StatusCode = NDIS_STATUS_LINK_STATE),
            "an NDIS_LINK_STATE with the header [] and 0 bytes",
        ),
        (
            |handle| indicate_status(handle, |indication| indication.SourceHandle = std::ptr::null_mut()),
            "SourceHandle is not the adapter's handle",
        ),
        (
            |handle| indicate_status(handle, |indication| indication.Header.Size = 8),
            "NdisMIndicateStatusEx with an indication of type",
        ),
    ]);
}
