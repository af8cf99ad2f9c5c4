// SPDX-License-Identifier: MIT OR Apache-2.0

//! A TCP/IP stack (smoltcp's) on an adapter, with one connection, which its user drives. It leaves to the adapter what the adapter
//! offers: checksums both ways, and segmentation. Everything else it computes and verifies itself.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use device_sim::checksum::{self, Transport};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum, OID_GEN_CURRENT_PACKET_FILTER,
};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::tcp,
    time::Instant,
    wire::{EthernetAddress, HardwareAddress, IpCidr},
};

use crate::{
    miniport::Miniport,
    offload::{Offloads, ReceivedFrame, SendRequest},
    oid::OidError,
};

/// Bytes that either direction of the connection buffers.
const BUFFER: usize = 512 << 10;
/// Largest IP packet that the stack makes if the adapter divides it.
const LARGE_PACKET: usize = 60_000;
const ETHERNET_HEADER: usize = 14;
/// Flags of TCP that only the last segment of a packet has.
const FIN: u8 = 1;
const PSH: u8 = 8;
/// Shortest wait: the resolution of the stack's clock.
const MOMENT: Duration = Duration::from_micros(1);

/// Frames by what was left to the adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadCounters {
    /// Frames sent, and those among them for which a checksum or segmentation was requested.
    pub sent: u64,
    pub checksums: u64,
    pub large_sends: u64,
    /// Frames received, and those among them whose TCP checksum the adapter verified.
    pub received: u64,
    pub verified: u64,
    /// Frames that consist of several segments.
    pub coalesced: u64,
    /// Frames dropped because of a wrong checksum.
    pub invalid: u64,
}

/// The stack.
pub struct TcpStack {
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    connection: SocketHandle,
}

/// The adapter as a device of smoltcp.
struct Port {
    miniport: Miniport,
    /// The miniport has started its offloads. If not, no send may ask for one. (WDK, `OID_OFFLOAD_ENCAPSULATION`)
    has_started: bool,
    /// Largest IP packet of the link.
    mtu: usize,
    received: VecDeque<Vec<u8>>,
    to_send: Vec<(Vec<u8>, SendRequest)>,
    counters: OffloadCounters,
}

impl TcpStack {
    /// Creates a stack with an address, and the length of its subnet's prefix, on an adapter, whose offloads it starts. It uses none if the
    /// miniport refuses them.
    ///
    /// # Errors
    /// The miniport refuses its packet filter.
    pub fn new(miniport: &Miniport, mac: [u8; 6], (address, prefix): (IpAddr, u8)) -> Result<Self, OidError> {
        Self::set_filter(miniport)?;
        let has_started = miniport.start_offloads().is_ok();
        let general = miniport.attributes().general;
        let mtu = general.map_or(1500, |general| general.MtuSize as usize);
        let mut port = Port {
            miniport: miniport.clone(),
            has_started,
            mtu,
            received: VecDeque::new(),
            to_send: Vec::new(),
            counters: OffloadCounters::default(),
        };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // There is room for one.
            let _ = addresses.push(IpCidr::new(address.into(), prefix));
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let connection = sockets.add(socket);
        Ok(Self { port, interface, sockets, connection })
    }

    /// Sets the packet filter that a stack needs, as [`TcpStack::new`] does: for one whose filter was changed.
    ///
    /// # Errors
    /// The miniport refuses it.
    pub fn set_filter(miniport: &Miniport) -> Result<(), OidError> {
        let filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_ALL_MULTICAST;
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes())?;
        Ok(())
    }

    /// Accepts a connection to `number`.
    ///
    /// # Panics
    /// When there is a connection.
    pub fn listen(&mut self, number: u16) {
        self.socket().listen(number).expect("the socket is unused");
    }

    /// Connects to a listening stack.
    ///
    /// # Panics
    /// When there is a connection.
    pub fn connect(&mut self, address: IpAddr, number: u16) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.connection);
        socket.connect(self.interface.context(), (address, number), 49152).expect("the socket is unused");
    }

    /// Processes received frames and sends what is due at `now`, the time since any fixed moment.
    pub fn poll(&mut self, now: Duration) {
        self.port.receive_all();
        self.interface.poll(instant(now), &mut self.port, &mut self.sockets);
        self.port.send_all();
    }

    /// Waits until there is something to [`poll`](Self::poll), or `longest` has passed, from `now` on.
    pub fn wait(&mut self, now: Duration, longest: Duration) {
        let due = self.interface.poll_delay(instant(now), &self.sockets).map(Duration::from);
        let timeout = due.map_or(longest, |due| due.clamp(MOMENT, longest.max(MOMENT)));
        let _ = self.port.miniport.stack().arrived().wait(timeout);
    }

    /// Queues bytes to send; returns their number.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        self.socket().send_slice(bytes).unwrap_or(0)
    }

    /// Returns the bytes received so far.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.socket().recv_queue()];
        let len = self.receive_into(&mut bytes);
        bytes.truncate(len);
        bytes
    }

    /// Copies received bytes; returns their number.
    pub fn receive_into(&mut self, bytes: &mut [u8]) -> usize {
        self.socket().recv_slice(bytes).unwrap_or(0)
    }

    /// Returns the number of bytes that [`send`](Self::send) would queue.
    pub fn room(&mut self) -> usize {
        let socket = self.socket();
        socket.send_capacity() - socket.send_queue()
    }

    /// Sends what is queued, and then the end of the stream.
    pub fn close(&mut self) {
        self.socket().close();
    }

    /// Whether the connection is established.
    pub fn is_connected(&mut self) -> bool {
        self.socket().may_send()
    }

    /// Whether more bytes may arrive, or have arrived and were not taken.
    pub fn may_receive(&mut self) -> bool {
        self.socket().may_recv()
    }

    /// Whether the connection is closed in both directions.
    pub fn is_closed(&mut self) -> bool {
        !self.socket().is_active()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> OffloadCounters {
        self.port.counters
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.connection)
    }
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

