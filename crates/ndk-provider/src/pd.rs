//! Protection domains.

use crate::adapter::Adapter;
use crate::dispatch;
use crate::object::{Body, Created, Ref};
use crate::provider::Core;
use crate::status::Answer;
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_PD, NDK_PD_DISPATCH};
use roce::Arc;

/// What is special to a protection domain.
pub struct Pd {
    domain: roce::Pd,
    adapter: Ref<Adapter>,
}

impl Body for Pd {
    type Public = NDK_PD;
    type Dispatch = NDK_PD_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;
    const DISPATCH: &'static NDK_PD_DISPATCH = &dispatch::pd::TABLE;

    fn finish(&self) {
        self.core().quotas.pds.give_back();
    }
}

impl Pd {
    //= R-CREATE-27
    pub fn create(adapter: &Ref<Adapter>) -> Answer<Created<Self>> {
        let core = adapter.core();
        core.quotas.pds.admit()?.keep();
        let domain = core.engine.create_pd();
        Created::try_new(adapter.version(), Self { domain, adapter: adapter.clone() })
    }

    pub fn domain(&self) -> roce::Pd {
        self.domain
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }

    pub fn core(&self) -> &Arc<Core> {
        self.adapter.core()
    }
}
