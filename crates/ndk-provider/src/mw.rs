//! Memory windows: a part of a normal region, under a token of its own, for the peer of one queue pair.
//!
//! A region cannot be closed before the window that is bound to it (R-CLOSE-14, R-CLOSE-29): from the post of
//! the bind on, until an invalidation or a bind to another region is posted, or the window is closed. What becomes
//! of a request at its turn is not followed here. So a window whose bind failed, or whose peer invalidated it, keeps
//! its region until one of these; and a region may go while the invalidation of its window still waits, since the
//! engine lets a window to a region that is gone grant nothing.
//= R-CLOSE-14, R-CLOSE-29

use crate::dispatch;
use crate::mr::Mr;
use crate::object::{Body, Created, Ref};
use crate::pd::Pd;
use crate::status::{self, Answer};
use ndk_abi::ndk::{NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_TYPE};
use nt::SpinLock;
use roce::Window;

/// What is special to a memory window.
pub struct Mw {
    window: Window,
    /// The region that waits for it.
    bound_to: SpinLock<Option<Ref<Mr>>>,
    pd: Ref<Pd>,
}

impl Body for Mw {
    type Public = NDK_MW;
    type Dispatch = NDK_MW_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMw;
    const DISPATCH: &'static NDK_MW_DISPATCH = &dispatch::mw::TABLE;

    fn finish(&self) {
        let core = self.pd.core();
        core.engine.destroy_window(&self.window);
        core.quotas.mws.give_back();
    }
}

impl Mw {
    //= R-CREATE-44, R-MR-65, R-MR-68
    pub fn create(pd: &Ref<Pd>) -> Answer<Created<Self>> {
        let core = pd.core();
        let admission = core.quotas.mws.admit()?;
        let window = core.engine.create_window(pd.domain()).map_err(status::create)?;
        admission.keep();
        let bound_to = SpinLock::new(None);
        Created::try_new(pd.adapter().version(), Self { window, bound_to, pd: pd.clone() })
    }

    /// Keeps `region` instead of what it kept before, which is returned: to be let go of under no lock when the
    /// request is posted, and kept again when it is refused. Called before the post, for the request may be
    /// complete and followed by another one when the post returns.
    #[must_use = "what is let go of may be closed by that"]
    pub fn keep(&self, region: Option<Ref<Mr>>) -> Option<Ref<Mr>> {
        core::mem::replace(&mut *self.bound_to.lock(), region)
    }

    //= R-MR-61
    pub fn token(&self) -> u32 {
        self.window.key()
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
