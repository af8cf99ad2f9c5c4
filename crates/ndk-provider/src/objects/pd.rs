// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains.

use crate::base::object::closed::CloseLater;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::provider_state::ProviderState;
use crate::base::status::NtResult;
use crate::base::strict::Checker;
use crate::objects::adapter::Adapter;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_PD};

/// The data of a protection domain object.
pub struct Pd {
    domain: roce::Pd,
    adapter: Ref<Adapter>,
}

impl ObjectType for Pd {
    type Public = NDK_PD;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.adapter.provider())
    }

    fn on_finish(&self) {
        self.provider().quotas.pds.give_back();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.adapter.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.adapter.as_ptr().cast() == antecedent
    }
}

impl Pd {
    /// `NdkCreatePd`.
    //= R-CREATE-27
    pub fn create(adapter: &Ref<Adapter>) -> NtResult<Created<Self>> {
        let provider = adapter.provider();
        provider.quotas.pds.admit()?.keep();
        let domain = provider.engine.create_pd();
        Created::try_new(adapter.version(), Self { domain, adapter: adapter.clone() })
    }

    pub fn domain(&self) -> roce::Pd {
        self.domain
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }

    pub fn provider(&self) -> &Arc<ProviderState> {
        self.adapter.provider()
    }
}
