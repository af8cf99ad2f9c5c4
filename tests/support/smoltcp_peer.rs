// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host with the driver whose link leads out of the simulation, tested from outside.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use device_sim::link::Datagrams;
use lab::{
    device::DeviceKind,
    external_host::{ExternalHost, Options},
    image,
};
use ndis_sim::netio::link_local;
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::icmp,
    time::Instant as Time,
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr},
};

pub const MACS: [[u8; 6]; 2] = [[0x02, 0, 0, 0x77, 0, 1], [0x02, 0, 0, 0x77, 0, 2]];
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the addresses of the first or second host: IPv4, IPv6 unique local, IPv6 link-local.
pub fn addresses(number: u8) -> [(IpAddr, u8); 3] {
    let own = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number) + 1);
    [
        (Ipv4Addr::new(192, 168, 77, number + 1).into(), 24),
        (own.into(), 64),
        (link_local(MACS[usize::from(number)]).into(), 64),
    ]
}

pub fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports")
}

/// The other end of an external host's link, as a device of smoltcp.
pub struct Link(pub UdpSocket);

pub struct Received(pub Vec<u8>);

pub struct Sender<'a>(pub &'a UdpSocket);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, body: F) -> R {
        body(&self.0)
    }
}

impl phy::TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, body: F) -> R {
        let mut frame = vec![0; length];
        let result = body(&mut frame);
        self.0.send(&frame).expect("the external host's socket is there");
        result
    }
}

impl Device for Link {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _now: Time) -> Option<(Received, Sender<'_>)> {
        let mut frame = vec![0; 2048];
        let length = self.0.recv(&mut frame).ok()?;
        frame.truncate(length);
        Some((Received(frame), Sender(&self.0)))
    }

    fn transmit(&mut self, _now: Time) -> Option<Sender<'_>> {
        Some(Sender(&self.0))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// An independent IP stack at the other end of the link, with the second host's addresses.
pub struct SmoltcpPeer {
    pub link: Link,
    pub interface: Interface,
    pub start: Instant,
}

impl SmoltcpPeer {
    pub fn new(socket: UdpSocket, external_host: SocketAddr) -> Self {
        socket.connect(external_host).expect("loopback is there");
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut link = Link(socket);
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(MACS[1])));
        let mut interface = Interface::new(config, &mut link, Time::ZERO);
        interface.update_ip_addrs(|list| {
            for (address, prefix) in addresses(1).into_iter().take(2) {
                list.push(IpCidr::new(address.into(), prefix)).unwrap();
            }
        });
        Self { link, interface, start: Instant::now() }
    }

    /// Sends an echo request with `data`. Returns true if the reply contains it.
    pub fn ping(&mut self, to: IpAddr, data: &[u8]) -> bool {
        const IDENT: u16 = 0x4711;
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 8192]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(IDENT)).unwrap();
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        let checksums = self.link.capabilities().checksum;
        let from = addresses(1).map(|(address, _)| address);
        let socket = sockets.get_mut::<icmp::Socket>(handle);
        match to {
            IpAddr::V4(_) => {
                let echo = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: 1, data };
                let bytes = socket.send(echo.buffer_len(), to.into()).unwrap();
                echo.emit(&mut Icmpv4Packet::new_unchecked(bytes), &checksums);
            }
            IpAddr::V6(to) => {
                let IpAddr::V6(from) = from[1] else { unreachable!() };
                let echo = Icmpv6Repr::EchoRequest { ident: IDENT, seq_no: 1, data };
                let bytes = socket.send(echo.buffer_len(), to.into()).unwrap();
                echo.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(bytes), &checksums);
            }
        }
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let now = Time::from_micros(self.start.elapsed().as_micros() as i64);
            self.interface.poll(now, &mut self.link, &mut sockets);
            let socket = sockets.get_mut::<icmp::Socket>(handle);
            if let Ok((answer, from)) = socket.recv() {
                let from: IpAddr = from.into();
                // Type, code, checksum, identifier, sequence number; then the data.
                return from == to && answer.get(8..) == Some(data);
            }
        }
        false
    }
}

/// Pings a host with this device from an independent IP stack: ARP and neighbor discovery, then echo requests.
pub fn ping_host_with(device: DeviceKind) {
    let Some(image) = image() else { return };
    let (here, there) = (bound(), bound());
    let host_socket = here.local_addr().unwrap();
    let datagrams = Datagrams::udp(here, there.local_addr().unwrap()).unwrap();
    let options = Options { device, ..Options::new(MACS[0], &addresses(0)) };
    let mut external_host = ExternalHost::new(&image, &options, datagrams).expect("the image can be loaded");
    external_host.start().expect("the driver starts");
    let mut peer = SmoltcpPeer::new(there, host_socket);
    for (address, _) in addresses(0).into_iter().take(2) {
        for length in [0, 56, 1400] {
            assert!(peer.ping(address, &vec![0x5a; length]), "{address} answers {length} bytes");
        }
    }
    let stopped = external_host.stop();
    assert_eq!(external_host.violations(), [""; 0]);
    stopped.expect("the driver stops");
}
