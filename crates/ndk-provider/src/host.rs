//! What the provider needs from the driver it lives in: the NIC and the system's view of its adapter.
//!
//! The driver implements [`Host`] once per miniport adapter and hands it to
//! [`Provider::try_new`](crate::Provider::try_new). Everything else the provider needs from the kernel
//! (locks, time, timers, work items) it takes from the `kernel` crate.
//!
//! Calls go both ways, never with a provider lock held in this direction; the driver may call back into the
//! provider from any of these except [`Host::transmit`]'s own pump.

use core::net::IpAddr;
use nt::Owner;

/// A resolved way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where frames to the peer go: its own address or its gateway's.
    pub remote_mac: [u8; 6],
    /// Largest IP packet that fits on the way, in bytes.
    pub mtu: u32,
}

/// Why a peer cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no route from the local to the remote address on this adapter.
    NetworkUnreachable,
    /// There is a route, but nobody answers at its next hop.
    HostUnreachable,
    /// Pool or another resource has run dry.
    NoResources,
}

/// The link as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Source address of every frame.
    pub mac: [u8; 6],
    /// Largest IP packet a frame may carry, in bytes: 1500, or more with jumbo frames.
    pub mtu: u32,
    /// The scope of link-local addresses on this link: the number of the adapter's interface.
    pub scope: u32,
}

/// An adapter of the driver, as the provider sees it.
pub trait Host: Send + Sync + 'static {
    /// Lets `pump` fill the transmit queue.
    ///
    /// `pump` is called with the queue's lock held, writes frames into slots of the queue, and returns how
    /// many; it is called again as long as it returns more than 0 and slots are free. The device is
    /// notified once, after the last call.
    ///
    /// When another thread is inside, the host may return at once without calling `pump`, provided that the
    /// thread inside calls its own pump once more before it leaves: pumps of one adapter are equivalent, and
    /// a frame that was ready when `transmit` was called goes out without waiting for a timer.
    ///
    /// When slots run out, the host calls [`Provider::transmit_ready`](crate::Provider::transmit_ready)
    /// after some have become free again. IRQL <= `DISPATCH_LEVEL`.
    fn transmit(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize);

    /// Finds the way from a local address of this adapter to a remote one. May wait for an answer of the
    /// network. `PASSIVE_LEVEL`.
    fn resolve(&self, local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError>;

    /// Whether `address` is a usable unicast address of this adapter at this moment. IRQL <=
    /// `DISPATCH_LEVEL`.
    fn is_local(&self, address: IpAddr) -> bool;

    /// The link's own address, size and scope. IRQL <= `DISPATCH_LEVEL`.
    fn link(&self) -> Link;

    /// Whether the device is still there. Once `false`, always `false`. IRQL <= `DISPATCH_LEVEL`.
    fn is_present(&self) -> bool;

    /// The NDIS handle in whose name work items are allocated; valid as long as the provider lives.
    fn owner(&self) -> Owner;
}
