// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared endpoints: one local address and port for many outgoing connections.

use crate::base::address::{normalize, with_scope};
use crate::base::object::closed::CloseLater;
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::ports::{Endpoint, PortSpace, Purpose};
use crate::base::status::NtResult;
use crate::base::strict::Checker;
use crate::objects::adapter::Adapter;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_SHARED_ENDPOINT};
use ndk_abi::nt::STATUS_INVALID_ADDRESS;
use nt::SpinLock;

/// The data of a shared endpoint object.
pub struct SharedEndpoint {
    address: SocketAddr,
    /// Released when the object and its connectors are closed.
    //= R-CLOSE-33, R-CONN-57
    endpoint: SpinLock<Option<Endpoint>>,
    adapter: Ref<Adapter>,
}

impl ObjectType for SharedEndpoint {
    type Public = NDK_SHARED_ENDPOINT;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.adapter.provider())
    }

    fn on_finish(&self) {
        let endpoint = self.endpoint.lock().take();
        drop(endpoint);
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.adapter.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.adapter.as_ptr().cast() == antecedent
    }
}

impl SharedEndpoint {
    /// `NdkCreateSharedEndpoint`.
    //= R-CREATE-47, R-CREATE-48, R-CREATE-49, R-CREATE-50, R-CREATE-52
    pub fn create(adapter: &Ref<Adapter>, address: SocketAddr) -> NtResult<Created<Self>> {
        let provider = adapter.provider();
        let scope = provider.environment.link().scope;
        let address = normalize(address, scope).ok_or(STATUS_INVALID_ADDRESS)?;
        if !provider.environment.is_local(address.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        let endpoint = PortSpace::reserve(&provider.ports, address, Purpose::SharedEndpoint)?;
        let body = Self {
            address: with_scope(address.ip(), endpoint.port(), scope),
            endpoint: SpinLock::new(Some(endpoint)),
            adapter: adapter.clone(),
        };
        Created::try_new(adapter.version(), body)
    }

    /// Returns the address with the port that was reserved.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}
