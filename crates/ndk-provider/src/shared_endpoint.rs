//! Shared endpoints: one local address and port for many outgoing connections.

use crate::adapter::Adapter;
use crate::address::{of_link, on_link};
use crate::dispatch;
use crate::object::{Body, Created, Ref};
use crate::ports::{Endpoint, PortSpace, Purpose};
use crate::status::Answer;
use core::net::SocketAddr;
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH};
use ndk_abi::nt::STATUS_INVALID_ADDRESS;
use nt::SpinLock;

/// What is special to a shared endpoint.
pub struct SharedEndpoint {
    address: SocketAddr,
    /// Given back when the object and its connectors are closed.
    //= R-CLOSE-33, R-CONN-57
    endpoint: SpinLock<Option<Endpoint>>,
    adapter: Ref<Adapter>,
}

impl Body for SharedEndpoint {
    type Public = NDK_SHARED_ENDPOINT;
    type Dispatch = NDK_SHARED_ENDPOINT_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint;
    const DISPATCH: &'static NDK_SHARED_ENDPOINT_DISPATCH = &dispatch::shared_endpoint::TABLE;

    fn finish(&self) {
        let endpoint = self.endpoint.lock().take();
        drop(endpoint);
    }
}

impl SharedEndpoint {
    //= R-CREATE-47, R-CREATE-48, R-CREATE-49, R-CREATE-50, R-CREATE-52
    pub fn create(adapter: &Ref<Adapter>, address: SocketAddr) -> Answer<Created<Self>> {
        let core = adapter.core();
        let scope = core.host.link().scope;
        let address = on_link(address, scope).ok_or(STATUS_INVALID_ADDRESS)?;
        if !core.host.is_local(address.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        let endpoint = PortSpace::reserve(&core.ports, address, Purpose::SharedEndpoint)?;
        let body = Self {
            address: of_link(address.ip(), endpoint.port(), scope),
            endpoint: SpinLock::new(Some(endpoint)),
            adapter: adapter.clone(),
        };
        Created::try_new(adapter.version(), body)
    }

    /// With the port really taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}
