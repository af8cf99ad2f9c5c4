// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NdkQueryExtension` of all objects.

use crate::base::object::ObjectType;
use ndk_abi::ndk::{NDK_EXTENSION_INTERFACE, NDK_OBJECT_HEADER, NDK_VERSION};
use ndk_abi::nt::{GUID, NTSTATUS, STATUS_NOT_SUPPORTED};

/// `NdkQueryExtension`: no extension is supported. The output is left unchanged.
//= R-EXT-1, R-EXT-2, R-EXT-3, R-EXT-4, R-EXT-5, R-EXT-7
pub unsafe extern "efiapi" fn query_extension<T: ObjectType>(
    object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    let _object = object!(T, object.cast());
    STATUS_NOT_SUPPORTED
}
