// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packet sockets: Ethernet frames of an interface.

use core::ffi::CStr;
use core::net::IpAddr;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::batch::{self, Control};
use super::filter::Filter;
use super::socket::{receive_buffer, set_option};
use crate::error::Error;

/// EtherTypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;

/// A socket that transmits Ethernet frames, and receives those of a filter.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    mac: [u8; 6],
}

impl PacketSocket {
    /// Opens a socket on an Ethernet interface for frames to `address` and `port`.
    ///
    /// # Errors
    /// [`Error::System`] with EPERM without the capability `CAP_NET_RAW`, with ENODEV without such an interface, with EPROTONOSUPPORT if it is
    /// not one of Ethernet.
    pub fn open(interface: u32, address: IpAddr, port: u16) -> Result<Self, Error> {
        // Without a protocol: it receives nothing until it is bound, when it has its filter.
        // SAFETY: the call takes no pointer.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
        };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Filter::of_frames(address, port).attach(&fd)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        let mut name = link_layer_address();
        name.sll_protocol = if address.is_ipv4() { IPV4 } else { IPV6 }.to_be();
        name.sll_ifindex = i32::try_from(interface).map_err(|_| Error::Invalid)?;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `name` is a socket address of the length given.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) } < 0 {
            return Err(Error::last());
        }
        let mut length = length;
        // SAFETY: `name` is writable for `length` bytes, and `length` is writable.
        if unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut name).cast(), &raw mut length) } < 0 {
            return Err(Error::last());
        }
        if name.sll_hatype != libc::ARPHRD_ETHER || name.sll_halen != 6 {
            return Err(Error::System(libc::EPROTONOSUPPORT));
        }
        let mac = *name.sll_addr.first_chunk().ok_or(Error::Invalid)?;
        Ok(Self { fd, mac })
    }

    /// Returns the MAC address that the interface had when the socket was opened.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Asks for a receive buffer of so many bytes, as [`super::UdpSocket::enlarge_buffers`] does.
    pub fn enlarge_buffers(&self, receive: i32, send: i32) {
        super::socket::enlarge_buffers(&self.fd, receive, send);
    }

    /// Returns the size of the receive buffer in bytes, as the kernel counts.
    pub fn receive_buffer(&self) -> usize {
        receive_buffer(&self.fd)
    }

    /// Sends frames, as [`super::send`] does.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> usize {
        batch::send(self.fd.as_fd(), frames.map(|frame| (None, frame)))
    }

    /// Receives frames that have arrived, as [`super::receive`] does.
    pub fn receive<'a>(
        &self,
        buffers: impl Iterator<Item = &'a mut [u8]>,
        mut each: impl FnMut(usize, ReceivedFrame),
    ) -> usize {
        batch::receive(self.fd.as_fd(), buffers, |at, message| {
            let has_checksum = !message.controls().any(|control| lacks_checksum(&control));
            each(at, ReceivedFrame { len: message.len, has_checksum });
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A received frame.
#[derive(Clone, Copy)]
pub struct ReceivedFrame {
    pub len: usize,
    /// Whether the UDP checksum is there. The sender left it to a device, and the frame has passed none, if not.
    pub has_checksum: bool,
}

/// Returns whether a control message says that a checksum is still to be computed.
fn lacks_checksum(control: &Control<'_>) -> bool {
    if (control.level, control.kind) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return false;
    }
    // The first field of `tpacket_auxdata`.
    let Some(status) = control.data.first_chunk() else { return false };
    u32::from_ne_bytes(*status) & libc::TP_STATUS_CSUMNOTREADY != 0
}

const fn link_layer_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Returns the index of an interface; `None` if there is none of this name.
pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let name: &CStr = &name;
    // SAFETY: `name` ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::process::Command;

    use super::*;
    use crate::sys::wait_readable;

    const TARGET: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// Runs a test in a network namespace with the ends of a veth pair, v1 and v2, of addresses ending in 1 and 2. Not without privileges.
    fn in_namespace(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            // SAFETY: the call takes no pointer, and affects this thread.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                eprintln!("skipped: there is no namespace for this user");
                return;
            }
            let script = "ip link add v1 type veth peer name v2 address 02:00:00:00:00:02
                for end in 1 2; do
                    ip addr add 10.1.0.$end/24 dev v$end
                    ip addr add fd01::$end/64 dev v$end nodad
                    ip link set v$end up
                done
                for end in 1 2; do
                    until ip link show v$end | grep -q 'state UP'; do sleep 0.01; done
                done
                ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev v1";
            assert!(Command::new("sh").args(["-ec", script]).status().unwrap().success());
            test();
        });
        thread.join().unwrap();
    }

    fn open(interface: &str, address: IpAddr) -> PacketSocket {
        PacketSocket::open(interface_index(interface).unwrap(), address, 4791).unwrap()
    }

    fn frame(ethertype: u16, ip: &[u8], port: u16) -> Vec<u8> {
        let udp = [[0xC0, 0], port.to_be_bytes(), [0, 8], [0, 0]];
        [&TARGET[..], &[2, 0, 0, 0, 0, 1], &ethertype.to_be_bytes(), ip, udp.as_flattened()].concat()
    }

    /// Returns the lengths of frames that arrive, and whether they have a checksum.
    fn received(socket: &PacketSocket) -> Vec<(usize, bool)> {
        let mut frames = Vec::new();
        let mut buffers = [[0; 256]; 32];
        while {
            let mut interest = [(socket.as_fd(), false)];
            wait_readable(&mut interest, Some(Duration::from_millis(50)));
            interest[0].1
        } {
            let rooms = buffers.iter_mut().map(<[u8; 256]>::as_mut_slice);
            socket.receive(rooms, |_, frame| frames.push((frame.len, frame.has_checksum)));
        }
        frames
    }

    #[test]
    fn frames_of_the_filter_arrive_over_ipv4() {
        in_namespace(|| {
            let (from, to) = (open("v1", [10, 1, 0, 1].into()), open("v2", [10, 1, 0, 2].into()));
            assert_eq!(to.mac(), TARGET);
            let header = |length: u8, fragment: u8, protocol, last| {
                [length, 0, 0, 28, 0, 0, fragment, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, last]
            };
            let good = header(0x45, 0x40, 17, 2);
            let with_options = [&header(0x46, 0, 17, 2)[..], &[1; 4]].concat();
            let mut to_another = frame(IPV4, &good, 4791);
            to_another[5] = 3;
            let mut of_a_vlan = frame(IPV4, &good, 4791);
            of_a_vlan.splice(12..12, [0x81, 0, 0, 7]);
            let frames = [
                frame(IPV4, &header(0x45, 0x40, 17, 9), 4791),
                frame(IPV4, &header(0x45, 0x20, 17, 2), 4791),
                frame(IPV4, &header(0x45, 0x40, 6, 2), 4791),
                frame(IPV4, &good, 4792),
                to_another,
                of_a_vlan,
                frame(IPV4, &with_options, 4791),
                frame(IPV4, &good, 4791),
            ];
            assert_eq!(from.send(frames.iter().map(Vec::as_slice)), frames.len());
            assert_eq!(received(&to), [(46, true), (42, true)]);
        });
    }

    #[test]
    fn frames_of_the_filter_arrive_over_ipv6() {
        in_namespace(|| {
            let addresses = ["fd01::1", "fd01::2"].map(|text| text.parse::<IpAddr>().unwrap());
            let (from, to) = (open("v1", addresses[0]), open("v2", addresses[1]));
            let header = |protocol, last| {
                let prefix = [0xFD, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                [&[0x60, 0, 0, 0, 0, 8, protocol, 64], &prefix[..], &[1], &prefix[..], &[last]].concat()
            };
            let frames = [
                frame(IPV6, &header(17, 9), 4791),
                frame(IPV6, &header(6, 2), 4791),
                frame(IPV6, &header(17, 2), 4792),
                frame(IPV6, &header(17, 2), 4791),
            ];
            assert_eq!(from.send(frames.iter().map(Vec::as_slice)), frames.len());
            assert_eq!(received(&to), [(62, true)]);
        });
    }

    #[test]
    fn a_checksum_that_is_left_to_the_device_is_missing() {
        in_namespace(|| {
            let to = open("v2", [10, 1, 0, 2].into());
            let socket = std::net::UdpSocket::bind("10.1.0.1:50000").unwrap();
            let name = c"v1".to_bytes_with_nul();
            let (fd, length) = (socket.as_raw_fd(), name.len() as libc::socklen_t);
            let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
            // SAFETY: the name is readable for its length.
            let bound = unsafe { libc::setsockopt(fd, level, option, name.as_ptr().cast(), length) };
            assert_eq!(bound, 0);
            socket.send_to(b"datagram", "10.1.0.2:4791").unwrap();
            assert_eq!(received(&to), [(50, false)]);
        });
    }

    #[test]
    fn an_interface_without_ethernet_frames_is_refused() {
        in_namespace(|| {
            let error = PacketSocket::open(interface_index("lo").unwrap(), [127, 0, 0, 1].into(), 4791).err();
            assert_eq!(error, Some(Error::System(libc::EPROTONOSUPPORT)));
            assert_eq!(interface_index("v3"), None);
        });
    }
}
