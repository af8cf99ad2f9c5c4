// SPDX-License-Identifier: MIT OR Apache-2.0

//! DMA: registration.

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::ndis::{
    MINIPORT_PROCESS_SG_LIST, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER, NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION,
    NDIS_SG_DMA_64_BIT_ADDRESS, NDIS_SG_DMA_DESCRIPTION, NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1,
    NDIS_STATUS, NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_SUCCESS,
};

use nt_sim::{Host, Tolerance, current, guest::Guest, imports};

use parking_lot::Mutex;

use crate::{
    adapter::{Adapter, adapter},
    handle::{self, HANDLES},
    owner,
    rules::{self, broken, require},
};

const REGISTER: &str = "NdisMRegisterScatterGatherDma";

/// A registration for DMA.
pub(crate) struct DmaRegistration {
    pub adapter: Arc<Adapter>,
    /// Is called with each scatter/gather list.
    pub process: MINIPORT_PROCESS_SG_LIST,
    /// The lists that the miniport holds, by address.
    pub lists: Mutex<BTreeMap<usize, SgList>>,
    /// The memory that the lists map for the device, by logical address: its length, and the number of lists.
    pub mapped: Mutex<BTreeMap<u64, (u64, u32)>>,
}

/// A scatter/gather list that the miniport holds.
pub(crate) struct SgList {
    /// Address of its NET_BUFFER.
    pub buffer: usize,
    /// Logical address and length of its elements.
    pub elements: Vec<(u64, u32)>,
    /// NDIS allocated it.
    pub is_owned: bool,
}

/// Returns whether an adapter is registered for DMA.
pub(crate) fn is_registered(host: &Host, adapter: usize) -> bool {
    owner::held(host, adapter).iter().any(|object| object.kind == REGISTER)
}

/// Returns the logical address, by which the device reaches it, of memory of the host.
pub(crate) fn logical_address(adapter: &Adapter, host: &Host, address: usize) -> Option<u64> {
    let offset = host.memory.physical.offset(host.memory.physical_address(address)?)?;
    Some(adapter.nic.memory().logical(offset))
}

imports! { IMPORTS: "ndis.sys" =>
    /// Registers the adapter as a bus master.
    [== PASSIVE_LEVEL]
    fn NdisMRegisterScatterGatherDma(
        handle: usize,
        description: Guest<NDIS_SG_DMA_DESCRIPTION>,
        registration: Guest<usize>,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        if !adapter.attributes().has_flags(NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER) {
            return NDIS_STATUS_INVALID_PARAMETER;
        }
        let header = description.read().Header;
        require(
            header.Type == NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION
                && header.Size >= NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, rules::HEADER,
            || format!("NdisMRegisterScatterGatherDma: the description has type {:#x} and {} bytes", header.Type, header.Size),
        );
        let mut described = description.read();
        let Some(process) = described.ProcessSGListHandler else {
            broken(rules::PARAMETER, "NdisMRegisterScatterGatherDma: ProcessSGListHandler is null")
        };
        if described.Flags & NDIS_SG_DMA_64_BIT_ADDRESS == 0 {
            adapter.driver.undocumented(current().host(), Tolerance::Dma32, "NdisMRegisterScatterGatherDma: NDIS_SG_DMA_64_BIT_ADDRESS is required for this device");
        }
        // One element per page of the largest mapping.
        described.ScatterGatherListSize = 16 + 24 * (described.MaximumPhysicalMapping.div_ceil(4096) + 1);
        description.write(described);
        let host = current().host().clone();
        let registered = host.state(&HANDLES).insert(Arc::new(DmaRegistration {
            adapter,
            process,
            lists: Mutex::default(),
            mapped: Mutex::default(),
        }));
        owner::hold(&host, handle, REGISTER, registered);
        registration.write(registered);
        NDIS_STATUS_SUCCESS
    }

    /// Ends the registration.
    [== PASSIVE_LEVEL]
    fn NdisMDeregisterScatterGatherDma(registration: usize) {
        let registered = handle::take::<DmaRegistration>("DMA handle", registration);
        if registered.adapter.nic.is_running() {
            registered.adapter.driver.undocumented(current().host(), Tolerance::DmaInUse, "NdisMDeregisterScatterGatherDma while the device runs");
        }
        let lists = registered.lists.lock().len();
        require(lists == 0, rules::SG_LIST, || {
            format!("NdisMDeregisterScatterGatherDma: {lists} scatter/gather lists are not freed")
        });
        let _ = owner::release(current().host(), REGISTER, registration);
    }

    /// Returns the alignment of DMA buffers in bytes.
    [== PASSIVE_LEVEL]
    fn NdisMGetDmaAlignment(handle: usize) -> u32 {
        let _ = adapter(handle);
        1
    }
}
