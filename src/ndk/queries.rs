// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDK queries: counters, connections, local endpoints. They succeed whether RDMA is enabled or not.
//= R-OIDNDK-28

use core::mem::offset_of;

use ndk_abi::ndis::{NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};
use ndk_abi::ndk::{
    NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_CONNECTIONS, NDIS_NDK_CONNECTIONS_REVISION_1,
    NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_LOCAL_ENDPOINTS, NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1,
    NDIS_NDK_STATISTICS_INFO, NDIS_NDK_STATISTICS_INFO_REVISION_1,
    NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1,
};

use super::provider::Ndk;
use crate::query_answer::Answer;

/// `OID_NDK_STATISTICS`. IRQL <= `DISPATCH_LEVEL`.
//= R-OIDNDK-17
pub fn statistics(ndk: &Ndk, answer: &mut Answer) {
    answer.value(&NDIS_NDK_STATISTICS_INFO {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_NDK_STATISTICS_INFO_REVISION_1,
            Size: NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1,
        },
        Flags: 0,
        CounterSet: ndk.provider().performance_counters(),
    });
}

/// `OID_NDK_CONNECTIONS`. `PASSIVE_LEVEL`.
//= R-OIDNDK-19, R-OIDNDK-20, R-OIDNDK-21, R-OIDNDK-22, R-OIDNDK-26, R-OIDNDK-27
pub fn connections(ndk: &Ndk, answer: &mut Answer) {
    let provider = ndk.provider();
    let mut count = 0_usize;
    provider.connections(|_| count = count.saturating_add(1));
    let entries = offset_of!(NDIS_NDK_CONNECTIONS, Connections);
    let mut list = List::<NDIS_NDK_CONNECTION_ENTRY>::new(answer, entries, count);
    provider.connections(|entry| list.add(&entry));
    list.finish(NDIS_NDK_CONNECTIONS_REVISION_1);
}

/// `OID_NDK_LOCAL_ENDPOINTS`. `PASSIVE_LEVEL`.
//= R-OIDNDK-20, R-OIDNDK-23, R-OIDNDK-24, R-OIDNDK-26
pub fn local_endpoints(ndk: &Ndk, answer: &mut Answer) {
    let provider = ndk.provider();
    let mut count = 0_usize;
    provider.local_endpoints(|_| count = count.saturating_add(1));
    //= R-OIDNDK-25
    let entries = offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, LocalEndpoints);
    let mut list = List::<NDIS_NDK_LOCAL_ENDPOINT_ENTRY>::new(answer, entries, count);
    provider.local_endpoints(|entry| list.add(&entry));
    list.finish(NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1);
}

/// A list answer with space for the entries that were counted; fewer are written if some disappeared meanwhile.
struct List<'a, T> {
    answer: &'a mut Answer,
    entries: usize,
    room: usize,
    added: usize,
    entry: core::marker::PhantomData<T>,
}

// Both structures start with the same members.
const _: () = {
    assert!(offset_of!(NDIS_NDK_CONNECTIONS, Header) == offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, Header));
    assert!(offset_of!(NDIS_NDK_CONNECTIONS, Flags) == offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, Flags));
    assert!(offset_of!(NDIS_NDK_CONNECTIONS, Count) == offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, Count));
    assert!(
        offset_of!(NDIS_NDK_CONNECTIONS, NDConnectionsMappedtoTCPConnections)
            == offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, NDLocalEndpointsMappedtoTCPLocalEndpoints)
    );
};

impl<'a, T: Copy> List<'a, T> {
    fn new(answer: &'a mut Answer, entries: usize, count: usize) -> Self {
        let fits = answer.fits(length::<T>(entries, count));
        Self {
            answer,
            entries,
            room: if fits { count } else { 0 },
            added: 0,
            entry: core::marker::PhantomData,
        }
    }

    fn add(&mut self, entry: &T) {
        if self.added < self.room {
            self.answer.put(length::<T>(self.entries, self.added), entry);
            self.added = self.added.saturating_add(1);
        }
    }

    fn finish(self, revision: u8) {
        let len = length::<T>(self.entries, self.added);
        let header = NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: revision,
            //= R-OIDNDK-20
            Size: u16::try_from(len).unwrap_or(u16::MAX),
        };
        self.answer.shorten(len);
        self.answer.put(offset_of!(NDIS_NDK_CONNECTIONS, Header), &header);
        self.answer.put(offset_of!(NDIS_NDK_CONNECTIONS, Flags), &0_u32);
        self.answer.put(offset_of!(NDIS_NDK_CONNECTIONS, Count), &(self.added as u32));
        // RoCE connections are not mapped to TCP connections.
        self.answer.put(offset_of!(NDIS_NDK_CONNECTIONS, NDConnectionsMappedtoTCPConnections), &0_u32);
    }
}

/// Bytes of a list with `count` entries.
const fn length<T>(entries: usize, count: usize) -> usize {
    entries.saturating_add(count.saturating_mul(size_of::<T>()))
}
