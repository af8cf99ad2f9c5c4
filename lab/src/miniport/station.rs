// SPDX-License-Identifier: MIT OR Apache-2.0

//! An IP host above a miniport: smoltcp as a protocol driver. It runs on a thread of the adapter's host.

use std::{collections::VecDeque, net::Ipv4Addr, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ndis_sim::{Miniport, ReceivedFrame, SendId};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::{current, nt::time::sleep};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::{icmp, tcp},
    time::Instant,
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, IpCidr},
};

/// Longest Ethernet frame without a CRC.
const FRAME: usize = 1514;
/// Port of [`Station::echo`].
const PORT: u16 = 5001;
/// Nanoseconds between two looks at what has arrived.
const IDLE: u64 = 20_000;
/// How long a station waits for its peer, in time of the simulation.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a TCP socket's buffers.
const WINDOW: usize = 1 << 16;

/// An IP host with one address.
pub struct Station {
    frames: Frames,
    interface: Interface,
    address: Ipv4Addr,
}

/// A miniport as a device of smoltcp.
struct Frames {
    miniport: Miniport,
    received: VecDeque<Vec<u8>>,
    sends: Vec<SendId>,
    /// Received frames that the miniport has coalesced of several.
    coalesced: u64,
}

struct Received(Vec<u8>);
struct Transmit<'a>(&'a mut Frames);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, body: F) -> R {
        body(&self.0)
    }
}

impl phy::TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, body: F) -> R {
        let mut frame = vec![0; length];
        let result = body(&mut frame);
        self.0.sends.extend(self.0.miniport.send_chain(&[frame], 0));
        result
    }
}

