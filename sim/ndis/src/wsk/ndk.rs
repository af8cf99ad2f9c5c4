// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening and closing NDK adapters by the index of their interface.

use ndk_abi::{
    ndis::NDIS_STATUS_NOT_SUPPORTED,
    ndk::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_VERSION},
    nt::{STATUS_NOT_FOUND, STATUS_NOT_SUPPORTED, STATUS_SUCCESS},
};
use nt_sim::{current, guest::Guest, imports};

use super::client::{CLIENTS, require_client};
use crate::{
    adapter::adapters,
    ndk::NdkAdapter,
    network_rules::{self, broken},
};

fn open(client: usize, version: NDK_VERSION, index: u32) -> Result<NdkAdapter, i32> {
    let host = current().host().clone();
    let named = adapters(&host).into_iter().find(|adapter| adapter.if_index == index);
    let adapter = named.ok_or(STATUS_NOT_FOUND)?;
    let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: 0, VPortId: 0 };
    let opened = adapter.open_ndk(parameters).map_err(|status| match status {
        NDIS_STATUS_NOT_SUPPORTED => STATUS_NOT_SUPPORTED,
        other => other,
    })?;
    host.state(&CLIENTS).opened(&host, client, opened, adapter);
    Ok(opened)
}

imports! { FUNCTIONS: "wsk" =>
    /// Opens an NDK adapter of an interface, in the highest version of the provider with the same major number.
    [== PASSIVE_LEVEL]
    fn WskOpenNdkAdapter(client: usize, version: NDK_VERSION, index: u32, out: Guest<*mut NDK_ADAPTER>) -> i32 {
        require_client("WskOpenNdkAdapter", client);
        match open(client, version, index) {
            Ok(opened) => {
                out.write(opened.as_ptr());
                STATUS_SUCCESS
            }
            Err(status) => {
                out.write(std::ptr::null_mut());
                status
            }
        }
    }

    /// Closes an NDK adapter; returns when every object below it is closed.
    [== PASSIVE_LEVEL]
    fn WskCloseNdkAdapter(client: usize, opened: Guest<NDK_ADAPTER>) {
        require_client("WskCloseNdkAdapter", client);
        let host = current().host().clone();
        let opened = NdkAdapter(opened);
        match host.state(&CLIENTS).closing(&host, client, opened) {
            Some(adapter) => adapter.close_ndk(opened),
            None => broken(network_rules::ADAPTERS_CLOSED, format!("WskCloseNdkAdapter of {:?}, which the client has not open", opened.0)),
        }
    }
}
