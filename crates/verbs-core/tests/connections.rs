// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection management.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use verbs_core::cm::{CmEvent, CmEventKind, CmId, ConnectParameters, EventChannel, Parameters, PortSpace};
use verbs_core::environment::Settings;
use verbs_core::host::Host;
use verbs_core::qp::{Mask, QpState};
use verbs_core::{Error, ReadLimits};

use crate::rig::{address, is_readable};

/// A process: its devices, and a channel.
struct Process {
    host: Arc<Host>,
    channel: Arc<EventChannel>,
    space: PortSpace,
}

impl Process {
    fn new(address: core::net::IpAddr) -> Self {
        let settings = Settings { addresses: vec![address], ..Settings::default() };
        Self {
            host: Host::new(settings).unwrap(),
            channel: EventChannel::new().unwrap(),
            space: PortSpace::Tcp,
        }
    }

    fn id(&self) -> Arc<CmId> {
        CmId::new(&self.host, self.space, &self.channel)
    }

    /// Waits for an event, and acknowledges it.
    fn event(&self, kind: CmEventKind) -> CmEvent<CmId> {
        let event = self.channel.take().unwrap();
        assert_eq!(event.kind, kind, "status {}", event.status);
        event.counted().acknowledge();
        event
    }

    /// Requests a connection.
    fn connect(&self, to: SocketAddr, private_data: &[u8]) -> Arc<CmId> {
        let id = self.id();
        id.resolve_address(None, to).unwrap();
        self.event(CmEventKind::AddressResolved);
        id.resolve_route().unwrap();
        self.event(CmEventKind::RouteResolved);
        id.connect(&parameters(private_data)).unwrap();
        id
    }
}

fn parameters(private_data: &[u8]) -> ConnectParameters<'_> {
    let reads = ReadLimits { inbound: 2, outbound: 3 };
    ConnectParameters { private_data, reads, retries: 5, rnr_retries: 6, qpn: 0x1234, srq: false }
}

/// Two processes on one address: requests and answers find the right one.
#[test]
fn processes_on_one_address_connect() {
    let address = address();
    // The listener is not the process that has the port of RoCEv2.
    let (client, server) = (Process::new(address), Process::new(address));
    client.host.open(address).unwrap();
    let first = client.id();
    first.bind(SocketAddr::new(address, 0)).unwrap();
    let listener = server.id();
    listener.bind(SocketAddr::new(address, 0)).unwrap();
    listener.listen(3).unwrap();
    let to = listener.local().unwrap();
    assert_eq!(client.id().bind(to), Err(Error::AddressInUse));
    let active = client.connect(to, b"hello");
    let request = server.event(CmEventKind::ConnectRequest);
    assert_eq!(&request.parameters.private_data.as_slice()[..5], b"hello");
    assert_eq!((request.parameters.qpn, request.parameters.retries), (0x1234, 5));
    let passive = request.id;
    let (attributes, mask) = passive.qp_attributes(QpState::ReadyToReceive).unwrap();
    assert_eq!((attributes.destination, mask.contains(Mask::PATH)), (0x1234, true));
    passive.accept(&parameters(b"welcome")).unwrap();
    let reply = client.event(CmEventKind::ConnectResponse);
    assert_eq!(&reply.parameters.private_data.as_slice()[..7], b"welcome");
    let sent = active.qp_attributes(QpState::ReadyToSend).unwrap().0;
    assert_eq!(sent.send_psn, attributes.receive_psn, "each side chooses the PSN of the other's packets");
    active.establish().unwrap();
    server.event(CmEventKind::Established);
    passive.disconnect().unwrap();
    client.event(CmEventKind::Disconnected);
    active.disconnect().unwrap();
    server.event(CmEventKind::Disconnected);
    for id in [active, passive, listener, first] {
        id.destroy();
    }
}

