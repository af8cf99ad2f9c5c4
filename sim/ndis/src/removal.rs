// SPDX-License-Identifier: MIT OR Apache-2.0

//! Removal of an adapter at the request of its miniport, whose device failed.

use std::sync::Arc;

use ndk_abi::ndis::{NDIS_HALT_ACTION, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS};
use nt_sim::{Host, current, imports, nt::time::sleep};

use crate::{
    adapter::{Adapter, AdapterState, adapter},
    lifecycle,
    wait::wait_until,
};

/// Pauses and halts the adapter, as the PnP manager does with a device that failed.
fn remove(host: &Arc<Host>, adapter: &Arc<Adapter>) {
    wait_until(|| adapter.state() != AdapterState::Initializing);
    let delay = adapter.removal.delay();
    if !delay.is_zero() {
        sleep(delay.as_nanos() as u64);
    }
    lifecycle::exclusively(adapter, || {
        lifecycle::stop(host, adapter, NDIS_HALT_ACTION::NdisHaltDeviceFailed);
    });
}

imports! { IMPORTS: "ndis.sys" =>
    /// Removes the adapter soon, on a thread of the system. Fails if it is being removed already.
    [<= DISPATCH_LEVEL]
    fn NdisMRemoveMiniport(handle: usize) -> NDIS_STATUS {
        let adapter = adapter(handle);
        if !adapter.removal.ask() {
            return NDIS_STATUS_FAILURE;
        }
        let host = current().host().clone();
        let on = host.clone();
        drop(host.spawn("PnP", move || remove(&on, &adapter)));
        NDIS_STATUS_SUCCESS
    }
}
