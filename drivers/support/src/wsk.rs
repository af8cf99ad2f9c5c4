// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration with Winsock Kernel, through which kernel components open NDK adapters.
#![allow(unsafe_code, reason = "calls of Windows and its structures")]

use alloc::boxed::Box;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};

use fallible::try_box;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_VERSION};
use ndk_abi::nt::STATUS_NOT_SUPPORTED;
use ndk_abi::wsk::{
    WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_NO_WAIT, WSK_PROVIDER_NDK_DISPATCH, WSK_PROVIDER_NPI,
    WSK_REGISTRATION, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, WskCaptureProviderNPI, WskDeregister,
    WskRegister, WskReleaseProviderNPI,
};

use crate::status::{Result, check, no_memory};

/// The NDKPI version that adapters are opened with.
const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

/// WSK 1.0; no notifications.
static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: 0x0100, Reserved: 0, WskClientEvent: None };

/// The provider of Winsock Kernel, captured. Dropping it releases the provider and ends the registration, which waits
/// for calls in progress. All adapters must be closed before. `PASSIVE_LEVEL`.
pub struct Wsk {
    provider: WSK_PROVIDER_NPI,
    ndk: WSK_PROVIDER_NDK_DISPATCH,
    // Declared last: the provider is released before its registration ends.
    _capture: Capture,
}

/// The captured provider, released when dropped.
struct Capture(Registration);

/// The registration, ended when dropped. Winsock Kernel uses its memory as long as it is registered.
struct Registration(Box<MaybeUninit<WSK_REGISTRATION>>);

// SAFETY: the provider's functions and its client handle may be used from any thread.
unsafe impl Send for Wsk {}
// SAFETY: WSK serializes calls of one client itself; a shared reference only makes such calls.
unsafe impl Sync for Wsk {}

impl Wsk {
    /// Registers, captures the provider, and asks it for the functions that open NDK adapters. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`; that of a function of Winsock Kernel; `STATUS_NOT_SUPPORTED` without those functions.
    pub fn register() -> Result<Self> {
        let mut registration = try_box(MaybeUninit::<WSK_REGISTRATION>::zeroed()).map_err(no_memory)?;
        let mut client = WSK_CLIENT_NPI { ClientContext: null_mut(), Dispatch: &raw const DISPATCH };
        // SAFETY: both live for the call, the registration until it ends, the dispatch table forever.
        check(unsafe { WskRegister(&raw mut client, registration.as_mut_ptr()) })?;
        let mut registration = Registration(registration);
        let mut provider = MaybeUninit::<WSK_PROVIDER_NPI>::zeroed();
        // SAFETY: the registration has just been made.
        check(unsafe {
            WskCaptureProviderNPI(registration.0.as_mut_ptr(), WSK_NO_WAIT, provider.as_mut_ptr())
        })?;
        let capture = Capture(registration);
        // SAFETY: the call above has succeeded, and so filled it in.
        let provider = unsafe { provider.assume_init() };
        let ndk = ndk_functions(&provider)?;
        Ok(Self { provider, ndk, _capture: capture })
    }

    /// Opens an NDK adapter of the interface with this index. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The status of `WskOpenNdkAdapter`; `STATUS_NOT_SUPPORTED` if there is no such function.
    pub fn open(&self, interface: u32) -> Result<NonNull<NDK_ADAPTER>> {
        let open = self.ndk.WskOpenNdkAdapter.ok_or(STATUS_NOT_SUPPORTED)?;
        let mut adapter = null_mut();
        // SAFETY: the client handle of the captured provider.
        check(unsafe { open(self.provider.Client, VERSION, interface, &raw mut adapter) })?;
        NonNull::new(adapter).ok_or(STATUS_NOT_SUPPORTED)
    }

    /// Closes an adapter. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `adapter` is from [`open`](Self::open), all its objects are closed, and it is not used afterwards.
    pub unsafe fn close(&self, adapter: NonNull<NDK_ADAPTER>) {
        let Some(close) = self.ndk.WskCloseNdkAdapter else { return };
        // SAFETY: the caller passes an adapter that this client opened and has not closed, with all its objects
        // closed.
        unsafe { close(self.provider.Client, adapter.as_ptr()) };
    }
}

fn ndk_functions(provider: &WSK_PROVIDER_NPI) -> Result<WSK_PROVIDER_NDK_DISPATCH> {
    let mut functions = WSK_PROVIDER_NDK_DISPATCH { WskOpenNdkAdapter: None, WskCloseNdkAdapter: None };
    // SAFETY: the table of a captured provider, which is captured as long as this function runs.
    let table = unsafe { &*provider.Dispatch };
    let control = table.WskControlClient.ok_or(STATUS_NOT_SUPPORTED)?;
    // SAFETY: the output buffer has the length passed. This control code completes inline and needs no IRP.
    check(unsafe {
        control(
            provider.Client,
            WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
            0,
            null_mut(),
            size_of::<WSK_PROVIDER_NDK_DISPATCH>(),
            (&raw mut functions).cast(),
            null_mut(),
            null_mut(),
        )
    })?;
    Ok(functions)
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: the value exists if the provider was captured, and is dropped once.
        unsafe { WskReleaseProviderNPI(self.0.0.as_mut_ptr()) };
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once; the provider is released.
        unsafe { WskDeregister(self.0.as_mut_ptr()) };
    }
}
