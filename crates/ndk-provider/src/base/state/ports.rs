// SPDX-License-Identifier: MIT OR Apache-2.0

//! The port space of one adapter: which local endpoints are in use, and for what.
//!
//! RDMA ports are a separate space, not shared with the host's TCP. An [`Endpoint`] is a
//! reservation that ends when dropped. Its owner is a listener or a shared endpoint, which outlives its
//! connectors, or a connector itself.
//= R-CONN-63, R-CONN-57, R-CONN-58
//= R-CONN-54, R-CONN-55, R-CONN-56

use crate::base::status::NtResult;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use fallible::Arc;
use ndk_abi::nt::{STATUS_INSUFFICIENT_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_TOO_MANY_ADDRESSES};
use nt::SpinLock;

/// The first ephemeral port, chosen for a request of port 0. The last one is 65535.
//= R-CONN-1, R-CREATE-47
pub const FIRST_EPHEMERAL: u16 = 49152;

/// The purpose for which an endpoint is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Listener,
    SharedEndpoint,
    Connector,
}

/// The endpoints in use.
pub struct PortSpace {
    reserved: SpinLock<Reserved>,
}

struct Reserved {
    /// Ordered by port, then address. A wildcard represents all addresses of its family.
    endpoints: Vec<(u16, IpAddr, Purpose)>,
    /// Where the next search for an ephemeral port starts, so that ports are reused as late as possible.
    next: u16,
}

/// One endpoint, reserved until this is dropped.
pub struct Endpoint {
    space: Arc<PortSpace>,
    address: SocketAddr,
}

impl PortSpace {
    /// Returns an empty space. `seed` selects the first ephemeral port.
    pub fn new(seed: u16) -> Self {
        let next = FIRST_EPHEMERAL | seed;
        Self { reserved: SpinLock::new(Reserved { endpoints: Vec::new(), next }) }
    }

    /// Reserves `address`, or a free ephemeral port on it if its port is 0.
    ///
    /// # Errors
    /// `STATUS_SHARING_VIOLATION` if it is in use, `STATUS_TOO_MANY_ADDRESSES` without a free ephemeral port,
    /// `STATUS_INSUFFICIENT_RESOURCES` without memory.
    //= R-CREATE-48, R-CREATE-50, R-CONN-1, R-CONN-3, R-CONN-50
    pub fn reserve(space: &Arc<Self>, address: SocketAddr, purpose: Purpose) -> NtResult<Endpoint> {
        let mut reserved = space.reserved.lock();
        let port = match address.port() {
            0 => reserved.ephemeral(address.ip()).ok_or(STATUS_TOO_MANY_ADDRESSES)?,
            port => port,
        };
        if reserved.overlaps(address.ip(), port) {
            return Err(STATUS_SHARING_VIOLATION);
        }
        let entry = (port, address.ip(), purpose);
        let position = reserved.endpoints.partition_point(|&(port, ip, _)| (port, ip) < (entry.0, entry.1));
        fallible::vec::insert(&mut reserved.endpoints, position, entry)
            .map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        Ok(Endpoint { space: Arc::clone(space), address: SocketAddr::new(address.ip(), port) })
    }

    /// Calls `each` with every reserved endpoint, under the lock.
    pub fn for_each(&self, mut each: impl FnMut(SocketAddr, Purpose)) {
        for &(port, ip, purpose) in &self.reserved.lock().endpoints {
            each(SocketAddr::new(ip, port), purpose);
        }
    }
}

impl Reserved {
    /// Returns whether the port is reserved on this address, on the wildcard of its family, or, if `ip` is a
    /// wildcard, on any address of the family. One port has few owners: an adapter has few addresses.
    //= R-CONN-53, R-CONN-54
    fn overlaps(&self, ip: IpAddr, port: u16) -> bool {
        let first = self.endpoints.partition_point(|entry| entry.0 < port);
        let owners = self.endpoints.iter().skip(first).take_while(|entry| entry.0 == port);
        owners.into_iter().any(|&(_, other, _)| {
            let wildcard = other.is_unspecified() || ip.is_unspecified();
            other == ip || wildcard && other.is_ipv4() == ip.is_ipv4()
        })
    }

