// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scatter/gather lists: what they contain, what the device reaches by them, and their misuse.

use std::{
    ffi::c_void,
    mem::offset_of,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::scripted::{Script, header, kept, verdict_while_running};
use device_sim::DmaSpace;
use ndis_sim::{Miniport, NdisHost as _, data_path, dma, sg_list};
use ndk_abi::{
    ndis::{
        NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, NDIS_SG_DMA_64_BIT_ADDRESS, NDIS_SG_DMA_DESCRIPTION,
        NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS, NET_BUFFER,
        NET_BUFFER_LIST,
    },
    nt::{DEVICE_OBJECT, SCATTER_GATHER_LIST},
};
use nt_sim::{Irql, current, guest::Guest, memory::PAGE_SIZE};

/// The registration for DMA, and the list that was passed to the miniport last.
static DMA: AtomicUsize = AtomicUsize::new(0);
static LIST: AtomicUsize = AtomicUsize::new(0);
/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn process(
    _: *mut DEVICE_OBJECT,
    _: *mut c_void,
    list: *mut SCATTER_GATHER_LIST,
    context: *mut c_void,
) {
    assert_eq!((context.addr(), current().irql()), (7, Irql::DISPATCH_LEVEL));
    LIST.store(list.expose_provenance(), SeqCst);
}

fn register(handle: usize) {
    let mut description = NDIS_SG_DMA_DESCRIPTION::zeroed();
    description.Header =
        header(NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, 1, NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1);
    description.Flags = NDIS_SG_DMA_64_BIT_ADDRESS;
    description.MaximumPhysicalMapping = 65536;
    description.ProcessSGListHandler = Some(process);
    let registration = kept(0_usize);
    let status = dma::NdisMRegisterScatterGatherDma(handle, kept(description), registration);
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    DMA.store(registration.read(), SeqCst);
}

fn deregister(_: usize) {
    dma::NdisMDeregisterScatterGatherDma(DMA.load(SeqCst));
}

fn buffer_of(lists: *mut NET_BUFFER_LIST) -> Guest<NET_BUFFER> {
    Guest::new(Guest::new(lists).field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read())
}

fn at_dispatch<T>(body: impl FnOnce() -> T) -> T {
    let me = current();
    let before = me.raise(Irql::DISPATCH_LEVEL);
    let result = body();
    me.lower(before);
    result
}

/// Asks for the list of a NET_BUFFER, in a buffer of `size` bytes at `place`.
fn allocate(buffer: Guest<NET_BUFFER>, place: usize, size: u32) -> i32 {
    let dma = DMA.load(SeqCst);
    at_dispatch(|| sg_list::NdisMAllocateNetBufferSGList(dma, buffer, 7, 0, Guest::from_address(place), size))
}

fn free(list: usize, buffer: Guest<NET_BUFFER>) {
    let dma = DMA.load(SeqCst);
    at_dispatch(|| sg_list::NdisMFreeNetBufferSGList(dma, Guest::from_address(list), buffer));
}

fn complete(handle: usize, lists: *mut NET_BUFFER_LIST) {
    data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(lists), 0);
}

/// Returns addresses and lengths of the elements of the last list.
fn elements() -> Vec<(u64, u32)> {
    let list = Guest::<u8>::from_address(LIST.load(SeqCst));
    let count = list.field::<u32>(0).read() as usize;
    let element = |index: usize| list.field::<u64>(16 + index * 24);
    (0..count).map(|index| (element(index).read(), element(index).field::<u32>(8).read())).collect()
}

fn memory() -> Arc<DmaSpace> {
    current().host().nics()[0].memory().clone()
}

/// The miniport's handling of a chain of sends.
type Send = fn(usize, *mut NET_BUFFER_LIST);

/// Runs a miniport that sends by `send`, and lets it send a frame.
fn verdict_of_send(send: Send) -> String {
    let script =
        Script { initialize: Some(register), halt: Some(deregister), send: Some(send), ..Script::default() };
    verdict_while_running(script, |miniport: &Miniport| {
        let _ = miniport.send(&[0x5a; 3 * PAGE_SIZE], Duration::from_secs(1));
    })
}

