// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions that consumers call, one file per NDK object: `NdkCreateQp`, `NdkSend` and the QP dispatch table
//! are in `qp`, and so on. `close` and `query_extension` are common to all objects.
//!
//! Every function does the same: it checks the consumer's pointers, calls the object, and returns a status. For
//! a pointer that is not an object of the right type it returns `STATUS_INVALID_PARAMETER`, or does nothing if
//! it returns no status.
//!
//! **What the consumer promises** (the contract of NDKPI, on which every `SAFETY` below relies): an object pointer
//! was published by this provider and is not closed before the call returns; other pointers are valid for what
//! the header says of them until the call returns, or, if it pends, until its callback.
//= R-OPEN-22, R-OPEN-39, R-IRQL-1, R-CLOSE-37

/// Returns the object behind a consumer's pointer, or returns the given value from the calling function.
macro_rules! object {
    ($Type:ty, $pointer:expr) => {
        object!($Type, $pointer, ndk_abi::nt::STATUS_INVALID_PARAMETER)
    };
    ($Type:ty, $pointer:expr, or return) => {
        // SAFETY: the consumer's promise about object pointers.
        match unsafe { $crate::base::object::Borrow::<$Type>::new($pointer) } {
            Some(object) => object,
            None => return,
        }
    };
    // A create call: `$out` is the consumer's variable for the new object, without which nothing is created.
    ($Type:ty, $pointer:expr, or null in $out:expr) => {
        // SAFETY: the consumer's promise about object pointers.
        match unsafe { $crate::base::object::Borrow::<$Type>::new($pointer) } {
            Some(object) if !$out.is_null() => object,
            // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call
            // completes.
            _ => return unsafe { $crate::dispatch::created_object::refuse($out) },
        }
    };
    ($Type:ty, $pointer:expr, $otherwise:expr) => {
        // SAFETY: the consumer's promise about object pointers.
        match unsafe { $crate::base::object::Borrow::<$Type>::new($pointer) } {
            Some(object) => object,
            None => return $otherwise,
        }
    };
}

mod adapter;
mod buffers;
mod close;
mod connector;
mod cq;
mod created_object;
mod lam;
mod listener;
mod mr;
mod mw;
mod pd;
mod qp;
mod query_extension;
mod sge_list;
mod shared_endpoint;
mod srq;
#[cfg(feature = "strict")]
mod strict;
