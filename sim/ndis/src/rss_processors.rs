// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processors that receive side scaling may use, as a miniport asks for them.

use std::mem::offset_of;

use ndk_abi::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_RSS_PROCESSOR_INFO, NDIS_RSS_PROCESSOR, NDIS_RSS_PROCESSOR_INFO,
    NDIS_RSS_PROCESSOR_INFO_REVISION_2, NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_2, NDIS_STATUS,
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_SUCCESS,
};
use nt_sim::{cpu::id::CpuId, current, guest::Guest, imports};

use crate::{adapter::adapter, config, keyword::Keyword};

/// The largest number of processors where no keyword says otherwise.
const DEFAULT_MAX_PROCESSORS: u32 = 16;

/// Returns the number that a keyword has, as text or as a number.
fn number(value: Keyword) -> Option<u32> {
    match value {
        Keyword::Number(number) => Some(number),
        Keyword::Text(text) => text.trim().parse().ok(),
        Keyword::Binary(_) => None,
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Returns the processors of receive side scaling: all of the host, and how many of them the adapter may use.
    [<= DISPATCH_LEVEL]
    fn NdisGetRssProcessorInformation(handle: usize, info: Guest<NDIS_RSS_PROCESSOR_INFO>, size: Guest<usize>) -> NDIS_STATUS {
        let adapter = adapter(handle);
        let host = current().host().clone();
        let count = host.cpus.count();
        let start = size_of::<NDIS_RSS_PROCESSOR_INFO>();
        let entry = size_of::<NDIS_RSS_PROCESSOR>();
        let needed = start + count as usize * entry;
        let given = size.read();
        size.write(needed);
        if info.is_null() || given < needed {
            return NDIS_STATUS_BUFFER_TOO_SHORT;
        }
        let groups = host.cpus.groups();
        let limit = config::keyword(&host, &adapter.interface, "*MaxRssProcessors").and_then(number);
        let mut result = NDIS_RSS_PROCESSOR_INFO::zeroed();
        result.Header = NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_RSS_PROCESSOR_INFO,
            Revision: NDIS_RSS_PROCESSOR_INFO_REVISION_2,
            Size: NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_2,
        };
        result.RssBaseProcessor = groups.number(CpuId(0));
        result.MaxNumRssProcessors = count.min(limit.unwrap_or(DEFAULT_MAX_PROCESSORS));
        result.RssProcessorArrayOffset = start as u32;
        result.RssProcessorCount = count;
        result.RssProcessorEntrySize = entry as u32;
        result.RssMaxProcessor = groups.number(CpuId(count - 1));
        info.write(result);
        for index in 0..count {
            let processor = info.cast::<u8>().add(start).cast::<NDIS_RSS_PROCESSOR>().add(index as usize);
            processor.cast::<u8>().fill(0, entry);
            processor.field(offset_of!(NDIS_RSS_PROCESSOR, ProcNum)).write(groups.number(CpuId(index)));
        }
        NDIS_STATUS_SUCCESS
    }
}
