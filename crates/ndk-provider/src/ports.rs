//! The port space of one adapter: which local endpoints are taken, and by what.
//!
//! RDMA ports are a space of their own, not shared with the host's TCP (R-CONN-63). An [`Endpoint`] is a
//! reservation and ends when dropped; who owns it decides how long that is: a listener or shared endpoint
//! object, which outlives its connectors, or the connector itself (
//! R-CONN-57, R-CONN-58).
//= R-CONN-63
//= R-CONN-54, R-CONN-55, R-CONN-56

use crate::fallible;
use crate::status::Answer;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use ndk_abi::nt::{STATUS_INSUFFICIENT_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_TOO_MANY_ADDRESSES};
use nt::SpinLock;
use roce::Arc;

/// First of the ports chosen for those who ask for port 0; the last is 65535.
//= R-CONN-1, R-CREATE-47
pub const FIRST_EPHEMERAL: u16 = 49152;

/// What holds an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Listener,
    SharedEndpoint,
    Connector,
}

/// The endpoints taken.
pub struct PortSpace {
    taken: SpinLock<Taken>,
}

struct Taken {
    /// Ordered by port, then address. A wildcard stands for all addresses of its family.
    endpoints: Vec<(u16, IpAddr, Purpose)>,
    /// Where the search for an ephemeral port begins: ports are reused as late as possible.
    next: u16,
}

/// One endpoint, reserved as long as this lives.
pub struct Endpoint {
    space: Arc<PortSpace>,
    address: SocketAddr,
}

impl PortSpace {
    /// An empty space whose ephemeral ports start at a place that `seed` decides.
    pub fn new(seed: u16) -> Self {
        let next = FIRST_EPHEMERAL | seed;
        Self { taken: SpinLock::new(Taken { endpoints: Vec::new(), next }) }
    }

    /// Reserves `address`, or a free ephemeral port of it when its port is 0.
    //= R-CREATE-48, R-CREATE-50, R-CONN-1, R-CONN-3, R-CONN-50
    pub fn reserve(space: &Arc<Self>, address: SocketAddr, purpose: Purpose) -> Answer<Endpoint> {
        let mut taken = space.taken.lock();
        let port = match address.port() {
            0 => taken.ephemeral(address.ip()).ok_or(STATUS_TOO_MANY_ADDRESSES)?,
            port => port,
        };
        if taken.overlaps(address.ip(), port) {
            return Err(STATUS_SHARING_VIOLATION);
        }
        let entry = (port, address.ip(), purpose);
        let place = taken.endpoints.partition_point(|&(port, ip, _)| (port, ip) < (entry.0, entry.1));
        fallible::insert(&mut taken.endpoints, place, entry).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        drop(taken);
        Ok(Endpoint { space: Arc::clone(space), address: SocketAddr::new(address.ip(), port) })
    }

    /// Shows every endpoint taken to `each`, under the lock.
    pub fn for_each(&self, mut each: impl FnMut(SocketAddr, Purpose)) {
        for &(port, ip, purpose) in &self.taken.lock().endpoints {
            each(SocketAddr::new(ip, port), purpose);
        }
    }
}

impl Taken {
    /// Whether somebody has the port on this address, or on all of its family, or on any if it is a
    /// wildcard itself. One port has few owners: an adapter has few addresses.
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
    /// The port that was really reserved.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let gone = (self.address.port(), self.address.ip());
        self.space.taken.lock().endpoints.retain(|&(port, ip, _)| (port, ip) != gone);
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
    fn an_endpoint_is_taken_once_until_it_is_dropped() {
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
    fn a_wildcard_is_all_addresses_of_its_family() {
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

    //= R-CONN-1, R-CREATE-47, R-CREATE-50
    #[test]
    fn port_0_takes_every_ephemeral_port_and_then_none() {
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
