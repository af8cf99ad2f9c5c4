// SPDX-License-Identifier: MIT OR Apache-2.0

//! Traffic between the hosts beside the steps: copies by RDMA, TCP connections, chains of frames.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use ndis_sim::{Miniport, SendId, tcp_stack::TcpStack};
use ndk_abi::ndis::{NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};
use ndk_consumer::{Error, transfer};
use nt_sim::{JoinHandle, current, nt::time::sleep};

use crate::{
    conformance,
    machine::{Consumer, Machine},
    testbed::Testbed,
};

/// How long the serving side of a copy waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a send or a frame may take.
const MOMENT: Duration = Duration::from_secs(20);
/// Port of TCP connections.
const TCP_PORT: u16 = 445;
/// Nanoseconds between two looks at a connection: the shortest, and the longest if nothing happens.
const PAUSES: [u64; 2] = [20_000, 2_000_000];

/// Flows that together use all transmit queues, with high probability.
const FLOWS: u8 = 128;

/// A copy by RDMA that has begun.
pub struct Copying([Consumer<Result<(), Error>>; 2]);

impl Copying {
    /// Begins to copy `bytes` bytes from the first host to `port` of the second, and back.
    pub fn begin(bed: &Testbed, bytes: usize, port: u16) -> Self {
        let [client, server] = bed.machines();
        let options = transfer::Options { timeout: PATIENCE, ..transfer::Options::default() };
        let remote = SocketAddr::new(server.address(), port);
        let listening = bed.event();
        let ready = listening.clone();
        let serving = server.consumer("server", move |adapter| {
            let outcome = transfer::serve(adapter, &options, remote, |_| ready.set(), &|_| {});
            // Also if it does not listen: the client must not wait.
            ready.set();
            ended(outcome)
        });
        let local = SocketAddr::new(client.address(), 0);
        let copying = client.consumer("client", move |adapter| {
            let _ = listening.wait(PATIENCE);
            let data = stream(0, bytes);
            ended(transfer::copy(adapter, &options, local, remote, "data", &data[..], &|_| {}))
        });
        Self([copying, serving])
    }

    pub fn is_finished(&self) -> bool {
        self.0.iter().all(Consumer::is_finished)
    }

    /// Waits for both sides. Returns whether the copy is complete.
    ///
    /// # Errors
    /// A side has failed: for any reason if nothing was `disturbed`, else for one that is no loss of the connection or of resources.
    pub fn join(self, disturbed: bool) -> Result<bool> {
        let mut complete = true;
        for (name, end) in ["client", "server"].into_iter().zip(self.0) {
            match end.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) if disturbed && conformance::is_loss(&error) => complete = false,
                Ok(Err(error)) => bail!("the {name} of a copy: {error}"),
                // The adapter was not there, or RDMA was disabled.
                Err(_) if disturbed => complete = false,
                Err(error) => bail!("the {name} of a copy: {error:#}"),
            }
        }
        Ok(complete)
    }
}

fn ended(outcome: Result<transfer::Report, Box<transfer::Failure>>) -> Result<(), Error> {
    match outcome {
        Ok(report) if report.stats.outstanding() != 0 => {
            Err(Error::MissingCompletions(report.stats.outstanding()))
        }
        Err(failure) if failure.report.stats.unexpected != 0 => {
            Err(Error::Mismatch("a completion without a request"))
        }
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error),
    }
}

/// A TCP connection, over which either side sends a number of bytes.
pub struct Tcp {
    ends: Vec<JoinHandle<Result<bool>>>,
    shared: Arc<TcpProgress>,
    miniports: [Miniport; 2],
}

/// State that the threads of a connection share.
#[derive(Default)]
struct TcpProgress {
    stopped: AtomicBool,
    /// Sides that have received everything.
    complete: AtomicU32,
}

