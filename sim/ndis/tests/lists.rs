// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of net buffers: clones, and lists that the stack holds.

use std::mem::offset_of;

use crate::common::{
    lists::{LIST_LEN, buffer_pool, free, list, list_pool, mdl, pool_with},
    scripted::{Script, in_initialize, verdict, verdict_while_running},
};
use ndis_sim::{Miniport, clones, data_path, nbl};
use ndk_abi::ndis::{NET_BUFFER, NET_BUFFER_LIST};
use nt_sim::{current, guest::Guest};

/// Of a NET_BUFFER.
const NEXT: usize = offset_of!(NET_BUFFER, Next);
const PARENT: usize = offset_of!(NET_BUFFER_LIST, ParentNetBufferList);
const TAG: u32 = u32::from_le_bytes(*b"tset");
const INFO: usize = offset_of!(NET_BUFFER_LIST, NetBufferListInfo);
/// Entries of NetBufferListInfo.
const INFO_LEN: usize = 27;
const FIRST: usize = offset_of!(NET_BUFFER_LIST, FirstNetBuffer);

fn first_buffer(list: Guest<NET_BUFFER_LIST>) -> Guest<NET_BUFFER> {
    Guest::new(list.field::<*mut NET_BUFFER>(FIRST).read())
}

/// Returns the address of the data of a list.
fn data(list: Guest<NET_BUFFER_LIST>) -> Guest<u8> {
    nbl::NdisGetDataBuffer(first_buffer(list), 60, Guest::null(), 1, 0)
}

/// (windows-driver-docs-ddi: ndis/nf-ndis-ndisallocateclonenetbufferlist)
#[test]
fn clone_describes_the_data_of_its_original() {
    let body = |handle| {
        let original = list(handle);
        let mdl = |list| first_buffer(list).read().CurrentMdl;
        for (flags, shares) in [(0, false), (1, true)] {
            let clone = clones::NdisAllocateCloneNetBufferList(original, 0, 0, flags);
            assert_ne!(clone, original);
            assert_eq!(clone.field::<usize>(PARENT).read(), original.address());
            assert_eq!(data(clone), data(original));
            assert_eq!(mdl(clone) == mdl(original), shares, "flags {flags}");
            assert!(first_buffer(clone).read().Next.is_null());
            clones::NdisFreeCloneNetBufferList(clone, 0);
        }
        let before = current().host().low_resources.asked();
        let clone = clones::NdisAllocateCloneNetBufferList(original, 0, 0, 0);
        let asked = current().host().low_resources.asked() - before;
        clones::NdisFreeCloneNetBufferList(clone, 0);
        assert_eq!(asked, 3, "the list, the buffer and the MDL");
        for nth in 0..asked {
            current().host().low_resources.fail_nth(nth);
            assert!(clones::NdisAllocateCloneNetBufferList(original, 0, 0, 0).is_null());
        }
        clones::NdisFreeCloneNetBufferList(original, 0);
    };
    let verdict = verdict(in_initialize(body));
    assert!(
        verdict.contains("NdisFreeCloneNetBufferList of") && verdict.contains("which is no clone"),
        "{verdict}"
    );
}

#[test]
fn clone_of_a_list_of_several_frames_has_all_of_them_and_is_freed_whole() {
    let body = |handle| {
        let original = list(handle);
        let second = nbl::NdisAllocateNetBuffer(buffer_pool(handle, TAG), mdl(handle, 60), 0, 60);
        first_buffer(original).field::<usize>(NEXT).write(second.address());
        let blocks = || current().host().memory.pool.blocks().len();
        let before = blocks();
        let clone = clones::NdisAllocateCloneNetBufferList(original, 0, 0, 0);
        let next = Guest::new(first_buffer(clone).read().Next);
        assert!(next.read().Next.is_null());
        for (copy, of) in [(first_buffer(clone), first_buffer(original)), (next, second)] {
            let data = |buffer| nbl::NdisGetDataBuffer(buffer, 60, Guest::null(), 1, 0);
            assert_eq!(data(copy), data(of));
            assert_ne!(copy, of);
        }
        let info: [usize; INFO_LEN] = std::array::from_fn(|at| at + 1);
        for copy in [clones::NdisCopySendNetBufferListInfo, clones::NdisCopyReceiveNetBufferListInfo] {
            original.field(INFO).write(info);
            clone.field(INFO).write([0_usize; INFO_LEN]);
            copy(clone, original);
            assert_eq!(clone.field::<[usize; INFO_LEN]>(INFO).read(), info);
        }
        clones::NdisFreeCloneNetBufferList(clone, 0);
        assert_eq!(blocks(), before);
        first_buffer(original).field::<usize>(NEXT).write(0);
        nbl::NdisFreeNetBuffer(second);
    };
    let verdict = verdict(in_initialize(body));
    assert!(!verdict.contains("panicked"), "{verdict}");
}

/// A list that the miniport indicates is the stack's until it is returned (windows-driver-docs: network/indicating-received-data).
#[test]
fn freeing_a_list_that_the_stack_holds_is_reported() {
    let report = verdict_while_running(Script::default(), |miniport: &Miniport| {
        let handle = miniport.adapter().handle;
        let list = list(handle);
        miniport.stack().keep(true);
        data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
        nbl::NdisFreeNetBufferList(list);
    });
    assert!(report.contains("NdisFreeNetBufferList of"), "{report}");
    assert!(report.contains("which the stack has not returned"), "{report}");
}

#[test]
fn freeing_a_clone_that_the_stack_holds_is_reported() {
    let report = verdict_while_running(Script::default(), |miniport: &Miniport| {
        let handle = miniport.adapter().handle;
        let clone = clones::NdisAllocateCloneNetBufferList(list(handle), 0, 0, 0);
        clone.field::<usize>(offset_of!(NET_BUFFER_LIST, SourceHandle)).write(handle);
        miniport.stack().keep(true);
        data_path::NdisMIndicateReceiveNetBufferLists(handle, clone, 0, 1, 0);
        clones::NdisFreeCloneNetBufferList(clone, 0);
    });
    assert!(report.contains("NdisFreeCloneNetBufferList of"), "{report}");
    assert!(report.contains("which the stack has not returned"), "{report}");
}

/// Writes behind its end are found by the guard page of its block.
#[test]
fn list_has_as_many_bytes_as_were_requested() {
    let body = |handle| {
        let size = |list: Guest<NET_BUFFER_LIST>| current().host().memory.pool.size_of(list.address());
        let with = list_pool(handle);
        let without = pool_with(handle, |of| of.fAllocateNetBuffer = 0);
        let lists = [(with, 0), (with, 32), (without, 0), (without, 32)]
            .map(|(pool, context)| nbl::NdisAllocateNetBufferList(pool, context, 0));
        let [whole, larger, bare, larger_bare] = lists.map(|list| size(list).expect("a block"));
        let buffer = size_of::<NET_BUFFER>();
        assert_eq!([whole, larger, larger_bare], [bare + buffer, bare + buffer + 32, bare + 32]);
        assert_eq!(bare, LIST_LEN);
        for list in lists {
            nbl::NdisFreeNetBufferList(list);
        }
        nbl::NdisFreeNetBufferListPool(with);
        nbl::NdisFreeNetBufferListPool(without);
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn net_buffer_of_a_list_has_the_pool_of_the_list() {
    let body = |handle| {
        let list = list(handle);
        let pool = list.field::<usize>(offset_of!(NET_BUFFER_LIST, NdisPoolHandle)).read();
        assert_eq!(first_buffer(list).read().NdisPoolHandle.addr(), pool);
        free(list);
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}