/// Received and transmitted frames are in different members: the tokens of one frame borrow apart.
impl Device for Frames {
    type RxToken<'a> = Received;
    type TxToken<'a> = Transmit<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received, Transmit<'_>)> {
        if self.received.is_empty() {
            for frame in
                self.miniport.received_frames().into_iter().filter(ReceivedFrame::has_valid_checksums)
            {
                self.coalesced += u64::from(frame.coalesced != 0);
                self.received.push_back(frame.bytes);
            }
        }
        let frame = self.received.pop_front()?;
        Some((Received(frame), Transmit(self)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Transmit<'_>> {
        Some(Transmit(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        // Those of received frames are verified above, as far as the miniport has not done it.
        capabilities.checksum.ipv4 = phy::Checksum::Tx;
        capabilities.checksum.tcp = phy::Checksum::Tx;
        capabilities.checksum.udp = phy::Checksum::Tx;
        capabilities
    }
}

fn now() -> Instant {
    Instant::from_micros((current().world().now() / 1000).cast_signed())
}

/// Returns a byte of the data of a TCP transfer.
fn pattern(index: usize) -> u8 {
    (index ^ index >> 8 ^ index >> 16) as u8
}

impl Station {
    /// Binds an IP host with `address` to `miniport`, as the stack of Windows does: the packet filter, and the start of the task offloads
    /// by `OID_OFFLOAD_ENCAPSULATION`, which the miniport may refuse. To be called on a thread of the host.
    ///
    /// # Errors
    /// The miniport refuses the packet filter.
    pub fn new(miniport: &Miniport, address: Ipv4Addr) -> Result<Self> {
        let filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST;
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes()).context("the packet filter")?;
        // No frame that is sent has a request for an offload.
        let _ = miniport.start_offloads();
        let _ = miniport.received();
        let general = miniport.attributes().general.context("no general attributes")?;
        let mut mac = [0; 6];
        mac.copy_from_slice(&general.CurrentMacAddress[..6]);
        let mut frames =
            Frames { miniport: miniport.clone(), received: VecDeque::new(), sends: Vec::new(), coalesced: 0 };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut interface = Interface::new(config, &mut frames, now());
        interface.update_ip_addrs(|list| _ = list.push(IpCidr::new(address.into(), 24)));
        Ok(Self { frames, interface, address })
    }

    /// Returns how many of the received frames the miniport has coalesced of several.
    #[must_use]
    pub const fn coalesced(&self) -> u64 {
        self.frames.coalesced
    }

    /// Polls until `step` returns a result.
    fn until<T>(
        &mut self,
        sockets: &mut SocketSet<'_>,
        what: &str,
        mut step: impl FnMut(&mut Self, &mut SocketSet<'_>) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = current().world().now() + PATIENCE.as_nanos() as u64;
        loop {
            self.interface.poll(now(), &mut self.frames, sockets);
            if let Some(result) = step(self, sockets)? {
                self.interface.poll(now(), &mut self.frames, sockets);
                return Ok(result);
            }
            ensure!(current().world().now() < deadline, "{what}: nothing for {} s", PATIENCE.as_secs());
            if self.frames.received.is_empty() {
                sleep(IDLE);
            }
        }
    }

    /// Sends echo requests with data of each of `lengths` to `peer`, and compares the replies.
    ///
    /// # Errors
    /// A reply does not come, or has other data.
    pub fn ping(&mut self, peer: Ipv4Addr, lengths: &[usize]) -> Result<()> {
        const IDENT: u16 = 0x1d1a;
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 8192]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(IDENT)).map_err(|error| anyhow!("{error}"))?;
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        for (number, &length) in (0_u16..).zip(lengths) {
            let data: Vec<u8> = (0..length).map(pattern).collect();
            let echo = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: number, data: &data };
            let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
            let bytes = socket.send(echo.buffer_len(), peer.into()).map_err(|error| anyhow!("{error}"))?;
            echo.emit(&mut Icmpv4Packet::new_unchecked(bytes), &phy::ChecksumCapabilities::default());
            let what = format!("ping with {length} bytes from {} to {peer}", self.address);
            self.until(&mut sockets, &what, |_, sockets| {
                let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
                let Ok((reply, from)) = socket.recv() else { return Ok(None) };
                ensure!(from == peer.into(), "{what}: answered by {from}");
                let packet = Icmpv4Packet::new_checked(reply).map_err(|error| anyhow!("{error}"))?;
                ensure!(packet.verify_checksum() && packet.data() == data, "{what}: the reply differs");
                Ok(Some(()))
            })?;
        }
        Ok(())
    }

    /// Answers pings, and each TCP connection with what it receives, until `ended` returns true.
    ///
    /// # Errors
    /// A send fails.
    pub fn echo(&mut self, mut ended: impl FnMut() -> bool) -> Result<()> {
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(tcp_socket());
        while !ended() {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            if !socket.is_open() {
                socket.listen(PORT).map_err(|error| anyhow!("{error}"))?;
            }
            self.interface.poll(now(), &mut self.frames, &mut sockets);
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            let mut moved = 0;
            let room = socket.send_capacity() - socket.send_queue();
            if room > 0 && socket.can_recv() && socket.can_send() {
                let data = socket.recv(|bytes| {
                    let count = bytes.len().min(room);
                    (count, bytes[..count].to_vec())
                });
                let data = data.map_err(|error| anyhow!("{error}"))?;
                moved = data.len();
                let sent = socket.send_slice(&data).map_err(|error| anyhow!("{error}"))?;
                ensure!(sent == moved, "the echo's buffer is full");
            }
            if socket.may_send() && !socket.may_recv() && socket.recv_queue() == 0 {
                socket.close();
            }
            if moved == 0 && self.frames.received.is_empty() {
                sleep(IDLE);
            }
        }
        self.finish()
    }

    /// Sends `length` bytes over TCP to a peer that echoes, and compares what comes back. Returns the time that it took.
    ///
    /// # Errors
    /// The connection ends, or the data differ.
    pub fn transfer(&mut self, peer: Ipv4Addr, length: usize) -> Result<Duration> {
        let began = current().world().now();
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(tcp_socket());
        let local = 49_152 + (began / 1000 % 16_000) as u16;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.connect(self.interface.context(), (peer, PORT), local).map_err(|error| anyhow!("{error}"))?;
        let (mut sent, mut returned) = (0, 0);
        let what = format!("TCP from {} to {peer}", self.address);
        self.until(&mut sockets, &what, |_, sockets| {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            if !socket.is_active() {
                bail!("{what}: the connection ended after {sent} bytes sent, {returned} returned");
            }
            while sent < length && socket.can_send() {
                let chunk: Vec<u8> = (sent..length.min(sent + 4096)).map(pattern).collect();
                sent += socket.send_slice(&chunk).map_err(|error| anyhow!("{error}"))?;
            }
            while socket.can_recv() {
                let count = socket.recv(|bytes| {
                    let equal = bytes.iter().enumerate().all(|(at, &byte)| byte == pattern(returned + at));
                    (bytes.len(), equal.then_some(bytes.len()))
                });
                let count = count.map_err(|error| anyhow!("{error}"))?;
                returned +=
                    count.with_context(|| format!("{what}: different data after {returned} bytes"))?;
            }
            Ok((returned == length).then_some(()))
        })?;
        self.close(&mut sockets, handle)?;
        Ok(Duration::from_nanos(current().world().now() - began))
    }

    fn close(&mut self, sockets: &mut SocketSet<'_>, handle: SocketHandle) -> Result<()> {
        sockets.get_mut::<tcp::Socket<'_>>(handle).close();
        self.until(sockets, "the end of a TCP connection", |_, sockets| {
            let state = sockets.get::<tcp::Socket<'_>>(handle).state();
            Ok(matches!(state, tcp::State::TimeWait | tcp::State::Closed).then_some(()))
        })
    }

    /// Waits until every send is completed.
    ///
    /// # Errors
    /// A send is not completed, or fails.
    pub fn finish(&mut self) -> Result<()> {
        for id in self.frames.sends.drain(..) {
            let status = self.frames.miniport.send_status(id, Duration::from_secs(5));
            ensure!(status == Some(NDIS_STATUS_SUCCESS), "a send ended with {status:x?}");
        }
        Ok(())
    }
}

fn tcp_socket<'a>() -> tcp::Socket<'a> {
    let buffer = || tcp::SocketBuffer::new(vec![0; WINDOW]);
    tcp::Socket::new(buffer(), buffer())
}

#[cfg(test)]
mod tests {
    use nt_sim::Tolerances;

    use crate::miniport::cases;
    use crate::miniport::two_hosts::{Image, Setup, TwoHosts};

    /// The stack of Windows sends `OID_OFFLOAD_ENCAPSULATION` at each bind: drivers coalesce from then on.
    #[test]
    fn station_starts_the_task_offloads_and_accepts_what_they_report() {
        let Some(path) = crate::image() else { return };
        let image = Image { path, service: "viordma".into(), tolerate: Tolerances::NONE };
        let setup = Setup { verifier: true, ..Setup::new(false) };
        let mut hosts = TwoHosts::new([&image; 2], &setup).unwrap();
        hosts.start().unwrap();
        assert_eq!(hosts.sides[0].miniport().unwrap().possible_offloads().coalescing, [true; 2]);
        let tcp = cases::ALL.iter().find(|case| case.name == "tcp").unwrap();
        let text = (tcp.run)(&mut hosts).unwrap();
        hosts.stop().unwrap();
        let (_, coalesced) = text.split_once(" ms, ").unwrap();
        let count: u64 = coalesced.split_once(" frames coalesced").unwrap().0.parse().unwrap();
        assert!(count > 10, "{text}");
    }
}
