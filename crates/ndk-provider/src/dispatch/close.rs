// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NdkCloseCq`, `NdkCloseQp` and so on: one function for all object types.

use crate::base::object::ObjectType;
use crate::base::object::callback::CloseCallback;
use crate::base::state::provider_state::ProviderState;
use crate::objects::connector::Connector;
use crate::objects::cq::Cq;
use crate::objects::listener::Listener;
use crate::objects::mr::Mr;
use crate::objects::mw::Mw;
use crate::objects::pd::Pd;
use crate::objects::qp::Qp;
use crate::objects::shared_endpoint::SharedEndpoint;
use crate::objects::srq::Srq;
use core::ffi::c_void;
use fallible::Arc;
use ndk_abi::ndk::{NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER};
use ndk_abi::nt::{NTSTATUS, STATUS_SUCCESS};

/// Object types that a consumer closes: all but the adapter, which NDIS closes.
pub trait Closable: ObjectType {
    fn provider(&self) -> &Arc<ProviderState>;
}

macro_rules! closable {
    ($($Type:ty: $antecedent:ident,)*) => { $(
        impl Closable for $Type {
            fn provider(&self) -> &Arc<ProviderState> {
                self.$antecedent().provider()
            }
        }
    )* };
}
//= R-CLOSE-13
closable! {
    Cq: adapter,
    Pd: adapter,
    SharedEndpoint: adapter,
    Connector: adapter,
    Listener: adapter,
    Mr: pd,
    Mw: pd,
    Srq: pd,
    Qp: pd,
}

/// `NdkClose*`.
pub unsafe extern "efiapi" fn close<T: Closable>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let object = object!(T, object.cast(), STATUS_SUCCESS);
    let provider = Arc::clone(object.provider());
    object.close(CloseCallback::new(completion, context), |reference| provider.pend_close(reference))
}
