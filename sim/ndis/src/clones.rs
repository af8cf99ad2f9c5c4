// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clones of NET_BUFFER_LISTs: lists of their own that describe the data of another one.

use std::collections::BTreeMap;

use ndk_abi::{
    ndis::{NET_BUFFER, NET_BUFFER_LIST},
    nt::MDL,
};
use nt_sim::{Host, current, guest::Guest, imports, memory::pool::Tag, nt::mdl::GuestMdl, services::Slot};
use parking_lot::Mutex;

use crate::{
    block,
    list_fields::{INFO, INFO_LEN},
    nbl,
    rules::{self, broken, require},
};

/// The clones of a host by address, and the blocks that each consists of.
pub(crate) static CLONES: Slot<Mutex<BTreeMap<usize, Vec<Guest<u8>>>>> = Slot::new();

const TAG: Tag = Tag(u32::from_le_bytes(*b"Ndcl"));

/// `NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS`: the clone has no MDLs of its own.
const USE_ORIGINAL_MDLS: u32 = 1;

const FIRST: usize = std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer);
const PARENT: usize = std::mem::offset_of!(NET_BUFFER_LIST, ParentNetBufferList);
const NEXT: usize = std::mem::offset_of!(NET_BUFFER, Next);
const CHAIN: usize = std::mem::offset_of!(NET_BUFFER, MdlChain);
const CURRENT: usize = std::mem::offset_of!(NET_BUFFER, CurrentMdl);

/// The blocks of a clone that is being made.
struct Parts<'a> {
    host: &'a Host,
    blocks: Vec<Guest<u8>>,
}

impl Parts<'_> {
    fn block(&mut self, size: usize) -> Option<Guest<u8>> {
        let block = block::allocate(self.host, size, TAG)?;
        self.blocks.push(block);
        Some(block)
    }

    /// Copies a chain of MDLs; returns the copies of its first one and of `current`.
    fn mdls(&mut self, first: Guest<MDL>, current: Guest<MDL>) -> Option<[Guest<MDL>; 2]> {
        let (mut copies, mut last) = ([Guest::null(); 2], None::<Guest<MDL>>);
        let mut at = first;
        while !at.is_null() {
            let (address, length) = (GuestMdl(at).mapped(), GuestMdl(at).byte_count());
            let copy = self.block(GuestMdl::size_for(address, length as usize))?.cast::<MDL>();
            nbl::describe(copy, address, length);
            match last.replace(copy) {
                Some(last) => last.field::<usize>(0).write(copy.address()),
                None => copies[0] = copy,
            }
            if at == current {
                copies[1] = copy;
            }
            at = Guest::from_address(GuestMdl(at).next());
        }
        Some(copies)
    }

    fn clone_of(&mut self, original: Guest<NET_BUFFER_LIST>, flags: u32) -> Option<Guest<NET_BUFFER_LIST>> {
        let clone = self.block(nbl::LIST_LEN)?.cast::<NET_BUFFER_LIST>();
        clone.field::<usize>(PARENT).write(original.address());
        let mut place: Guest<usize> = clone.field(FIRST);
        for buffer in nbl::buffers(original) {
            let copy = self.block(size_of::<NET_BUFFER>())?.cast::<NET_BUFFER>();
            let fields = buffer.read();
            copy.write(fields);
            if flags & USE_ORIGINAL_MDLS == 0 {
                let mdls = self.mdls(Guest::new(fields.MdlChain), Guest::new(fields.CurrentMdl))?;
                copy.field::<usize>(CHAIN).write(mdls[0].address());
                copy.field::<usize>(CURRENT).write(mdls[1].address());
            }
            place.write(copy.address());
            place = copy.field(NEXT);
        }
        Some(clone)
    }
}

/// Copies what accompanies a list, such as requests for offloads, and what was found out of a received frame.
fn copy_info(to: Guest<NET_BUFFER_LIST>, from: Guest<NET_BUFFER_LIST>) {
    to.field::<[usize; INFO_LEN]>(INFO).write(from.field::<[usize; INFO_LEN]>(INFO).read());
}

imports! { IMPORTS: "ndis.sys" =>
    /// Copies the information of a list that is sent.
    [<= DISPATCH_LEVEL]
    fn NdisCopySendNetBufferListInfo(to: Guest<NET_BUFFER_LIST>, from: Guest<NET_BUFFER_LIST>) {
        copy_info(to, from);
    }

    /// Copies the information of a received list.
    [<= DISPATCH_LEVEL]
    fn NdisCopyReceiveNetBufferListInfo(to: Guest<NET_BUFFER_LIST>, from: Guest<NET_BUFFER_LIST>) {
        copy_info(to, from);
    }

    /// Makes a list that describes the data of another one. NDIS's memory holds it, whatever the pools.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateCloneNetBufferList(
        original: Guest<NET_BUFFER_LIST>,
        _list_pool: usize,
        _buffer_pool: usize,
        flags: u32,
    ) -> Guest<NET_BUFFER_LIST> {
        let host = current().host().clone();
        let mut parts = Parts { host: &host, blocks: Vec::new() };
        let Some(clone) = parts.clone_of(original, flags) else {
            for part in parts.blocks {
                block::release(&host, part, TAG);
            }
            return Guest::null();
        };
        host.state(&CLONES).lock().insert(clone.address(), parts.blocks);
        clone
    }

    /// Frees a clone, and its buffers and MDLs; the list that it describes stays.
    [<= DISPATCH_LEVEL]
    fn NdisFreeCloneNetBufferList(clone: Guest<NET_BUFFER_LIST>, _flags: u32) {
        let host = current().host().clone();
        let Some(blocks) = host.state(&CLONES).lock().remove(&clone.address()) else {
            broken(rules::CLONE, format!("NdisFreeCloneNetBufferList of {:#x}, which is no clone", clone.address()))
        };
        require(!nbl::is_lent(&host, clone), rules::OWNED, || {
            format!("NdisFreeCloneNetBufferList of {:#x}, which the stack has not returned", clone.address())
        });
        for part in blocks {
            block::release(&host, part, TAG);
        }
    }
}
