// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scatter/gather lists: the data of a NET_BUFFER by the addresses at which the device reaches it.

use std::{collections::BTreeSet, sync::Arc};

use ndk_abi::{
    ndis::{NDIS_STATUS, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS, NET_BUFFER},
    nt::SCATTER_GATHER_LIST,
};
use nt_sim::{
    Host, current,
    guest::Guest,
    image::call,
    imports,
    memory::{PAGE_SIZE, pool::Tag},
    services::Slot,
};
use parking_lot::Mutex;

use crate::{
    block,
    dma::{DmaRegistration, SgList, logical_address},
    handle, nbl,
    rules::{self, broken, require},
};

/// The NET_BUFFERs of a host whose data a scatter/gather list maps for a device.
pub(crate) static MAPPED_BUFFERS: Slot<Mutex<BTreeSet<usize>>> = Slot::new();

const TAG: Tag = Tag(u32::from_le_bytes(*b"Ndsg"));

/// Offsets in a SCATTER_GATHER_LIST, and in an element. (wdm.h)
const ELEMENTS: usize = 16;
const ELEMENT_LEN: usize = 24;
const LENGTH: usize = 8;

/// Returns whether the data of a NET_BUFFER is mapped for a device.
pub(crate) fn is_mapped(host: &Host, buffer: usize) -> bool {
    host.state(&MAPPED_BUFFERS).lock().contains(&buffer)
}

/// Returns the logical addresses of a NET_BUFFER's data; pages that follow each other are one element.
fn elements(registration: &DmaRegistration, host: &Host, buffer: Guest<NET_BUFFER>) -> Vec<(u64, u32)> {
    let mut elements: Vec<(u64, u32)> = Vec::new();
    for (address, len) in nbl::parts(buffer) {
        let mut at = address;
        while at < address + len {
            let part = (PAGE_SIZE - at % PAGE_SIZE).min(address + len - at);
            let Some(logical) = logical_address(&registration.adapter, host, at) else {
                broken(
                    rules::PARAMETER,
                    format!("NdisMAllocateNetBufferSGList of data at {at:#x}, which is no memory"),
                )
            };
            match elements.last_mut() {
                Some((start, length)) if *start + u64::from(*length) == logical => *length += part as u32,
                _ => elements.push((logical, part as u32)),
            }
            at += part;
        }
    }
    elements
}

impl DmaRegistration {
    fn map(&self, elements: &[(u64, u32)]) {
        let mut mapped = self.mapped.lock();
        for &(logical, len) in elements {
            let (longest, lists) = mapped.entry(logical).or_insert((0, 0));
            *longest = u64::from(len).max(*longest);
            *lists += 1;
            self.adapter.nic.memory().map(logical, *longest);
        }
    }

    fn unmap(&self, elements: &[(u64, u32)]) {
        let mut mapped = self.mapped.lock();
        for (logical, _) in elements {
            let Some((_, lists)) = mapped.get_mut(logical) else { continue };
            *lists -= 1;
            if *lists == 0 {
                mapped.remove(logical);
                self.adapter.nic.memory().unmap(*logical);
            }
        }
    }
}

fn write(list: Guest<SCATTER_GATHER_LIST>, elements: &[(u64, u32)]) {
    list.field::<u32>(0).write(elements.len() as u32);
    for (index, &(logical, len)) in elements.iter().enumerate() {
        let at = ELEMENTS + index * ELEMENT_LEN;
        list.field::<u64>(at).write(logical);
        list.field::<u32>(at + LENGTH).write(len);
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Maps the data of a NET_BUFFER for the device, and calls MiniportProcessSGList with its addresses before it returns. The list is
    /// in the caller's buffer, or in NDIS's memory if that is null or too small.
    [== DISPATCH_LEVEL]
    fn NdisMAllocateNetBufferSGList(
        registration: usize,
        buffer: Guest<NET_BUFFER>,
        context: usize,
        _flags: u32,
        list: Guest<SCATTER_GATHER_LIST>,
        size: u32,
    ) -> NDIS_STATUS {
        let registered: Arc<DmaRegistration> = handle::object("DMA handle", registration);
        let host = current().host().clone();
        let elements = elements(&registered, &host, buffer);
        let needed = ELEMENTS + elements.len() * ELEMENT_LEN;
        let is_owned = list.is_null() || (size as usize) < needed;
        let list = if is_owned {
            match block::allocate(&host, needed, TAG) {
                Some(block) => block.cast(),
                None => return NDIS_STATUS_RESOURCES,
            }
        } else {
            list
        };
        let is_new = host.state(&MAPPED_BUFFERS).lock().insert(buffer.address());
        require(is_new, rules::SG_LIST, || {
            format!("NdisMAllocateNetBufferSGList of NET_BUFFER {:#x}, which has a list", buffer.address())
        });
        write(list, &elements);
        registered.map(&elements);
        let held = SgList { buffer: buffer.address(), elements, is_owned };
        registered.lists.lock().insert(list.address(), held);
        call("MiniportProcessSGList", || {
            let null = std::ptr::null_mut();
            // SAFETY: the image registered the function under this contract; the list lives until it frees it.
            unsafe { (registered.process)(null, null.cast(), list.as_ptr(), context as *mut _) }
        });
        NDIS_STATUS_SUCCESS
    }

    /// Ends the mapping of a NET_BUFFER's data, which the device must no longer use.
    [== DISPATCH_LEVEL]
    fn NdisMFreeNetBufferSGList(
        registration: usize,
        list: Guest<SCATTER_GATHER_LIST>,
        buffer: Guest<NET_BUFFER>,
    ) {
        let registered: Arc<DmaRegistration> = handle::object("DMA handle", registration);
        let Some(held) = registered.lists.lock().remove(&list.address()) else {
            broken(rules::SG_LIST, format!("NdisMFreeNetBufferSGList of {:#x}, which is no list of the adapter", list.address()))
        };
        require(held.buffer == buffer.address(), rules::SG_LIST, || {
            format!("NdisMFreeNetBufferSGList of the list of another NET_BUFFER than {:#x}", buffer.address())
        });
        registered.unmap(&held.elements);
        let host = current().host().clone();
        host.state(&MAPPED_BUFFERS).lock().remove(&held.buffer);
        if held.is_owned {
            block::release(&host, list.cast(), TAG);
        }
    }
}
