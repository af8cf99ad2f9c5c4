// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK adapters: one for each open.

use super::lam::LogicalMappings;
use crate::base::limits;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::provider_state::ProviderState;
use crate::base::status::NtResult;
use crate::base::strict::Checker;
use fallible::Arc;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_VERSION};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::Event;

/// The data of an adapter object.
pub struct Adapter {
    provider: Arc<ProviderState>,
    version: NDK_VERSION,
    mappings: LogicalMappings,
    /// Allocated at open, because close cannot fail.
    closed: Arc<Event>,
}

impl ObjectType for Adapter {
    type Public = NDK_ADAPTER;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeAdapter;

    //= R-OPEN-29, R-CONSUMER-6
    fn on_finish(&self) {
        self.mappings.release_all(&self.provider.engine);
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.provider.checker.as_ref()
    }
}

impl Adapter {
    pub fn create(provider: &Arc<ProviderState>, version: NDK_VERSION) -> NtResult<Created<Self>> {
        const NO_RESOURCES: i32 = STATUS_INSUFFICIENT_RESOURCES;
        let closed = Arc::try_new(Event::try_new().ok_or(NO_RESOURCES)?).map_err(|_| NO_RESOURCES)?;
        let mappings = LogicalMappings::new();
        Created::try_new(version, Self { provider: Arc::clone(provider), version, mappings, closed })
    }

    /// Closes the adapter and returns when it is freed. `PASSIVE_LEVEL`.
    pub fn close(this: &Ref<Self>) {
        let closed = Arc::clone(&this.closed);
        this.close_and_wait(&closed);
    }

    pub fn provider(&self) -> &Arc<ProviderState> {
        &self.provider
    }

    /// Returns whether both adapters are open on the same miniport adapter. Their objects may then be used together.
    //= R-CONN-19, R-CREATE-36
    //= R-CONSUMER-1
    pub fn is_sibling_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.provider, &other.provider)
    }

    /// Returns the logical address mappings built on this adapter.
    pub fn mappings(&self) -> &LogicalMappings {
        &self.mappings
    }

    /// Returns the version in the header of all objects below this adapter.
    //= R-OPEN-13
    pub fn version(&self) -> NDK_VERSION {
        self.version
    }

    //= R-INFO-1, R-INFO-39
    pub fn info(&self) -> NDK_ADAPTER_INFO {
        limits::adapter_info(self.version)
    }
}