/// A process may exit without the call that answers a disconnect, or that begins one: the kernel does both for it.
#[test]
fn a_process_that_ends_ends_its_connections() {
    for is_asked in [true, false] {
        let address = address();
        let (client, server) = (Process::new(address), Process::new(address));
        let listener = server.id();
        listener.bind(SocketAddr::new(address, 0)).unwrap();
        listener.listen(1).unwrap();
        let active = client.connect(listener.local().unwrap(), &[]);
        let passive = server.event(CmEventKind::ConnectRequest).id;
        passive.accept(&parameters(&[])).unwrap();
        client.event(CmEventKind::ConnectResponse);
        active.establish().unwrap();
        server.event(CmEventKind::Established);
        if is_asked {
            active.disconnect().unwrap();
            server.event(CmEventKind::Disconnected);
        }
        server.host.leave();
        // Without an answer, the request is repeated for some seconds.
        assert!(is_readable(&*client.channel, 500), "asked: {is_asked}");
        client.event(CmEventKind::Disconnected);
        for id in [active, passive, listener] {
            id.destroy();
        }
    }
}

/// A request may come a moment before the program listens: it waits, also if another process at the address receives it.
#[test]
fn a_request_waits_for_its_listener() {
    let address = address();
    let (client, server) = (Process::new(address), Process::new(address));
    for process in [&client, &server] {
        process.host.keep(address).unwrap();
    }
    let bound = server.id();
    bound.bind(SocketAddr::new(address, 0)).unwrap();
    let to = bound.local().unwrap();
    let active = client.connect(to, &[]);
    bound.destroy();
    std::thread::sleep(Duration::from_millis(10));
    let listener = server.id();
    listener.bind(to).unwrap();
    listener.listen(1).unwrap();
    let passive = server.event(CmEventKind::ConnectRequest).id;
    for id in [passive, listener, active] {
        id.destroy();
    }
    let unheard = client.connect(SocketAddr::new(address, 9), &[]);
    assert_eq!(client.event(CmEventKind::Rejected).status, 8);
    unheard.destroy();
}

#[test]
fn requests_move_with_their_listener() {
    let address = address();
    let (client, server) = (Process::new(address), Process::new(address));
    let listener = server.id();
    listener.bind(SocketAddr::new(address, 0)).unwrap();
    listener.listen(3).unwrap();
    let active = client.connect(listener.local().unwrap(), &[]);
    assert!(is_readable(&*server.channel, -1));
    let elsewhere = Process { host: server.host, channel: EventChannel::new().unwrap(), ..server };
    listener.migrate(&elsewhere.channel);
    assert!(!is_readable(&*server.channel, 0));
    let passive = elsewhere.event(CmEventKind::ConnectRequest).id;
    // The end of the connection is reported where the request was.
    active.destroy();
    elsewhere.event(CmEventKind::ConnectError);
    for id in [passive, listener] {
        id.destroy();
    }
}

#[test]
fn calls_need_their_phase() {
    let address = address();
    let process = Process::new(address);
    let id = process.id();
    assert_eq!(id.resolve_route(), Err(Error::Invalid));
    assert_eq!(id.connect(&parameters(&[])), Err(Error::Invalid));
    assert_eq!(id.accept(&parameters(&[])), Err(Error::Invalid));
    assert_eq!(id.establish(), Err(Error::Invalid));
    assert_eq!(id.reject(&[]), Err(Error::Invalid));
    assert_eq!(id.disconnect(), Err(Error::Invalid));
    assert_eq!(id.qp_attributes(QpState::Init).err(), Some(Error::Invalid));
    assert_eq!(id.set_ack_timeout(32), Err(Error::Invalid));
    assert_eq!(id.bind("192.0.2.1:5".parse().unwrap()), Err(Error::NoDevice));
    let other_family = "[fd00::1]:5".parse().unwrap();
    id.bind(SocketAddr::new(address, 0)).unwrap();
    assert_eq!(id.bind(SocketAddr::new(address, 0)), Err(Error::Invalid));
    assert_eq!(id.resolve_address(None, other_family), Err(Error::Invalid));
    // No route: an event says so.
    let unbound = process.id();
    unbound.resolve_address(None, "192.0.2.1:5".parse().unwrap()).unwrap();
    let event = process.event(CmEventKind::AddressError);
    assert_eq!(event.status, -libc::ENODEV);
    // Private data that no REQ can carry.
    let long = process.id();
    long.resolve_address(None, SocketAddr::new(address, 5)).unwrap();
    process.event(CmEventKind::AddressResolved);
    long.resolve_route().unwrap();
    process.event(CmEventKind::RouteResolved);
    assert_eq!(long.connect(&parameters(&[0; 57])), Err(Error::Invalid));
    for id in [id, unbound, long] {
        id.destroy();
    }
}

