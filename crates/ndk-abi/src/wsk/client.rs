// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration of a Winsock Kernel client.

use core::ffi::c_void;

use super::WSK_PROVIDER_NPI;
use crate::nt::{KSPIN_LOCK, NTSTATUS};

/// A client's context and functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_CLIENT_NPI {
    pub ClientContext: *mut c_void,
    pub Dispatch: *const WSK_CLIENT_DISPATCH,
}

/// A client's version (major in the high byte), and what it is notified by. Valid until the client has deregistered.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_CLIENT_DISPATCH {
    pub Version: u16,
    pub Reserved: u16,
    pub WskClientEvent: Option<PFN_WSK_CLIENT_EVENT>,
}

/// A registration. The client provides the memory; its contents belong to Winsock Kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_REGISTRATION {
    pub ReservedRegistrationState: u64,
    pub ReservedRegistrationContext: *mut c_void,
    pub ReservedRegistrationLock: KSPIN_LOCK,
}

/// The versions that the provider supports.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WSK_PROVIDER_CHARACTERISTICS {
    pub HighestVersion: u16,
    pub LowestVersion: u16,
}

/// Notifies a client of an event that concerns no socket.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type PFN_WSK_CLIENT_EVENT = unsafe extern "efiapi" fn(
    ClientContext: *mut c_void,
    EventType: u32,
    Information: *mut c_void,
    InformationLength: usize,
) -> NTSTATUS;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "netio"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn WskRegister(WskClientNpi: *mut WSK_CLIENT_NPI, WskRegistration: *mut WSK_REGISTRATION)
    -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn WskDeregister(WskRegistration: *mut WSK_REGISTRATION);
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn WskCaptureProviderNPI(
        WskRegistration: *mut WSK_REGISTRATION,
        WaitTimeout: u32,
        WskProviderNpi: *mut WSK_PROVIDER_NPI,
    ) -> NTSTATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn WskReleaseProviderNPI(WskRegistration: *mut WSK_REGISTRATION);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn WskQueryProviderCharacteristics(
        WskRegistration: *mut WSK_REGISTRATION,
        WskProviderCharacteristics: *mut WSK_PROVIDER_CHARACTERISTICS,
    ) -> NTSTATUS;
}

/// `WaitTimeout`: do not wait.
pub const WSK_NO_WAIT: u32 = 0;
/// `WaitTimeout`: wait without a limit.
pub const WSK_INFINITE_WAIT: u32 = 0xffff_ffff;
