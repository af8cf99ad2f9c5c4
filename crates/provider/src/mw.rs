//! Memory windows: a part of a normal region, under a token of its own, for the peer of one queue pair.

use crate::dispatch;
use crate::mr::Mr;
use crate::object::{Body, Created, Ref};
use crate::pd::Pd;
use crate::status::{self, Answer};
use kernel::SpinLock;
use ndk_abi::ndk::{NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_TYPE};
use roce::Window;

/// What is special to a memory window.
pub struct Mw {
    window: Window,
    /// The region it was bound to last. //= R-CLOSE-14, R-CLOSE-29
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
    /// //= R-CREATE-44, R-MR-65, R-MR-68
    pub fn create(pd: &Ref<Pd>) -> Answer<Created<Self>> {
        let core = pd.core();
        let admission = core.quotas.mws.admit()?;
        let window = core.engine.create_window(pd.domain()).map_err(status::create)?;
        admission.keep();
        let bound_to = SpinLock::new(None);
        Created::try_new(pd.adapter().version(), Self { window, bound_to, pd: pd.clone() })
    }

    /// A bind to `region` was posted: it cannot be closed before this window is, or is bound elsewhere.
    pub fn on_bind(&self, region: &Ref<Mr>) {
        let before = self.bound_to.lock().replace(region.clone());
        drop(before);
    }

    /// //= R-MR-61
    pub fn token(&self) -> u32 {
        self.window.key()
    }

    pub fn pd(&self) -> &Ref<Pd> {
        &self.pd
    }
}
