// SPDX-License-Identifier: MIT OR Apache-2.0

//! Common parts of all NDK objects: header, close, completion callbacks (`ndkpi.h`).

use core::ffi::c_void;

use crate::nt::{GUID, NTSTATUS};

/// Kind of an NDK object, in every `NDK_OBJECT_HEADER`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDK_OBJECT_TYPE(pub i32);

impl NDK_OBJECT_TYPE {
    pub const NdkObjectTypeUndefined: Self = Self(0);
    pub const NdkObjectTypeAdapter: Self = Self(1);
    pub const NdkObjectTypeQp: Self = Self(2);
    pub const NdkObjectTypeCq: Self = Self(3);
    pub const NdkObjectTypeMr: Self = Self(4);
    pub const NdkObjectTypeMw: Self = Self(5);
    pub const NdkObjectTypePd: Self = Self(6);
    pub const NdkObjectTypeSharedEndpoint: Self = Self(7);
    pub const NdkObjectTypeConnector: Self = Self(8);
    pub const NdkObjectTypeListener: Self = Self(9);
    pub const NdkObjectTypeSrq: Self = Self(10);
    pub const NdkObjectTypeMax: Self = Self(11);
}

/// NDKPI version: `Major` names an interface, a higher `Minor` is a superset.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_VERSION {
    pub Major: u16,
    pub Minor: u16,
}

/// Owned by NDIS and the NDK layer: zeroed at creation, never touched again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
    pub rf: [*mut c_void; 4],
}

/// First member of every NDK object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_OBJECT_HEADER {
    pub Version: NDK_VERSION,
    pub ObjectType: NDK_OBJECT_TYPE,
    pub NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK,
}

/// Pointer to the dispatch table of an extension; no extension is defined by any public source.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_EXTENSION_INTERFACE {
    pub Dispatch: *const c_void,
}

/// Tells the consumer the outcome of a create that pended; `pNdkObject` is null on failure.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_COMPLETION =
    unsafe extern "efiapi" fn(Context: *mut c_void, Status: NTSTATUS, pNdkObject: *mut NDK_OBJECT_HEADER);

/// Tells the consumer the outcome of a request that pended.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_REQUEST_COMPLETION = unsafe extern "efiapi" fn(Context: *mut c_void, Status: NTSTATUS);

/// Tells the consumer that a close that pended has ended.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CLOSE_COMPLETION = unsafe extern "efiapi" fn(Context: *mut c_void);

/// Closes an object; `STATUS_PENDING` promises a call to `CloseCompletion`.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CLOSE_OBJECT = unsafe extern "efiapi" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    CloseCompletion: Option<NDK_FN_CLOSE_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Asks any object for an extension interface.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_QUERY_EXTENSION_INTERFACE = unsafe extern "efiapi" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    ExtensionInterfaceID: *mut GUID,
    ExtensionInterfaceVersion: NDK_VERSION,
    pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS;
