// SPDX-License-Identifier: MIT OR Apache-2.0

//! UDP sockets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Error;

/// Accept IPv6 datagrams without a checksum: of `linux/udp.h`.
const UDP_NO_CHECK6_RX: i32 = 102;

/// An unconnected UDP socket. Linux sends its IPv4 datagrams with identification 0 and the don't-fragment bit, as the engine builds
/// them: an unconnected socket with path MTU discovery has no identification of its own.
#[derive(Debug)]
pub struct UdpSocket(OwnedFd);

impl UdpSocket {
    /// Binds a socket, which does not block. With `shared`, other sockets of the same user may have the same address: for ports that only
    /// send.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::System`].
    pub fn bind(address: SocketAddr, shared: bool) -> Result<Self, Error> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: the call takes no pointer.
        let fd =
            unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        if address.is_ipv4() {
            set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        } else {
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            // Network cards leave the UDP checksum out, as RoCEv2 allows: the ICRC covers more.
            set_option(&socket, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        if shared {
            set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        let raw = RawAddress::from(address);
        // SAFETY: `raw` is a socket address of the length given.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), raw.as_ptr(), raw.len) };
        if bound < 0 { Err(Error::last()) } else { Ok(Self(socket)) }
    }

    /// Asks for buffers of so many bytes; the kernel may give less, see [`UdpSocket::receive_buffer`].
    pub fn enlarge_buffers(&self, receive: i32, send: i32) {
        enlarge_buffers(&self.0, receive, send);
    }

    /// Returns the size of the receive buffer in bytes, as the kernel counts.
    pub fn receive_buffer(&self) -> usize {
        receive_buffer(&self.0)
    }
}

/// Asks for buffers of so many bytes.
pub fn enlarge_buffers(socket: &OwnedFd, receive: i32, send: i32) {
    // The forced ones need CAP_NET_ADMIN; failures leave what there is.
    let options = [
        (libc::SO_RCVBUF, receive),
        (libc::SO_RCVBUFFORCE, receive),
        (libc::SO_SNDBUF, send),
        (libc::SO_SNDBUFFORCE, send),
    ];
    for (option, bytes) in options {
        let _ = set_option(socket, libc::SOL_SOCKET, option, bytes);
    }
}

/// Returns the size of the receive buffer in bytes, as the kernel counts.
pub fn receive_buffer(socket: &OwnedFd) -> usize {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: `value` is writable for `len` bytes, and `len` is writable.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, to, &raw mut len) };
    if result < 0 { 0 } else { usize::try_from(value).unwrap_or(0) }
}

/// Sets an option of a socket.
pub fn set_option(socket: &OwnedFd, level: i32, option: i32, value: i32) -> Result<(), Error> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if result < 0 { Err(Error::last()) } else { Ok(()) }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket address in the form of system calls.
#[derive(Clone, Copy)]
pub struct RawAddress {
    storage: libc::sockaddr_storage,
    pub len: libc::socklen_t,
}

impl RawAddress {
    /// An address to be filled in.
    pub const fn empty() -> Self {
        // SAFETY: all-zero bytes are a valid `sockaddr_storage`: it consists of integers.
        let storage = unsafe { core::mem::zeroed() };
        Self { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    pub const fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub const fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        (&raw mut self.storage).cast()
    }

    /// Returns address and port, if the family is one of IP.
    pub fn get(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the storage is larger than `sockaddr_in` and aligned for every family; all its bits are valid integers.
                let v4 = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the storage is larger than `sockaddr_in6`, too, and aligned for it; all its bits are valid integers.
                let v6 = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        match address.ip() {
            IpAddr::V4(ip) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than `sockaddr_in`, and aligned for it.
                unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in>().write(v4) };
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            IpAddr::V6(ip) => {
                let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    sin6_scope_id: scope,
                };
                // SAFETY: the storage is larger than `sockaddr_in6`, and aligned for it.
                unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in6>().write(v6) };
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_buffer_is_as_large_as_the_system_allows() {
        const ASKED: i32 = 64 << 20;
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let most: usize = most.trim().parse().unwrap();
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let before = socket.receive_buffer();
        socket.enlarge_buffers(ASKED, 1 << 20);
        // The kernel counts twice as much as it is asked for.
        let expected = 2 * usize::try_from(ASKED).unwrap().min(most);
        assert!(socket.receive_buffer() >= expected, "{before}, then {}", socket.receive_buffer());
    }
}
