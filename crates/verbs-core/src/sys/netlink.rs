// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's routes and neighbors (rtnetlink).

use core::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Error;

/// Of `linux/rtnetlink.h` and `linux/neighbour.h`, each without what follows.
const HEADER: usize = size_of::<libc::nlmsghdr>();
const ROUTE: usize = 12;
const NEIGHBOR: usize = 12;

/// Bytes of an answer that are read: what is needed comes before.
const ANSWER: usize = 2048;

/// Where packets for a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination is an address of this host.
    pub is_local: bool,
    pub interface: u32,
    /// The router, or the destination itself.
    pub next_hop: IpAddr,
}

/// A neighbor that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    pub mac: [u8; 6],
    /// The kernel has heard of it lately, or need not.
    pub is_confirmed: bool,
}

/// A socket for questions to the kernel, which answers them at once.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open() -> Result<Self, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the route from an address to another one.
    pub fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route> {
        let (family, bits) = family_of(destination);
        let mut header = [0; ROUTE];
        header[..3].copy_from_slice(&[family, bits, bits]);
        let attributes = [(libc::RTA_DST, destination), (libc::RTA_SRC, source)];
        let answer = self.ask(libc::RTM_GETROUTE, libc::RTM_NEWROUTE, header, &attributes)?;
        let (header, attributes) = answer.split_first_chunk::<ROUTE>()?;
        // The type of the route, after the lengths, the type of service, the table, the protocol and the scope.
        let kind = header[7];
        if kind != libc::RTN_UNICAST && kind != libc::RTN_LOCAL {
            return None;
        }
        let mut route = Route { is_local: kind == libc::RTN_LOCAL, interface: 0, next_hop: destination };
        for (kind, data) in Attributes(attributes) {
            match kind {
                libc::RTA_OIF => route.interface = u32::from_ne_bytes(*data.first_chunk()?),
                libc::RTA_GATEWAY => route.next_hop = address(data)?,
                // A router of the other family: its family, then its address.
                libc::RTA_VIA => route.next_hop = address(data.get(2..)?)?,
                _ => {}
            }
        }
        Some(route)
    }

    /// Returns a neighbor of an interface, if its MAC address is known.
    pub fn neighbor(&mut self, interface: u32, ip: IpAddr) -> Option<Neighbor> {
        let mut header = [0; NEIGHBOR];
        header[0] = family_of(ip).0;
        header[4..8].copy_from_slice(&interface.to_ne_bytes());
        let answer = self.ask(libc::RTM_GETNEIGH, libc::RTM_NEWNEIGH, header, &[(libc::NDA_DST, ip)])?;
        let (header, attributes) = answer.split_first_chunk::<NEIGHBOR>()?;
        let state = u16::from_ne_bytes([header[8], header[9]]);
        let confirmed = libc::NUD_REACHABLE | libc::NUD_PERMANENT | libc::NUD_NOARP;
        let valid = confirmed | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE;
        let (_, mac) = Attributes(attributes).find(|&(kind, _)| kind == libc::NDA_LLADDR)?;
        let mac = mac.try_into().ok().filter(|_| state & valid != 0)?;
        Some(Neighbor { mac, is_confirmed: state & confirmed != 0 })
    }

    /// Sends a request, and returns the content of the answer, if it is of this type.
    fn ask(
        &mut self,
        request: u16,
        answer: u16,
        header: [u8; 12],
        attributes: &[(u16, IpAddr)],
    ) -> Option<Vec<u8>> {
        let mut message = vec![0; HEADER];
        message.extend(header);
        for (kind, ip) in attributes {
            let octets: &[u8] = match ip {
                IpAddr::V4(ip) => &ip.octets(),
                IpAddr::V6(ip) => &ip.octets(),
            };
            // Addresses of both families need no padding.
            message.extend((octets.len() as u16 + 4).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(octets);
        }
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&request.to_ne_bytes());
        message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        let fd = self.0.as_raw_fd();
        // SAFETY: the message is readable for its length.
        let sent = unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return None;
        }
        let mut buffer = vec![0; ANSWER];
        // SAFETY: the buffer is writable for its length.
        let received =
            unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        buffer.truncate(usize::try_from(received).ok()?);
        let length = u32::from_ne_bytes(*buffer.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*buffer.get(4..)?.first_chunk()?);
        if kind != answer {
            return None;
        }
        buffer.truncate(length);
        Some(buffer.split_off(HEADER.min(buffer.len())))
    }
}

/// The attributes of an answer, with their types.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?);
        let data = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    }
}

/// Returns the family of an address, and its bits.
fn family_of(ip: IpAddr) -> (u8, u8) {
    if ip.is_ipv4() { (libc::AF_INET as u8, 32) } else { (libc::AF_INET6 as u8, 128) }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_local_and_one_without_a_route_is_not_found() {
        let mut netlink = Netlink::open().unwrap();
        for ip in [IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()] {
            let route = netlink.route(ip, ip).unwrap();
            assert_eq!((route.is_local, route.next_hop), (true, ip));
            assert_eq!(netlink.neighbor(route.interface, [192, 0, 2, 250].into()), None);
        }
        let multicast = [224, 0, 0, 1].into();
        assert!(netlink.route([127, 0, 0, 1].into(), multicast).is_none_or(|route| !route.is_local));
    }
}
