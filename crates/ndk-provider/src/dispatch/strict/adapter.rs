// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_ADAPTER_DISPATCH` with checks.

use super::call::{Call, Guard};
use super::close::query_extension;
use crate::base::object::Borrow;
use crate::base::strict::Mistake;
use crate::objects::adapter::Adapter;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ,
    NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
    NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LOGICAL_ADDRESS_MAPPING, NDK_PD, NDK_SHARED_ENDPOINT,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{GROUP_AFFINITY, MDL, NTSTATUS};
use roce::{PRIVILEGED_KEY, Sge};

pub static TABLE: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension::<Adapter>),
    NdkQueryAdapterInfo: Some(query_info),
    NdkCreateCq: Some(create_cq),
    NdkCreatePd: Some(create_pd),
    NdkCreateSharedEndpoint: Some(create_shared_endpoint),
    NdkCreateConnector: Some(create_connector),
    NdkCreateListener: Some(create_listener),
    NdkBuildLAM: Some(build_lam),
    NdkReleaseLAM: Some(release_lam),
};

checked! { Adapter, NDK_ADAPTER;
    Query query_info = NdkQueryAdapterInfo(info: *mut NDK_ADAPTER_INFO, size: *mut u32) -> NTSTATUS,
        at_most PASSIVE_LEVEL;
    Create create_cq = NdkCreateCq(
        depth: u32,
        notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        notification_context: *mut c_void,
        affinity: *mut GROUP_AFFINITY,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_CQ,
    ) -> NTSTATUS, completion completion, out out;
    Create create_pd = NdkCreatePd(
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_PD,
    ) -> NTSTATUS, completion completion, out out;
    Create create_shared_endpoint = NdkCreateSharedEndpoint(
        address: *const SOCKADDR,
        length: u32,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_SHARED_ENDPOINT,
    ) -> NTSTATUS, completion completion, out out;
    Create create_connector = NdkCreateConnector(
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_CONNECTOR,
    ) -> NTSTATUS, completion completion, out out;
    Create create_listener = NdkCreateListener(
        connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
        connect_event_context: *mut c_void,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_LISTENER,
    ) -> NTSTATUS, completion completion, out out;
    Request build_lam = NdkBuildLAM(
        mdl: *mut MDL,
        length: usize,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
        lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
        size: *mut u32,
        offset: *mut u32,
    ) -> NTSTATUS;
    Request release_lam = NdkReleaseLAM(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) -> (),
        guard ReleasedMapping [lam];
}

/// Checks that no posted request uses a mapping that is released.
struct ReleasedMapping;

impl ReleasedMapping {
    /// # Safety
    /// `adapter` is open; `lam` is null or the consumer's mapping.
    //= R-LAM-23
    unsafe fn new(call: &Call, adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) -> Self {
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        let adapter = unsafe { Borrow::<Adapter>::new(adapter) };
        // SAFETY: by this function's contract the mapping is null or the consumer's, valid during the call.
        let lam = unsafe { lam.as_ref() };
        if let (Some(checker), Some(adapter), Some(lam)) = (call.checker(), adapter, lam)
            && let Some(range) = adapter.mappings().range(lam.AdapterContext.addr())
        {
            let uses = |sge: &Sge| sge.key == PRIVILEGED_KEY && range.contains(&sge.address);
            if checker.has_element(&uses) {
                call.report(Mistake::MappingInUse, 0);
            }
        }
        Self
    }
}

impl Guard for ReleasedMapping {
    fn end(self, _call: &Call, _status: NTSTATUS) {}
}