/// The queue pair of a datagram service is asked for: there is no connection.
#[test]
fn the_queue_pair_of_a_datagram_service_is_resolved() {
    let address = address();
    let (mut client, mut server) = (Process::new(address), Process::new(address));
    (client.space, server.space) = (PortSpace::Udp, PortSpace::Udp);
    let listener = server.id();
    listener.bind(SocketAddr::new(address, 0)).unwrap();
    listener.listen(3).unwrap();
    let to = listener.local().unwrap();
    let active = client.connect(to, &[7; 180]);
    let request = server.event(CmEventKind::ConnectRequest);
    assert_eq!(request.parameters.private_data.as_slice(), [7; 180]);
    let passive = request.id;
    assert_eq!(passive.accept(&parameters(&[8; 137])), Err(Error::Invalid));
    passive.accept(&parameters(&[8; 136])).unwrap();
    let Parameters { qpn, q_key, path, private_data, .. } = client.event(CmEventKind::Established).parameters;
    assert_eq!((qpn, q_key), (0x1234, passive.qp_attributes(QpState::Init).unwrap().0.q_key));
    assert_eq!((path.gid, path.is_global), (verbs_core::addresses::gid(address), true));
    assert_eq!(private_data.as_slice(), [8; 136]);
    for id in [&active, &passive] {
        assert_eq!(id.disconnect(), Err(Error::Invalid));
        assert_eq!(id.establish(), Err(Error::Invalid));
    }
    // The program refuses it, or there is no such service.
    let refused = client.connect(to, &[]);
    let request = server.event(CmEventKind::ConnectRequest).id;
    request.reject(b"no").unwrap();
    let event = client.event(CmEventKind::Unreachable);
    assert_eq!((event.status, &event.parameters.private_data.as_slice()[..2]), (2, &b"no"[..]));
    listener.destroy();
    let nowhere = client.connect(to, &[]);
    assert_eq!(client.event(CmEventKind::Unreachable).status, 1);
    for id in [active, passive, refused, request, nowhere] {
        id.destroy();
    }
}

/// A second listener on all addresses finds the devices open: its peer may be about to connect.
#[test]
fn devices_of_a_listener_on_all_addresses_stay_open() {
    let addresses = [address(), address()];
    let settings = Settings { addresses: addresses.to_vec(), ..Settings::default() };
    let process = Process {
        host: Host::new(settings).unwrap(),
        channel: EventChannel::new().unwrap(),
        space: PortSpace::Tcp,
    };
    let open = || addresses.map(|address| Arc::downgrade(&process.host.open(address).unwrap()));
    let listener = process.id();
    listener.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    listener.listen(1).unwrap();
    let devices = open();
    listener.destroy();
    drop(listener);
    assert!(devices.iter().all(|device| device.strong_count() > 0));
}

/// Linux binds to all addresses of a family that no device has.
#[test]
fn all_addresses_are_bound_without_a_device_of_their_family() {
    let process = Process::new(core::net::Ipv6Addr::LOCALHOST.into());
    let id = process.id();
    id.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    assert_ne!(id.local().unwrap().port(), 0);
    id.listen(1).unwrap();
    id.destroy();
}

/// Linux ignores the source of an identifier that is bound, as mckey of rdma-core passes it.
#[test]
fn a_bound_identifier_keeps_its_address_when_it_resolves_another() {
    let address = address();
    let process = Process::new(address);
    let id = process.id();
    id.bind(SocketAddr::new(address, 0)).unwrap();
    let bound = id.local().unwrap();
    id.resolve_address(Some(bound), SocketAddr::new(address, 5)).unwrap();
    process.event(CmEventKind::AddressResolved);
    assert_eq!((id.local(), id.remote()), (Some(bound), Some(SocketAddr::new(address, 5))));
    assert_eq!(id.resolve_address(None, SocketAddr::new(address, 5)), Err(Error::Invalid));
    id.destroy();
}
