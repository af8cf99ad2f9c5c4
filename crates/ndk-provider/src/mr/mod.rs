//! Memory regions: registered by a call ([`normal`]) or by requests ([`fast`]). Which of the two is decided
//! when the object is made, and the functions of the other one refuse it.

mod fast;
mod normal;

use crate::dispatch;
use crate::object::{Body, Created, Ref};
use crate::pd::Pd;
use crate::status::Answer;
pub use fast::Fast;
use ndk_abi::ndk::{NDK_MR, NDK_MR_DISPATCH, NDK_OBJECT_TYPE};
use ndk_abi::nt::STATUS_INVALID_DEVICE_REQUEST;
pub use normal::Normal;

/// What is special to a memory region.
pub struct Mr {
    kind: Kind,
    pd: Ref<Pd>,
}

enum Kind {
    Normal(Normal),
    Fast(Fast),
}

impl Body for Mr {
    type Public = NDK_MR;
    type Dispatch = NDK_MR_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMr;
    const DISPATCH: &'static NDK_MR_DISPATCH = &dispatch::mr::TABLE;

    //= R-CLOSE-27
    fn finish(&self) {
        match &self.kind {
            Kind::Normal(normal) => normal.finish(&self.pd),
            Kind::Fast(fast) => fast.finish(&self.pd),
        }
        self.pd.core().quotas.mrs.give_back();
    }
}

impl Mr {
    pub fn create(pd: &Ref<Pd>, fast_register: bool) -> Answer<Created<Self>> {
        let kind = if fast_register { Kind::Fast(Fast::new()) } else { Kind::Normal(Normal::new()) };
        pd.core().quotas.mrs.admit()?.keep();
        Created::try_new(pd.adapter().version(), Self { kind, pd: pd.clone() })
    }

    //= R-CREATE-42, R-CREATE-43, R-MR-67
    pub fn normal(&self) -> Answer<&Normal> {
        match &self.kind {
            Kind::Normal(normal) => Ok(normal),
            Kind::Fast(_) => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }

    //= R-CREATE-42, R-CREATE-43, R-MR-24, R-MR-43
    pub fn fast(&self) -> Answer<&Fast> {
        match &self.kind {
            Kind::Fast(fast) => Ok(fast),
            Kind::Normal(_) => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }

    /// The token of the memory; 0, which is none, when there is none yet.
    ///
    /// One token serves both sides; what a peer may do with it is the region's rights' business.
    //= R-MR-12, R-MR-13, R-MR-14, R-CREATE-44
    pub fn token(&self) -> u32 {
        match &self.kind {
            Kind::Normal(normal) => normal.token(),
            Kind::Fast(fast) => fast.token(),
        }
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
