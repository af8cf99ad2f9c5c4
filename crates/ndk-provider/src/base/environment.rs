// SPDX-License-Identifier: MIT OR Apache-2.0

//! The provider's needs of the driver around it: the NIC and the system's view of the adapter.
//!
//! The driver implements [`Environment`] once per miniport adapter and passes it to
//! [`Provider::try_new`](crate::Provider::try_new). Everything else the provider needs from the kernel
//! (locks, time, timers, work items) comes from the `nt` crate.
//!
//! The provider holds no lock of its own when it calls the environment. The environment may call the provider
//! from any of these functions except from within the pump of [`Environment::transmit`].

use core::fmt;
use core::net::IpAddr;
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use nt::{DriverObject, Owner};

/// A resolved path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Destination MAC address of frames to the peer: the peer's own or its gateway's.
    pub remote_mac: [u8; 6],
    /// Largest IP packet that fits on the path, in bytes.
    pub mtu: u32,
}

/// Why a peer cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no route from the local to the remote address on this adapter.
    NetworkUnreachable,
    /// There is a route, but its next hop does not answer neighbor discovery.
    HostUnreachable,
    /// Pool or another resource is exhausted.
    NoResources,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetworkUnreachable => "no route to the remote address",
            Self::HostUnreachable => "the next hop does not answer",
            Self::NoResources => "insufficient resources to resolve the path",
        })
    }
}

impl core::error::Error for ResolveError {}

/// The current state of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Source MAC address of every frame.
    pub mac: [u8; 6],
    /// Largest IP packet a frame may carry, in bytes: 1500, or more with jumbo frames.
    pub mtu: u32,
    /// Scope ID of link-local addresses on this link: the interface index of the adapter.
    pub scope: u32,
}

/// A change of an NDK object, for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// The consumer has the object.
    Created,
    /// The consumer closes the object.
    Closing,
    /// No reference to the object is left.
    Closed,
}

/// The adapter and the system around the provider.
pub trait Environment: Send + Sync + 'static {
    /// Lets `pump` fill the transmit queue of a shard, less than [`Config::shards`](crate::Config::shards).
    ///
    /// The implementation calls `pump` with the queue's lock held. `pump` writes frames into slots of the queue
    /// and returns their number; it is called again as long as it returns more than 0 and slots are free. The
    /// device is notified once, after the last call.
    ///
    /// If another thread is inside, the implementation may return at once without calling `pump`, provided that
    /// the other thread calls its own pump of the same shard once more before it leaves: all pumps of one shard are
    /// equivalent, and a frame that was ready when `transmit` was called must not wait for a timer.
    ///
    /// When slots run out, the implementation calls
    /// [`Provider::shard_ready`](crate::Provider::shard_ready) after some have become free again.
    /// IRQL <= `DISPATCH_LEVEL`.
    fn transmit(&self, shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize);

    /// Returns the path from a local address of this adapter to a remote address, as far as the system knows it; `None` if
    /// finding it takes to wait for the network. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve).
    fn known_path(&self, local: IpAddr, remote: IpAddr) -> Result<Option<Path>, ResolveError>;

    /// Resolves the path from a local address of this adapter to a remote address. May wait for neighbor discovery, so that the
    /// provider calls it on a thread of its own. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`ResolveError`] if the remote address is not reachable or resources are exhausted.
    fn resolve(&self, local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError>;

    /// Returns whether `address` is a usable unicast address of this adapter now. IRQL <= `DISPATCH_LEVEL`.
    fn is_local(&self, address: IpAddr) -> bool;

    /// Returns the link's MAC address, MTU and scope. IRQL <= `DISPATCH_LEVEL`.
    fn link(&self) -> Link;

    /// Returns whether the device is present and works. IRQL <= `DISPATCH_LEVEL`.
    fn is_present(&self) -> bool;

    /// Returns the driver object, for threads.
    fn driver(&self) -> DriverObject;

    /// Traces a change of the object of this type at this address. Locks may be held. IRQL <= `DISPATCH_LEVEL`.
    fn trace_object(&self, _kind: NDK_OBJECT_TYPE, _object: usize, _change: ObjectChange) {}

    /// Returns the NDIS handle that work items are allocated with; valid as long as the provider lives.
    fn owner(&self) -> Owner;
}
