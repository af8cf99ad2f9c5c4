// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: a part of a normal memory region with a token of its own, for the peer of one queue pair.
//!
//!
//! The close of a region waits for the window that is bound to it: from the post of the
//! bind until an invalidation or a bind to another region is posted, or the window is closed. The outcome of the
//! posted request is not tracked here. So a window whose bind failed, or which the peer invalidated, keeps its
//! region until one of these calls. A region may be closed while the invalidation of its window is still queued:
//! the engine grants no access through a window whose region is gone.
//= R-CLOSE-14, R-CLOSE-29

use crate::base::object::closed::CloseLater;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::objects::mr::Mr;
use crate::objects::pd::Pd;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{NDK_MW, NDK_OBJECT_TYPE};
use nt::SpinLock;
use roce::{MemoryWindow, WindowType};

/// The data of a memory window object.
pub struct Mw {
    window: MemoryWindow,
    /// The region whose close waits for this window.
    bound_to: SpinLock<Option<Ref<Mr>>>,
    pd: Ref<Pd>,
}

impl ObjectType for Mw {
    type Public = NDK_MW;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMw;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.pd.provider())
    }

    fn on_finish(&self) {
        let provider = self.pd.provider();
        provider.engine.memory().destroy_window(&self.window);
        provider.quotas.mws.give_back();
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.pd.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.pd.as_ptr().cast() == antecedent
            || self.bound_to.lock().as_ref().is_some_and(|mr| mr.as_ptr().cast() == antecedent)
    }
}

impl Mw {
    /// `NdkCreateMw`.
    //= R-CREATE-44, R-MR-65, R-MR-68
    pub fn create(pd: &Ref<Pd>) -> NtResult<Created<Self>> {
        let provider = pd.provider();
        let admission = provider.quotas.mws.admit()?;
        let window =
            provider.engine.memory().create_window(pd.domain(), WindowType::Type2).map_err(status::create)?;
        admission.keep();
        let bound_to = SpinLock::new(None);
        Created::try_new(pd.adapter().version(), Self { window, bound_to, pd: pd.clone() })
    }

    /// Holds `region` and returns the region held before. The caller drops that one, without a lock, if the
    /// request was posted, and puts it back if the post failed. Called before the post, because the request may
    /// have completed and been followed by another one when the post returns.
    #[must_use = "dropping the previous region may close it"]
    pub fn set_region(&self, region: Option<Ref<Mr>>) -> Option<Ref<Mr>> {
        core::mem::replace(&mut *self.bound_to.lock(), region)
    }

    /// Returns the window's current token.
    //= R-MR-61
    pub fn token(&self) -> u32 {
        self.window.key()
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
