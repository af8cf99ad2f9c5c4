//! One host with the driver on it and a wire that leaves the simulation: what the world outside sees of it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use ndk_consumer::transfer::{self, Progress};
use ntsim::{
    netio::link_local,
    wire::{Datagrams, Faults},
};
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::icmp,
    time::Instant as Time,
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr},
};
use viordma_tests::{
    image,
    outlet::{Options, Outlet},
};

const MACS: [[u8; 6]; 2] = [[0x02, 0, 0, 0x77, 0, 1], [0x02, 0, 0, 0x77, 0, 2]];
const PATIENCE: Duration = Duration::from_secs(20);

/// The addresses of the first or second host: IPv4, unique local, link-local.
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

/// The other end of an outlet's wire, as smoltcp sees a network.
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
        self.0.send(&frame).expect("the outlet's socket is there");
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

/// A stranger's IP stack at the other end of the wire: the second host's addresses.
struct Stranger {
    link: Link,
    interface: Interface,
    start: Instant,
}

impl Stranger {
    fn new(socket: UdpSocket, outlet: SocketAddr) -> Self {
        socket.connect(outlet).expect("loopback is there");
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

    /// Sends an echo request with `data`; true when the answer brings it back.
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
        let deadline = Instant::now() + PATIENCE;
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

#[test]
fn a_strangers_stack_finds_the_host_and_pings_it() {
    let Some(image) = image() else { return };
    let (here, there) = (bound(), bound());
    let outlet_at = here.local_addr().unwrap();
    let datagrams = Datagrams::udp(here, there.local_addr().unwrap()).unwrap();
    let options = Options::new(MACS[0], &addresses(0));
    let mut outlet = Outlet::new(&image, &options, datagrams).expect("the image can be loaded");
    outlet.start().expect("the driver starts");
    let mut stranger = Stranger::new(there, outlet_at);
    for (address, _) in addresses(0).into_iter().take(2) {
        for length in [0, 56, 1400] {
            assert!(stranger.ping(address, &vec![0x5a; length]), "{address} answers {length} bytes");
        }
    }
    outlet.stop().expect("the driver stops");
    assert_eq!(outlet.violations(), [""; 0]);
}

/// How both ends of a copy between two simulations fared, first the one that copied.
fn copy_between(
    addresses_used: usize,
    bytes: usize,
    faults: Faults,
    jumbo: bool,
) -> Option<[Result<(), String>; 2]> {
    let image = image()?;
    let sockets = [bound(), bound()];
    let at = [0, 1].map(|side: usize| sockets[side].local_addr().unwrap());
    let [here, there] = sockets;
    let datagrams = [Datagrams::udp(here, at[1]).unwrap(), Datagrams::udp(there, at[0]).unwrap()];
    let server = SocketAddr::new(addresses(1)[addresses_used].0, 5445);
    let client = SocketAddr::new(addresses(0)[addresses_used].0, 0);
    let together = Arc::new(Barrier::new(2));
    let [here, there] = datagrams;
    // Each simulation on a thread of its own.
    let side = |number: u8, datagrams: Datagrams, together: Arc<Barrier>| {
        let image = image.clone();
        std::thread::spawn(move || {
            let options = Options {
                faults: [faults; 2],
                seed: u64::from(number),
                ..Options::new(MACS[usize::from(number)], &addresses(number))
            };
            let options = if jumbo { options.jumbo() } else { options };
            let mut outlet = Outlet::new(&image, &options, datagrams).expect("the image can be loaded");
            outlet.start().expect("the driver starts");
            let options = transfer::Options::default();
            let listening = together.clone();
            let done = outlet.machine().consumer("consumer", move |adapter| {
                if number == 1 {
                    let ready = |_| {
                        listening.wait();
                    };
                    let outcome = transfer::serve(adapter, &options, server, ready, &|_: Progress| {});
                    outcome.map(drop).map_err(|failure| failure.error.to_string())
                } else {
                    listening.wait();
                    let data = vec![0x5a; bytes];
                    let outcome =
                        transfer::copy(adapter, &options, client, server, "made", &data[..], &|_| {});
                    outcome.map(drop).map_err(|failure| failure.error.to_string())
                }
            });
            let outcome = done.join().expect("the host lives");
            // Who is done first still answers what the other one asks again.
            together.wait();
            outlet.stop().expect("the driver stops");
            assert_eq!(outlet.violations(), [""; 0]);
            outcome
        })
    };
    let serving = side(1, there, together.clone());
    let copying = side(0, here, together);
    Some([copying, serving].map(|side| side.join().expect("no assertion failed")))
}

#[test]
fn two_simulations_copy_over_every_kind_of_address() {
    for kind in 0..3 {
        let Some(outcome) = copy_between(kind, 1 << 20, Faults::NONE, true) else { return };
        assert_eq!(outcome, [Ok(()), Ok(())], "{}", addresses(0)[kind].0);
    }
}

#[test]
fn a_lossy_wire_outside_costs_no_data() {
    let faults = Faults { loss: 0.02, ..Faults::NONE };
    let Some(outcome) = copy_between(0, 1 << 20, faults, false) else { return };
    assert_eq!(outcome, [Ok(()), Ok(())]);
}
