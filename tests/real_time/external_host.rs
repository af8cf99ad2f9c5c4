// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host with the driver whose link leads out of the simulation, tested from outside.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use device_sim::link::{Datagrams, Faults};
use lab::{
    device::{DeviceKind, QemuVariant},
    external_host::{ExternalHost, Options},
    has_qemu, image,
};
use ndis_sim::{NdisHost as _, netio::link_local};
use ndk_consumer::{
    protocols::{
        self, Program,
        probe::{Plan, Scenario},
    },
    transfer::{self, Progress},
};
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::icmp,
    time::Instant as Time,
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr},
};

const MACS: [[u8; 6]; 2] = [[0x02, 0, 0, 0x77, 0, 1], [0x02, 0, 0, 0x77, 0, 2]];
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the addresses of the first or second host: IPv4, IPv6 unique local, IPv6 link-local.
fn addresses(number: u8) -> [(IpAddr, u8); 3] {
    let own = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number) + 1);
    [
        (Ipv4Addr::new(192, 168, 77, number + 1).into(), 24),
        (own.into(), 64),
        (link_local(MACS[usize::from(number)]).into(), 64),
    ]
}

fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports")
}

/// The other end of an external host's link, as a device of smoltcp.
struct Link(UdpSocket);

struct Received(Vec<u8>);
struct Sender<'a>(&'a UdpSocket);

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
struct SmoltcpPeer {
    link: Link,
    interface: Interface,
    start: Instant,
}

impl SmoltcpPeer {
    fn new(socket: UdpSocket, external_host: SocketAddr) -> Self {
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
    fn ping(&mut self, to: IpAddr, data: &[u8]) -> bool {
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
fn ping_host_with(device: DeviceKind) {
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

#[test]
fn independent_ip_stack_resolves_and_pings_the_host() {
    ping_host_with(DeviceKind::Simulated);
}

#[test]
fn independent_ip_stack_pings_the_host_through_qemus_device() {
    if has_qemu() {
        ping_host_with(DeviceKind::Qemu(QemuVariant::default()));
    }
}

/// Runs `body` for two hosts whose links are joined, each on a thread of its own. `body` gets the host's number.
fn two_sides<T: Send + 'static>(
    options: impl Fn(Options) -> Options,
    body: impl Fn(usize, &Path, Options, Datagrams) -> T + Clone + Send + 'static,
) -> Option<[T; 2]> {
    let image = image()?;
    let sockets = [bound(), bound()];
    let [here, there] = [0, 1].map(|side: usize| sockets[side].local_addr().unwrap());
    let mut peers = [there, here].into_iter();
    let sides = sockets.map(|socket| Datagrams::udp(socket, peers.next().unwrap()).unwrap());
    let mut number = 0;
    let sides = sides.map(|datagrams| {
        let options =
            options(Options { seed: number as u64, ..Options::new(MACS[number], &addresses(number as u8)) });
        let (body, image, this) = (body.clone(), image.clone(), number);
        number += 1;
        std::thread::spawn(move || body(this, &image, options, datagrams))
    });
    Some(sides.map(|side| side.join().expect("no assertion failed")))
}

/// Returns a host whose driver has started.
fn started(image: &Path, options: &Options, datagrams: Datagrams) -> ExternalHost {
    let mut external_host = ExternalHost::new(image, options, datagrams).expect("the image can be loaded");
    external_host.start().expect("the driver starts");
    external_host
}

fn stopped(mut external_host: ExternalHost) {
    let stopped = external_host.stop();
    assert_eq!(external_host.violations(), [""; 0]);
    stopped.expect("the driver stops");
}

/// Copies data from the first host to the second and back; `kind` is an index into [`addresses`].
fn copy_over(kind: usize, options: impl Fn(Options) -> Options) -> Option<()> {
    const BYTES: usize = 1 << 20;
    let together = Arc::new(Barrier::new(2));
    let outcome = two_sides(options, move |number, image, options, datagrams| {
        let external_host = started(image, &options, datagrams);
        let server = SocketAddr::new(addresses(1)[kind].0, 5445);
        let client = SocketAddr::new(addresses(0)[kind].0, 0);
        let options = transfer::Options::default();
        let listening = together.clone();
        let done = external_host.machine().consumer("consumer", move |adapter| {
            let outcome = if number == 1 {
                let ready = |_| {
                    listening.wait();
                };
                transfer::serve(adapter, &options, server, ready, &|_: Progress| {})
            } else {
                listening.wait();
                transfer::copy(adapter, &options, client, server, "made", &vec![0x5a; BYTES][..], &|_| {})
            };
            outcome.map(drop).map_err(|failure| failure.error.to_string())
        });
        let outcome = done.join().expect("the host lives");
        // The side that is done first still answers retransmissions of the other one.
        together.wait();
        stopped(external_host);
        outcome
    })?;
    assert_eq!(outcome, [Ok(()), Ok(())], "{}", addresses(0)[kind].0);
    Some(())
}

#[test]
fn two_simulations_copy_over_each_kind_of_address() {
    for kind in 0..3 {
        copy_over(kind, Options::jumbo);
    }
}

#[test]
fn no_data_is_lost_over_a_lossy_external_link() {
    let faults = [Faults { loss: 0.02, ..Faults::NONE }; 2];
    copy_over(0, |options| Options { faults, ..options });
}

#[test]
fn connection_to_a_killed_peer_ends_and_every_request_completes() {
    let program = Program::Probe(Plan { scenario: Scenario::Hold, length: 65536, count: 0 });
    let together = Arc::new(Barrier::new(2));
    let killed = two_sides(std::convert::identity, move |number, image, options, datagrams| {
        let external_host = started(image, &options, datagrams);
        let server = SocketAddr::new(addresses(1)[1].0, 7471);
        let client = SocketAddr::new(addresses(0)[1].0, 0);
        let (listening, program) = (together.clone(), program.clone());
        if number == 1 {
            let ready = move |_| {
                listening.wait();
            };
            let serving = external_host.machine().consumer("server", move |adapter| {
                protocols::serve(adapter, &program, server, TIMEOUT, ready)
            });
            // Kills the host during the transfer.
            while external_host.wire().counters(1).sent < 500 {
                std::thread::sleep(Duration::from_millis(1));
            }
            external_host.machine().host().kill();
            assert!(serving.join().is_err(), "it died with its host");
            return None;
        }
        let connecting = external_host.machine().consumer("client", move |adapter| {
            listening.wait();
            protocols::client(adapter, &program, client, server)
        });
        let start = Instant::now();
        let outcome = connecting
            .join()
            .expect("the host lives")
            .expect("the client reports the connection loss as success");
        assert!(start.elapsed() < TIMEOUT, "detected after {:?}", start.elapsed());
        stopped(external_host);
        Some((outcome.rounds, outcome.stats.outstanding()))
    });
    let Some([Some((rounds, outstanding)), None]) = killed else { return };
    assert!(rounds > 0, "the peer was connected");
    assert_eq!(outstanding, 0, "every request has completed");
}
