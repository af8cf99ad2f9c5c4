// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive indications: frames that the RDMA provider does not claim are copied into NET_BUFFER_LISTs of a fixed pool and
//! indicated to NDIS.

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NET_BUFFER_LIST, NdisMIndicateReceiveNetBufferLists,
};

use super::adapter::Adapter;
use super::receive_pool::ReceivedInfo;
use crate::nbl::NblList;
use crate::nic::tag::Tag;

/// The frames of one poll that are to be indicated.
pub struct Indication<'a> {
    adapter: &'a Adapter,
    chain: NblList,
    count: u32,
}

impl<'a> Indication<'a> {
    /// Returns an empty indication. The caller holds a [permission](Adapter::pass) until after [`indicate`](Self::indicate).
    pub fn new(adapter: &'a Adapter) -> Self {
        Self { adapter, chain: NblList::new(), count: 0 }
    }

    /// Copies and adds a frame, from which `tag` was removed, and whose checksum is known to be right if `is_verified`; `false` if
    /// no list is free.
    pub fn add(&mut self, frame: &[u8], tag: Option<Tag>, is_verified: bool) -> bool {
        let checksum = self.adapter.offloads.report(frame, is_verified) as usize;
        let info = ReceivedInfo { checksum, priority_vlan: self.adapter.vlan.report(tag) };
        let Some(nbl) = self.adapter.receive_pool().fill(frame, info) else { return false };
        self.adapter.traffic.join();
        // SAFETY: fresh from the free list.
        unsafe { self.chain.push(nbl) };
        self.count += 1;
        true
    }

    /// Returns the lists, which NDIS indicates, and their number.
    pub fn into_chain(self) -> (*mut NET_BUFFER_LIST, u32) {
        (self.chain.first(), self.count)
    }

    /// Indicates the frames to the protocol stack. `DISPATCH_LEVEL`, no lock held.
    pub fn indicate(self) {
        if self.chain.is_empty() {
            return;
        }
        // SAFETY: a chain of `count` lists of this adapter's; they come back through `return_net_buffer_lists`.
        unsafe {
            NdisMIndicateReceiveNetBufferLists(
                self.adapter.handle(),
                self.chain.first(),
                0,
                self.count,
                NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL,
            );
        }
    }
}

/// `MiniportReturnNetBufferLists`.
pub unsafe extern "efiapi" fn return_net_buffer_lists(
    context: NDIS_HANDLE,
    chain: *mut NET_BUFFER_LIST,
    _flags: u32,
) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    let returned = adapter.receive_pool().take_back(chain);
    adapter.passed(returned);
}