/// The list describes all data of the NET_BUFFER, and the device reaches that and nothing else, until the list is freed
/// (windows-driver-docs: network/ndis-scatter-gather-dma).
#[test]
fn device_reaches_the_data_of_a_list_until_it_is_freed() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let send = |handle, lists: *mut NET_BUFFER_LIST| {
        let buffer = buffer_of(lists);
        assert_eq!(allocate(buffer, 0, 0), NDIS_STATUS_SUCCESS);
        let elements = elements();
        assert_eq!(elements.iter().map(|element| element.1 as usize).sum::<usize>(), 3 * PAGE_SIZE);
        assert!(elements.len() > 1, "pages of a block of pool are not physically contiguous");
        for &(address, len) in &elements {
            assert!(memory().is_mapped(address, len.into()));
            assert!(!memory().is_mapped(address, u64::from(len) + 1), "more than the data");
        }
        free(LIST.load(SeqCst), buffer);
        assert!(elements.iter().all(|&(address, _)| !memory().is_mapped(address, 1)));
        complete(handle, lists);
    };
    assert_eq!(verdict_of_send(send), "no violation");
}

#[test]
fn list_is_in_the_callers_buffer_if_that_is_large_enough() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let send = |handle, lists: *mut NET_BUFFER_LIST| {
        let buffer = buffer_of(lists);
        let place = kept([0_u64; 64]).address();
        for (size, is_there) in [(512, true), (16 + 24, false)] {
            assert_eq!(allocate(buffer, place, size), NDIS_STATUS_SUCCESS);
            assert_eq!(LIST.load(SeqCst) == place, is_there, "{size} bytes");
            free(LIST.load(SeqCst), buffer);
        }
        let host = current().host().clone();
        host.low_resources.fail_nth(0);
        assert_eq!(allocate(buffer, 0, 0), NDIS_STATUS_RESOURCES);
        complete(handle, lists);
    };
    assert_eq!(verdict_of_send(send), "no violation");
}

#[test]
fn wrong_use_of_lists_is_reported() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let offences: [(Send, &str); 7] = [
        (
            |handle, lists| {
                allocate(buffer_of(lists), 0, 0);
                complete(handle, lists);
            },
            "a send was completed whose scatter/gather list is not freed",
        ),
        (
            |_, lists| {
                allocate(buffer_of(lists), 0, 0);
                allocate(buffer_of(lists), 0, 0);
            },
            "NdisMAllocateNetBufferSGList of NET_BUFFER",
        ),
        (
            |_, lists| {
                allocate(buffer_of(lists), 0, 0);
                free(LIST.load(SeqCst), buffer_of(lists));
                free(LIST.load(SeqCst), buffer_of(lists));
            },
            "which is no list of the adapter",
        ),
        (
            |_, lists| {
                allocate(buffer_of(lists), 0, 0);
                free(LIST.load(SeqCst), Guest::from_address(8));
            },
            "NdisMFreeNetBufferSGList of the list of another NET_BUFFER than 0x8",
        ),
        (
            |_, lists| {
                allocate(buffer_of(lists), 0, 0);
                deregister(0);
            },
            "NdisMDeregisterScatterGatherDma: 1 scatter/gather lists are not freed",
        ),
        (
            |_, lists| {
                let mdl = Guest::new(buffer_of(lists).read().CurrentMdl);
                // MappedSystemVa: memory of this process, and of no host.
                let memory = vec![0_u8; 3 * PAGE_SIZE].leak();
                mdl.field::<usize>(0x18).write(Guest::new(&raw mut memory[0]).address());
                allocate(buffer_of(lists), 0, 0);
            },
            "NdisMAllocateNetBufferSGList of data at",
        ),
        (
            |_, lists| {
                sg_list::NdisMFreeNetBufferSGList(DMA.load(SeqCst), Guest::from_address(8), buffer_of(lists));
            },
            "NdisMFreeNetBufferSGList was called at PASSIVE_LEVEL",
        ),
    ];
    for (send, expected) in offences {
        let verdict = verdict_of_send(send);
        assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
    }
}
