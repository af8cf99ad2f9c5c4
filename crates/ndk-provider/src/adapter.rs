//! NDK adapters: one for each open.

use crate::dispatch;
use crate::info;
use crate::lam::Mappings;
use crate::object::{Body, Created, Ref};
use crate::provider::Core;
use crate::status::Answer;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_VERSION};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::{Event, SpinLock};
use roce::Arc;

/// The highest minor of every major that is served.
//= R-OPEN-14, R-OPEN-15, R-CONN-99
const SERVED: [NDK_VERSION; 2] = [NDK_VERSION { Major: 1, Minor: 2 }, NEWEST];

/// What NDIS is shown.
pub const NEWEST: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

/// The version an adapter works at whose opener asked for `asked`.
//= R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-12
pub fn negotiate(asked: NDK_VERSION) -> Option<NDK_VERSION> {
    SERVED.into_iter().find(|served| served.Major == asked.Major && asked.Minor <= served.Minor)
}

/// What is special to an adapter.
pub struct Adapter {
    core: Arc<Core>,
    version: NDK_VERSION,
    pub(crate) mappings: SpinLock<Mappings>,
    /// Made at open: close cannot fail.
    closed: Arc<Event>,
}

impl Body for Adapter {
    type Public = NDK_ADAPTER;
    type Dispatch = NDK_ADAPTER_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeAdapter;
    const DISPATCH: &'static NDK_ADAPTER_DISPATCH = &dispatch::adapter::TABLE;

    //= R-OPEN-29
    fn finish(&self) {
        self.mappings.lock().release_all(&self.core.engine);
    }
}

impl Adapter {
    pub fn create(core: &Arc<Core>, version: NDK_VERSION) -> Answer<Created<Self>> {
        const NO: i32 = STATUS_INSUFFICIENT_RESOURCES;
        let closed = Arc::try_new(Event::try_new().ok_or(NO)?).map_err(|_| NO)?;
        let mappings = SpinLock::new(Mappings::new());
        Created::try_new(version, Self { core: Arc::clone(core), version, mappings, closed })
    }

    /// Closes the adapter and returns when it is gone. `PASSIVE_LEVEL`.
    pub fn close(this: &Ref<Self>) {
        let closed = Arc::clone(&this.closed);
        this.close_and_wait(&closed);
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What every object below carries in its header.
    //= R-OPEN-13
    pub fn version(&self) -> NDK_VERSION {
        self.version
    }

    //= R-INFO-1, R-INFO-39
    pub fn info(&self) -> NDK_ADAPTER_INFO {
        info::adapter_info(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u16, minor: u16) -> NDK_VERSION {
        NDK_VERSION { Major: major, Minor: minor }
    }

    fn negotiated(major: u16, minor: u16) -> Option<(u16, u16)> {
        negotiate(version(major, minor)).map(|version| (version.Major, version.Minor))
    }

    //= R-OPEN-9
    #[test]
    fn a_major_that_is_not_served_is_refused() {
        assert!([0, 3, 0xffff].into_iter().all(|major| negotiated(major, 0).is_none()));
    }

    //= R-OPEN-10, R-OPEN-12, R-OPEN-14, R-OPEN-15
    #[test]
    fn every_minor_up_to_the_highest_gets_the_highest() {
        assert!((0..=2).all(|minor| negotiated(1, minor) == Some((1, 2))));
        assert!((0..=1).all(|minor| negotiated(2, minor) == Some((2, 1))));
    }

    //= R-OPEN-11
    #[test]
    fn a_minor_above_the_highest_is_refused() {
        assert_eq!([negotiated(1, 3), negotiated(2, 2), negotiated(1, 0xffff)], [None; 3]);
    }
}
