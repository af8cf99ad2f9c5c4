// SPDX-License-Identifier: MIT OR Apache-2.0

//! The provider's functions that need no socket.

use core::ffi::c_void;

use crate::{
    netio::{ADDRESS_FAMILY, SOCKADDR},
    nt::{EPROCESS, ETHREAD, GUID, IRP, NTSTATUS, UNICODE_STRING},
};

/// A captured provider: what identifies the client to it, and its functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_PROVIDER_NPI {
    pub Client: *mut c_void,
    pub Dispatch: *const WSK_PROVIDER_DISPATCH,
}

/// Functions of the provider, in its version. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WSK_PROVIDER_DISPATCH {
    pub Version: u16,
    pub Reserved: u16,
    pub WskSocket: Option<PFN_WSK_SOCKET>,
    pub WskSocketConnect: Option<PFN_WSK_SOCKET_CONNECT>,
    pub WskControlClient: Option<PFN_WSK_CONTROL_CLIENT>,
    pub WskGetAddressInfo: Option<PFN_WSK_GET_ADDRESS_INFO>,
    pub WskFreeAddressInfo: Option<PFN_WSK_FREE_ADDRESS_INFO>,
    pub WskGetNameInfo: Option<PFN_WSK_GET_NAME_INFO>,
}

/// Creates a socket.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type PFN_WSK_SOCKET = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    AddressFamily: ADDRESS_FAMILY,
    SocketType: u16,
    Protocol: u32,
    Flags: u32,
    SocketContext: *mut c_void,
    Dispatch: *const c_void,
    OwningProcess: *mut EPROCESS,
    OwningThread: *mut ETHREAD,
    SecurityDescriptor: *mut c_void,
    Irp: *mut IRP,
) -> NTSTATUS;

/// Creates, binds and connects a socket.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type PFN_WSK_SOCKET_CONNECT = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    SocketType: u16,
    Protocol: u32,
    LocalAddress: *mut SOCKADDR,
    RemoteAddress: *mut SOCKADDR,
    Flags: u32,
    SocketContext: *mut c_void,
    Dispatch: *const c_void,
    OwningProcess: *mut EPROCESS,
    OwningThread: *mut ETHREAD,
    SecurityDescriptor: *mut c_void,
    Irp: *mut IRP,
) -> NTSTATUS;

/// Controls what concerns no socket.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type PFN_WSK_CONTROL_CLIENT = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    ControlCode: u32,
    InputSize: usize,
    InputBuffer: *mut c_void,
    OutputSize: usize,
    OutputBuffer: *mut c_void,
    OutputSizeReturned: *mut usize,
    Irp: *mut IRP,
) -> NTSTATUS;

/// Resolves a name to addresses.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type PFN_WSK_GET_ADDRESS_INFO = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    NodeName: *mut UNICODE_STRING,
    ServiceName: *mut UNICODE_STRING,
    NameSpace: u32,
    Provider: *mut GUID,
    Hints: *mut c_void,
    Result: *mut *mut c_void,
    OwningProcess: *mut EPROCESS,
    OwningThread: *mut ETHREAD,
    Irp: *mut IRP,
) -> NTSTATUS;

/// Frees what `WskGetAddressInfo` returned.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type PFN_WSK_FREE_ADDRESS_INFO = unsafe extern "efiapi" fn(Client: *mut c_void, AddrInfo: *mut c_void);

/// Resolves an address to names.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type PFN_WSK_GET_NAME_INFO = unsafe extern "efiapi" fn(
    Client: *mut c_void,
    SockAddr: *mut SOCKADDR,
    SockAddrLength: u32,
    NodeName: *mut UNICODE_STRING,
    ServiceName: *mut UNICODE_STRING,
    Flags: u32,
    OwningProcess: *mut EPROCESS,
    OwningThread: *mut ETHREAD,
    Irp: *mut IRP,
) -> NTSTATUS;