impl Tcp {
    /// Begins to send `bytes` bytes each way.
    pub fn begin(machines: [(&Machine, &Miniport); 2], bytes: usize) -> Self {
        let shared = Arc::new(TcpProgress::default());
        let [first, second] = machines.map(|(machine, _)| machine.address());
        let ends = machines.into_iter().zip([None, Some(first)].into_iter().rev()).map(
            |((machine, miniport), peer)| {
                // The first host connects to the second.
                let peer = peer.map(|_| second);
                let (miniport, shared) = (miniport.clone(), shared.clone());
                let (mac, address) = (station(&miniport), machine.address());
                machine.host().spawn("TCP", move || drive(&miniport, mac, address, peer, bytes, &shared))
            },
        );
        Self { ends: ends.collect(), shared, miniports: machines.map(|(_, miniport)| miniport.clone()) }
    }

    pub fn is_finished(&self) -> bool {
        self.ends.iter().all(JoinHandle::is_finished)
    }

    /// Returns the adapters that the connection uses.
    pub fn miniports(&self) -> &[Miniport; 2] {
        &self.miniports
    }

    /// Ends a connection that cannot complete.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Relaxed);
    }

    /// Waits for both sides. Returns whether all bytes have arrived.
    ///
    /// # Errors
    /// Data differ, or a side could not begin although nothing was `disturbed`.
    pub fn join(self, disturbed: bool) -> Result<bool> {
        let mut complete = true;
        for end in self.ends {
            match end.join()? {
                Ok(done) => complete &= done,
                Err(error) if disturbed && error.is::<NoStack>() => complete = false,
                Err(error) => return Err(error),
            }
        }
        Ok(complete)
    }
}

/// The stack could not begin: the adapter refused an OID.
#[derive(Debug)]
struct NoStack(ndis_sim::oid::OidError);

impl std::fmt::Display for NoStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TCP cannot begin: {}", self.0)
    }
}

impl std::error::Error for NoStack {}

/// The station address of an adapter.
pub fn station(miniport: &Miniport) -> [u8; 6] {
    miniport.attributes().station().unwrap_or_default()
}

/// One side of a connection, on a thread of its host; it connects to `peer`, or listens. Returns whether all bytes have arrived.
fn drive(
    miniport: &Miniport,
    mac: [u8; 6],
    address: IpAddr,
    peer: Option<IpAddr>,
    bytes: usize,
    shared: &TcpProgress,
) -> Result<bool> {
    let now = || Duration::from_nanos(current().world().now());
    let stack = TcpStack::new(miniport, mac, (address, 24)).map_err(NoStack);
    let mut stack = stack.inspect_err(|_| shared.stopped.store(true, Relaxed))?;
    match peer {
        Some(peer) => stack.connect(peer, TCP_PORT),
        None => stack.listen(TCP_PORT),
    }
    let (mut sent, mut arrived, mut pause) = (0, 0, PAUSES[0]);
    loop {
        stack.poll(now());
        if stack.is_connected() && sent < bytes {
            sent += stack.send(&stream(sent, (bytes - sent).min(1 << 16)));
        }
        let received = stack.receive();
        ensure!(received == stream(arrived, received.len()), "TCP: different data after {arrived} bytes");
        let before = arrived;
        arrived += received.len();
        stack.poll(now());
        ensure!(arrived <= bytes, "TCP: {arrived} bytes of {bytes}");
        if arrived == bytes && before != bytes {
            shared.complete.fetch_add(1, SeqCst);
        }
        // The other side needs acknowledgments until it is complete, too.
        if shared.complete.load(SeqCst) == 2 {
            return Ok(true);
        }
        if shared.stopped.load(Relaxed) {
            return Ok(false);
        }
        pause = if received.is_empty() { (pause * 2).min(PAUSES[1]) } else { PAUSES[0] };
        sleep(pause);
    }
}

/// Sends that were passed to a miniport, and are to be completed.
pub struct Sends {
    miniport: Miniport,
    ids: Vec<SendId>,
}

impl Sends {
    /// Sends frames of `length` bytes to a station address from another in one chain.
    pub fn begin(miniport: &Miniport, [to, from]: [[u8; 6]; 2], count: usize, length: usize) -> Self {
        let frames: Vec<_> = (0..count).map(|number| frame(to, from, OTHER, number, length)).collect();
        // The cancel ID of all.
        Self { miniport: miniport.clone(), ids: miniport.send_chain(&frames, 1) }
    }

