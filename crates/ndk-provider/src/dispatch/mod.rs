//! The skin: functions in the consumer's calling convention around the objects, the consumer's callbacks,
//! the consumer's memory. `unsafe` is here, in the object core, and nowhere else.
//!
//! Every function of the tables does the same three things: it takes the consumer's pointers for what they
//! are, calls safe code, and answers. A pointer that is not an object of the right type is answered with
//! `STATUS_INVALID_PARAMETER`, or with nothing where nothing can be answered.
//!
//! **What the consumer promises** (the contract of NDKPI, and the argument of every `SAFETY` below): an object
//! pointer was handed out by this provider and is not closed before the call returns; other pointers are
//! valid for what the header says of them until the call returns, or until the callback when it pends.
//= R-OPEN-22, R-OPEN-39, R-IRQL-1

pub mod adapter;
pub mod callback;
pub mod connector;
pub mod cq;
pub mod listener;
pub mod memory;
mod miniport;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod shared_endpoint;
pub mod srq;

use crate::object::{Body, Context, Created};
use crate::provider::Core;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER, NDK_VERSION};
use ndk_abi::nt::{
    GUID, NTSTATUS, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_PENDING, STATUS_SUCCESS,
};
use roce::Arc;

/// The object behind a consumer's pointer, or the given answer.
macro_rules! object {
    ($Type:ty, $pointer:expr) => {
        $crate::dispatch::object!($Type, $pointer, ndk_abi::nt::STATUS_INVALID_PARAMETER)
    };
    ($Type:ty, $pointer:expr, or return) => {
        // SAFETY: the consumer's promise about object pointers.
        match unsafe { $crate::object::Borrow::<$Type>::new($pointer) } {
            Some(object) => object,
            None => return,
        }
    };
    ($Type:ty, $pointer:expr, $otherwise:expr) => {
        // SAFETY: the consumer's promise about object pointers.
        match unsafe { $crate::object::Borrow::<$Type>::new($pointer) } {
            Some(object) => object,
            None => return $otherwise,
        }
    };
}
pub(crate) use object;

/// Objects below an adapter.
pub trait Below: Body {
    fn core(&self) -> &Arc<Core>;
}

macro_rules! below {
    ($($Type:ty: $path:ident $(. $more:ident)*,)*) => { $(
        impl Below for $Type {
            fn core(&self) -> &Arc<Core> {
                self.$path()$(.$more())*.core()
            }
        }
    )* };
}
below! {
    crate::cq::Cq: adapter,
    crate::pd::Pd: adapter,
    crate::mr::Mr: pd,
    crate::mw::Mw: pd,
    crate::srq::Srq: pd,
    crate::qp::Qp: pd,
    crate::shared_endpoint::SharedEndpoint: adapter,
    crate::connector::Connector: adapter,
    crate::listener::Listener: adapter,
}

/// `NdkClose*`.
pub unsafe extern "efiapi" fn close<T: Below>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let object = object!(T, object.cast(), STATUS_SUCCESS);
    let core = Arc::clone(object.core());
    object.close(completion, Context::new(context), |hold| core.linger(hold))
}

/// `NdkQueryExtension`: there are none. The output stays as it is.
//= R-EXT-1, R-EXT-2, R-EXT-3, R-EXT-4, R-EXT-5, R-EXT-7
pub unsafe extern "efiapi" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// Answers a create call.
///
///
/// # Safety
/// `out` is where the consumer wants the object, valid during the call.
//= R-CREATE-1, R-CREATE-3, R-CREATE-5
unsafe fn answer_create<T: Body>(
    outcome: Result<Created<T>, NTSTATUS>,
    out: *mut *mut T::Public,
) -> NTSTATUS {
    let (status, object) = match outcome {
        Ok(created) => (STATUS_SUCCESS, created.publish()),
        // The slot is the consumer's again: its callback may have run already.
        Err(STATUS_PENDING) => return STATUS_PENDING,
        Err(status) => (status, core::ptr::null_mut()),
    };
    // SAFETY: the caller's promise.
    unsafe { out.write(object) };
    status
}

/// Bytes of the consumer's.
///
///
/// # Safety
/// `bytes` is null or valid for reading `length` bytes during `'a`.
//= R-CONN-14, R-CONN-16
unsafe fn bytes<'a>(bytes: *const c_void, length: u32) -> Result<&'a [u8], NTSTATUS> {
    match (bytes.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(STATUS_INVALID_PARAMETER),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts(bytes.cast(), length as usize) }),
    }
}

/// A pointer of the consumer's that goes to the thread of a work item, while the call pends.
struct Sent<T>(T);

// SAFETY: what the consumer gives to a call that pends is the provider's, on any thread, until the callback.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn get(self) -> T {
        self.0
    }
}
