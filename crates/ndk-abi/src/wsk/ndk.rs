// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening NDK adapters by interface index.

use core::ffi::c_void;

use crate::{
    ndk::{NDK_ADAPTER, NDK_VERSION},
    netio::NET_IFINDEX,
    nt::NTSTATUS,
};

/// The functions that `WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH` returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_PROVIDER_NDK_DISPATCH {
    pub WskOpenNdkAdapter: Option<PFN_WSK_NDK_OPEN_ADAPTER>,
    pub WskCloseNdkAdapter: Option<PFN_WSK_NDK_CLOSE_ADAPTER>,
}

/// Opens an NDK adapter of an interface.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type PFN_WSK_NDK_OPEN_ADAPTER = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    NdkVersion: NDK_VERSION,
    IfIndex: NET_IFINDEX,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NTSTATUS;

/// Closes an NDK adapter.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type PFN_WSK_NDK_CLOSE_ADAPTER =
    unsafe extern "efiapi" fn(Client: *mut c_void, pNdkAdapter: *mut NDK_ADAPTER);

/// Control code of `WskControlClient`: get the functions that open and close NDK adapters.
pub const WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH: u32 = 0x4e44_4b44;