impl Port {
    fn receive_all(&mut self) {
        // Frames that arrive from here on set it again.
        self.miniport.stack().arrived().reset();
        for frame in self.miniport.received_frames() {
            self.counters.received += 1;
            if let Some(bytes) = self.verify(frame) {
                self.received.push_back(bytes);
            } else {
                self.counters.invalid += 1;
            }
        }
    }

    /// Returns the offloads in force, as far as the stack may use them.
    fn offloads(&self) -> Offloads {
        if self.has_started { self.miniport.offloads() } else { Offloads::default() }
    }

    /// Verifies the checksums that the adapter has not verified.
    fn verify(&mut self, frame: ReceivedFrame) -> Option<Vec<u8>> {
        self.counters.coalesced += u64::from(frame.coalesced != 0);
        self.counters.verified += u64::from(frame.checksum & Checksum::RECEIVE_TCP_SUCCEEDED != 0);
        frame.has_valid_checksums().then_some(frame.bytes)
    }

    /// Queues a frame without checksums for [`send_all`](Self::send_all).
    fn queue(&mut self, mut frame: Vec<u8>) {
        let offloads = self.offloads();
        let found = Transport::find(&frame);
        if let Some(found) = found.as_ref().filter(|_| frame.len() > self.mtu + ETHERNET_HEADER) {
            let header =
                found.range.start - ETHERNET_HEADER + usize::from(frame[found.range.start + 12] >> 4) * 4;
            let mss = self.mtu - header;
            if offloads.large_send[usize::from(found.is_ipv6)].is_none() {
                // In force when smoltcp asked for the longest packet, but no longer.
                for segment in divide(&frame, found, mss) {
                    self.queue(segment);
                }
                return;
            }
            let request = SendRequest::large_send(&mut frame, mss as u32);
            self.counters.sent += 1;
            self.counters.large_sends += 1;
            self.to_send.push((frame, request));
            return;
        }
        self.counters.sent += 1;
        let request = SendRequest::checksums(&mut frame, &offloads);
        if let Some(found) = found.filter(|found| !offloads.send.covers(found)) {
            let seed = found.pseudo_header(&frame, found.range.len());
            found.write(&mut frame, seed);
            let sum = !checksum::sum(&frame[found.range.clone()], 0);
            found.write(&mut frame, sum);
        }
        if !offloads.send.ipv4 && checksum::ipv4_header_is_valid(&frame).is_some() {
            let ip = Transport::IP;
            let end = ip + usize::from(frame[ip] & 0xf) * 4;
            let sum = !checksum::sum(&frame[ip..end], 0);
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        self.counters.checksums += u64::from(request != SendRequest::default());
        self.to_send.push((frame, request));
    }

    fn send_all(&mut self) {
        let frames = std::mem::take(&mut self.to_send);
        if !frames.is_empty() {
            // A frame that is not sent is lost.
            let _ = self.miniport.send_requests(frames);
        }
    }
}

/// Divides a TCP packet into segments of up to `mss` bytes of payload, without checksums.
fn divide(frame: &[u8], found: &Transport, mss: usize) -> Vec<Vec<u8>> {
    let (ip, tcp) = (found.ip, found.range.start);
    let headers = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
    let (headers, payload) = frame[..found.range.end].split_at(headers);
    let sequence = u32::from_be_bytes([frame[tcp + 4], frame[tcp + 5], frame[tcp + 6], frame[tcp + 7]]);
    let segment = |(number, part): (usize, &[u8])| {
        let mut segment = [headers, part].concat();
        let sequence = sequence.wrapping_add((number * mss) as u32);
        segment[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if (number + 1) * mss < payload.len() {
            segment[tcp + 13] &= !(FIN | PSH);
        }
        let length = (segment.len() - ip) as u16;
        if found.is_ipv6 {
            segment[ip + 4..ip + 6].copy_from_slice(&(length - 40).to_be_bytes());
        } else {
            segment[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
        }
        segment
    };
    payload.chunks(mss).enumerate().map(segment).collect()
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received, Sender<'_>)> {
        Some((Received(self.received.pop_front()?), Sender(self)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sender<'_>> {
        Some(Sender(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        let offloads = self.offloads();
        let largest = if offloads.large_send.iter().all(Option::is_some) { LARGE_PACKET } else { self.mtu };
        capabilities.max_transmission_unit = largest + ETHERNET_HEADER;
        capabilities.medium = Medium::Ethernet;
        capabilities.checksum.ipv4 = phy::Checksum::None;
        capabilities.checksum.tcp = phy::Checksum::None;
        capabilities.checksum.udp = phy::Checksum::None;
        capabilities
    }
}

/// A frame for smoltcp.
struct Received(Vec<u8>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, body: F) -> R {
        body(&self.0)
    }
}

/// Takes a frame from smoltcp.
struct Sender<'a>(&'a mut Port);

impl phy::TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, body: F) -> R {
        let mut frame = vec![0; length];
        let result = body(&mut frame);
        self.0.queue(frame);
        result
    }
}