    /// Sends a frame of each of many flows, so that each transmit queue gets some.
    pub fn to_all_queues(miniport: &Miniport, [to, from]: [[u8; 6]; 2]) -> Self {
        let frames: Vec<_> = (0..FLOWS).map(|flow| datagram(to, from, flow)).collect();
        Self { miniport: miniport.clone(), ids: miniport.send_chain(&frames, 1) }
    }

    /// Waits until each is completed.
    ///
    /// # Errors
    /// A send is not completed; or it has failed although nothing was `disturbed`.
    pub fn join(self, disturbed: bool) -> Result<()> {
        for id in self.ids {
            match self.miniport.send_status(id, MOMENT) {
                Some(NDIS_STATUS_SUCCESS) => {}
                Some(_) if disturbed => {}
                Some(status) => bail!("a send has failed with {status:#010x}"),
                None => bail!("a send is not completed after {} s", MOMENT.as_secs()),
            }
        }
        Ok(())
    }
}

/// Sends frames of various lengths to the receiver, all of which have to arrive, once, whole and in order. If its device delivers the first
/// one more often than the adapter has buffers, those behind it may be lost; then all have to arrive at the second attempt.
///
/// # Errors
/// What has gone wrong.
pub fn exchange(bed: &Testbed, hosts: [(&Machine, &Miniport); 2], longest: usize) -> Result<()> {
    let repeats = hosts[1].0.nic().options().quirks.repeats.is_some();
    exchange_once(bed, hosts, longest)
        .or_else(|error| if repeats { exchange_once(bed, hosts, longest) } else { Err(error) })
}

fn exchange_once(bed: &Testbed, [from, to]: [(&Machine, &Miniport); 2], longest: usize) -> Result<()> {
    let [source, target] = [from.1, to.1].map(station);
    let (sender, receiver) = (from.1, to.1);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())?;
    let _ = receiver.received();
    let lengths = [60, longest, 61, 1000.min(longest), 1514.min(longest), 100];
    let frames: Vec<_> =
        (0..).zip(lengths).map(|(number, length)| frame(target, source, EXCHANGED, number, length)).collect();
    for id in sender.send_chain(&frames, 0) {
        let status = sender.send_status(id, MOMENT);
        ensure!(status == Some(NDIS_STATUS_SUCCESS), "a frame was sent with {status:x?}");
    }
    let mut arrived = Vec::new();
    let deadline = bed.now() + MOMENT;
    while arrived.len() < frames.len() && bed.now() < deadline {
        let _ = bed.event().wait(Duration::from_millis(1));
        arrived.extend(receiver.received().into_iter().filter(|frame| frame.get(12..14) == Some(&EXCHANGED)));
    }
    // The device may deliver the first of them several times.
    if to.0.nic().options().quirks.repeats.is_some() {
        arrived.dedup();
    }
    ensure!(
        arrived == frames,
        "{} of {} frames from {} arrived, or they differ",
        arrived.len(),
        frames.len(),
        from.0.host().name()
    );
    Ok(())
}

/// EtherTypes for experiments: of frames that have to arrive, and of others, which may be late. (IEEE 802)
const EXCHANGED: [u8; 2] = [0x88, 0xb5];
const OTHER: [u8; 2] = [0x88, 0xb6];

fn frame(to: [u8; 6], from: [u8; 6], ether_type: [u8; 2], number: usize, length: usize) -> Vec<u8> {
    let mut frame = [to.as_slice(), &from, &ether_type].concat();
    frame.resize(length.max(frame.len()), number as u8);
    frame
}

/// A UDP packet over IPv4 to the discard port, from a port for each flow. Its addresses are those of a network of examples (RFC 5737).
fn datagram(to: [u8; 6], from: [u8; 6], flow: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46]);
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    frame[34..40].copy_from_slice(&[0x80, flow, 0, 9, 0, 26]);
    frame
}

/// Bytes of a stream from a position on.
fn stream(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| (at % 251) as u8).collect()
}
