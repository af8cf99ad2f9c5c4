// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of the driver that the provider calls.

use core::net::IpAddr;

use fallible::Arc;
use ndk_abi::ndis::NDIS_HANDLE;
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_provider::environment::{Environment, Link, ObjectChange, Path, ResolveError};
use nt::{DriverObject, Owner};
use viordma_inf::tracing::value::Hex;

use super::addresses::Addresses;
use super::interface::Interface;
use super::neighbor;
use crate::driver_object;
use crate::etw::{self, table};
use crate::nic::port::Port;

/// An NDIS handle of the adapter.
#[derive(Clone, Copy)]
pub struct Handle(NDIS_HANDLE);

// SAFETY: an opaque handle that NDIS takes on any thread.
unsafe impl Send for Handle {}
// SAFETY: shared use copies the handle, which is never dereferenced here.
unsafe impl Sync for Handle {}

impl Handle {
    pub const fn new(handle: NDIS_HANDLE) -> Self {
        Self(handle)
    }

    pub const fn get(self) -> NDIS_HANDLE {
        self.0
    }
}

/// The adapter as the provider's environment.
pub struct AdapterEnvironment {
    pub port: Arc<Port>,
    pub addresses: Arc<Addresses>,
    pub interface: Interface,
    pub link: Link,
    /// Peers in other IP subnets are unreachable: a setting of the system.
    pub same_subnet: bool,
    pub handle: Handle,
}

impl AdapterEnvironment {
    /// Returns the path to `remote` through the next hop `remote_mac`. The MTU that IP has on the interface bounds that of RDMA.
    /// `PASSIVE_LEVEL`.
    fn path(&self, remote: IpAddr, remote_mac: [u8; 6]) -> Path {
        Path { remote_mac, mtu: self.link.mtu.min(neighbor::ip_mtu(self.interface, remote)) }
    }
}

impl Environment for AdapterEnvironment {
    fn transmit(&self, shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        self.port.pump(shard, pump);
    }

    fn known_path(&self, local: IpAddr, remote: IpAddr) -> Result<Option<Path>, ResolveError> {
        let remote_mac = neighbor::known(self.interface, local, remote, self.same_subnet)?;
        Ok(remote_mac.map(|remote_mac| self.path(remote, remote_mac)))
    }

    fn resolve(&self, local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError> {
        let remote_mac = neighbor::resolve(self.interface, local, remote, self.same_subnet)?;
        Ok(self.path(remote, remote_mac))
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.contains(address)
    }

    fn link(&self) -> Link {
        self.link
    }

    fn is_present(&self) -> bool {
        self.port.has_rdma()
    }

    fn trace_object(&self, kind: NDK_OBJECT_TYPE, object: usize, change: ObjectChange) {
        etw::write(None, || table::NdkObjectChanged {
            interface: self.interface.index,
            object: name(kind),
            address: Hex(object as u32),
            change: match change {
                ObjectChange::Created => "created",
                ObjectChange::Closing => "closing",
                ObjectChange::Closed => "closed",
            },
        });
    }

    fn driver(&self) -> DriverObject {
        driver_object::get()
    }

    fn owner(&self) -> Owner {
        Owner::new(self.handle.0)
    }
}

/// Returns the name of a type of objects.
fn name(kind: NDK_OBJECT_TYPE) -> &'static str {
    match kind {
        NDK_OBJECT_TYPE::NdkObjectTypeQp => "queue pair",
        NDK_OBJECT_TYPE::NdkObjectTypeCq => "completion queue",
        NDK_OBJECT_TYPE::NdkObjectTypeMr => "memory region",
        NDK_OBJECT_TYPE::NdkObjectTypeMw => "memory window",
        NDK_OBJECT_TYPE::NdkObjectTypePd => "protection domain",
        NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint => "shared endpoint",
        NDK_OBJECT_TYPE::NdkObjectTypeConnector => "connector",
        NDK_OBJECT_TYPE::NdkObjectTypeListener => "listener",
        NDK_OBJECT_TYPE::NdkObjectTypeSrq => "shared receive queue",
        _ => "object",
    }
}