    fn ephemeral(&mut self, ip: IpAddr) -> Option<u16> {
        let first = self.next;
        let candidates = (first..=u16::MAX).chain(FIRST_EPHEMERAL..first);
        let port = candidates.into_iter().find(|&port| !self.overlaps(ip, port))?;
        self.next = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL);
        Some(port)
    }
}

impl Endpoint {
    /// Returns the port that was reserved.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let own = (self.address.port(), self.address.ip());
        self.space.reserved.lock().endpoints.retain(|&(port, ip, _)| (port, ip) != own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Arc<PortSpace> {
        Arc::try_new(PortSpace::new(0)).ok().unwrap()
    }

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    //= R-CREATE-48, R-CONN-3
    #[test]
    fn endpoint_is_exclusive_until_it_is_dropped() {
        let space = space();
        let first = PortSpace::reserve(&space, at("192.0.2.1:445"), Purpose::Listener).unwrap();
        let again = PortSpace::reserve(&space, at("192.0.2.1:445"), Purpose::SharedEndpoint);
        assert_eq!(again.err(), Some(STATUS_SHARING_VIOLATION));
        assert!(PortSpace::reserve(&space, at("192.0.2.2:445"), Purpose::Listener).is_ok());
        drop(first);
        assert!(PortSpace::reserve(&space, at("192.0.2.1:445"), Purpose::Connector).is_ok());
    }

    //= R-CONN-53, R-CONN-54
    #[test]
    fn wildcard_includes_all_addresses_of_its_family() {
        let space = space();
        let reserve = |address| PortSpace::reserve(&space, at(address), Purpose::Listener);
        let all = reserve("0.0.0.0:445").unwrap();
        assert_eq!(reserve("192.0.2.1:445").err(), Some(STATUS_SHARING_VIOLATION));
        assert_eq!(reserve("0.0.0.0:445").err(), Some(STATUS_SHARING_VIOLATION));
        let others = [reserve("[::]:445").unwrap(), reserve("192.0.2.1:446").unwrap()];
        assert_eq!(reserve("[2001:db8::1]:445").err(), Some(STATUS_SHARING_VIOLATION));
        assert_eq!(reserve("0.0.0.0:446").err(), Some(STATUS_SHARING_VIOLATION));
        drop((all, others));
        assert!(reserve("192.0.2.1:445").is_ok());
    }

    /// A peer may still have a connection from a port that was just in use.
    //= R-CONN-1
    #[test]
    fn an_ephemeral_port_is_not_used_again_at_once() {
        let space = space();
        let ports: Vec<u16> = (0..3)
            .map(|_| PortSpace::reserve(&space, at("192.0.2.1:0"), Purpose::Connector).unwrap().port())
            .collect();
        assert_eq!(ports, [FIRST_EPHEMERAL, FIRST_EPHEMERAL + 1, FIRST_EPHEMERAL + 2]);
    }

    //= R-CONN-1, R-CREATE-47, R-CREATE-50
    #[test]
    fn port_0_gets_every_ephemeral_port_and_then_fails() {
        let space = space();
        let mut all: Vec<Endpoint> = (FIRST_EPHEMERAL..=u16::MAX)
            .map(|_| PortSpace::reserve(&space, at("192.0.2.1:0"), Purpose::Connector).unwrap())
            .collect();
        assert!(all.iter().all(|endpoint| endpoint.port() >= FIRST_EPHEMERAL));
        let none = PortSpace::reserve(&space, at("192.0.2.1:0"), Purpose::Connector);
        assert_eq!(none.err(), Some(STATUS_TOO_MANY_ADDRESSES));
        let freed = all.pop().unwrap().port();
        let again = PortSpace::reserve(&space, at("192.0.2.1:0"), Purpose::Connector).unwrap();
        assert_eq!(again.port(), freed);
    }
}
