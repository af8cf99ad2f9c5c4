// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of an adapter in the trace: start, pause, power, halt, removal.

use ndk_abi::ndis::{NDIS_HANDLE, NDIS_STATUS};
use viordma_inf::tracing::value::Status;

use crate::etw::{self, table};
use crate::trace::interface_of;

/// Writes a change of the adapter with this handle, and its status. Any IRQL up to `DISPATCH_LEVEL`.
pub fn changed(handle: NDIS_HANDLE, change: &'static str, status: NDIS_STATUS) {
    etw::write(None, || table::AdapterChanged {
        interface: interface_of(handle),
        change,
        status: Status(status),
    });
}
