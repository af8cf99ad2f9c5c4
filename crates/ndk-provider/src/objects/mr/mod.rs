// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions: registered by a call ([`normal`]) or by work requests ([`fast`]). The kind is chosen at create;
//! functions of the other kind fail.

mod fast;
mod normal;

use crate::base::object::closed::CloseLater;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::status::NtResult;
use crate::base::strict::Checker;
use crate::objects::pd::Pd;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::Arc;
pub use fast::Fast;
use ndk_abi::ndk::{NDK_MR, NDK_OBJECT_TYPE};
use ndk_abi::nt::STATUS_INVALID_DEVICE_REQUEST;
pub use normal::Normal;

/// The data of a memory region object.
pub struct Mr {
    kind: Kind,
    pd: Ref<Pd>,
}

enum Kind {
    Normal(Normal),
    Fast(Fast),
}

impl ObjectType for Mr {
    type Public = NDK_MR;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMr;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.pd.provider())
    }

    //= R-CLOSE-27
    fn on_finish(&self) {
        match &self.kind {
            Kind::Normal(normal) => normal.finish(&self.pd),
            Kind::Fast(fast) => fast.finish(&self.pd),
        }
        self.pd.provider().quotas.mrs.give_back();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.pd.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.pd.as_ptr().cast() == antecedent
    }
}

impl Mr {
    /// `NdkCreateMr`.
    pub fn create(pd: &Ref<Pd>, fast_register: bool) -> NtResult<Created<Self>> {
        let kind = if fast_register { Kind::Fast(Fast::new()) } else { Kind::Normal(Normal::new()) };
        pd.provider().quotas.mrs.admit()?.keep();
        Created::try_new(pd.adapter().version(), Self { kind, pd: pd.clone() })
    }

    /// Returns the normal region.
    ///
    /// # Errors
    /// `STATUS_INVALID_DEVICE_REQUEST` for a fast-register region.
    //= R-CREATE-42, R-CREATE-43, R-MR-67
    pub fn normal(&self) -> NtResult<&Normal> {
        match &self.kind {
            Kind::Normal(normal) => Ok(normal),
            Kind::Fast(_) => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }

    /// Returns the fast-register region.
    ///
    /// # Errors
    /// `STATUS_INVALID_DEVICE_REQUEST` for a normal region.
    //= R-CREATE-42, R-CREATE-43, R-MR-24, R-MR-43
    pub fn fast(&self) -> NtResult<&Fast> {
        match &self.kind {
            Kind::Fast(fast) => Ok(fast),
            Kind::Normal(_) => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }

    /// Returns the token of the region, or 0 if it has none yet.
    ///
    /// Local and remote token are the same; the region's access rights decide what a peer may do with it.
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
