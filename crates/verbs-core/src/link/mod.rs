// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames between devices: the engine builds Ethernet frames, which travel as UDP datagrams, or, on an interface that the user names, as
//! they are. Those to addresses of the same host, and by other interfaces, are datagrams then, too. Frames to other processes at the same
//! address go through memory that two of them share.
//!
//! Processes that share an address have different *slots*. The slot is the upper bits of their queue pair numbers, and the offset of
//! their UDP port: slot 0 has the port of RoCEv2, which other hosts know. The kernel releases a port when its process ends, and another
//! process takes that of RoCEv2 over.

mod capture;
mod faults;
mod frame;
mod headers;
mod incoming;
mod memory;
mod neighbors;
mod next_hops;
mod outgoing;
mod postponed;
mod ring;
mod routing;
mod socket;
mod takeover;

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use roce::{Instant, Receiver};
use roce_wire::MacAddr;

use crate::Lock;
use crate::environment::Settings;
use crate::error::Error;
use crate::sys::{self, Interest, Netlink, PacketSocket, UdpSocket};
use incoming::Incoming;
use memory::{Inbound, Outbound};
use neighbors::Neighbors;
use next_hops::NextHops;
use outgoing::Outgoing;
use socket::{bind, open_packets};
use takeover::Takeover;

pub use capture::Capture;
pub use frame::{FRAME, FrameBuffer, SLOT_BITS};
pub use headers::MAC;
pub use ring::{Consumer, Producer};

/// How often other processes are served that a thread does not wait for, because it has frames all the time.
const SERVE: Duration = Duration::from_millis(1);

/// Batches of datagrams that are received before the first frames of a ring: more than a receive buffer holds, of frames with payload.
pub const DRAINED: usize = 1024;

/// Bytes that the kernel counts for a frame of 4096 bytes of payload in a receive buffer.
const COUNTED: usize = 8448;

/// Frames that were received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub frames: usize,
    /// No others had arrived before.
    pub is_all: bool,
}

impl Received {
    const NONE: Self = Self { frames: 0, is_all: true };
    /// Another thread receives.
    const UNKNOWN: Self = Self { frames: 0, is_all: false };

    /// Adds a batch from one of the places where frames arrive: more wait there if it is a full one.
    fn add(&mut self, batch: usize) {
        self.frames += batch;
        self.is_all &= batch < sys::BATCH;
    }
}

/// The link of a device.
#[derive(Debug)]
pub struct Link {
    slot: u8,
    socket: UdpSocket,
    takeover: Takeover,
    /// Receives and transmits frames of an interface.
    packets: Option<PacketSocket>,
    neighbors: Neighbors,
    /// Rings of other processes at the same address.
    memory: Option<Inbound>,
    /// When to call [`Inbound::serve`] next.
    serve: AtomicU64,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
    /// When a postponed request is to be handled; `u64::MAX` if there is none.
    due: AtomicU64,
}

impl Link {
    /// Opens the link of `address`, in the first slot that is free; with `interface`, for Ethernet frames of this interface.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] if no slot is free; [`Error::System`] if the address is not one of this host, and those of
    /// [`PacketSocket::open`].
    pub fn open(
        address: IpAddr,
        interface: Option<u32>,
        settings: &Settings,
        capture: Option<&Arc<Capture>>,
    ) -> Result<Self, Error> {
        // Before a socket drops what this one receives.
        let packets = interface.map(|interface| open_packets(interface, address)).transpose()?;
        let (slot, socket) = claim(address, interface)?;
        let next_hops = match (interface, &packets) {
            (Some(interface), Some(packets)) => {
                Some(NextHops::new(Netlink::open()?, address, interface, MacAddr(packets.mac())))
            }
            _ => None,
        };
        let shares = settings.shared_memory;
        let (memory, outbound) = (
            shares.then(|| Inbound::open(address, slot)).transpose()?,
            shares.then(|| Outbound::new(address)),
        );
        let (faults, serve) = (settings.faults, AtomicU64::new(0));
        let outgoing = Outgoing::new(address, slot, faults, capture.cloned(), next_hops, outbound);
        let outgoing = Mutex::new(outgoing);
        let incoming = Mutex::new(Incoming::new(address, slot, capture.cloned()));
        let neighbors = Neighbors::open(address, slot)?;
        let takeover = Takeover::new(address, slot, interface);
        let due = AtomicU64::new(u64::MAX);
        Ok(Self { slot, socket, takeover, packets, neighbors, memory, serve, outgoing, incoming, due })
    }

    /// Returns the slot, less than 2^[`SLOT_BITS`].
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the packets of the largest MTU that a peer may have in flight so that the receive buffer holds those of a few queue pairs.
    pub fn window(&self) -> u32 {
        let buffers =
            [Some(self.socket.receive_buffer()), self.packets.as_ref().map(PacketSocket::receive_buffer)];
        let bytes = buffers.into_iter().flatten().min().unwrap_or(0);
        let packets = bytes / COUNTED / 2;
        u32::try_from(packets).unwrap_or(u32::MAX).clamp(8, 256)
    }

    /// Transmits frames that `fill` writes into a transmit queue, until it writes less than the queue holds.
    pub fn transmit(&self, now: Instant, mut fill: impl FnMut(&mut Outgoing, usize) -> usize) {
        let mut outgoing = self.outgoing.lock();
        loop {
            let budget = outgoing.room();
            let filled = fill(&mut outgoing, budget);
            outgoing.flush(now, &self.socket, self.packets.as_ref(), &self.neighbors);
            if filled < budget {
                break;
            }
        }
    }

    /// Passes frames that have arrived to `receiver`, unless another thread does so now. Looks `everywhere`, or, beside rings, at sockets only
    /// from time to time.
    pub fn receive<'a>(
        &self,
        now: Instant,
        everywhere: bool,
        receiver: impl Fn() -> Receiver<'a, Lock>,
    ) -> Received {
        let Some(mut incoming) = self.incoming.try_lock() else { return Received::UNKNOWN };
        let mut arrived = Received::NONE;
        if let Some(memory) = &self.memory {
            if memory.is_begun() {
                // What the process sent before it used the ring; not for ever, if other hosts send all the time.
                let mut rounds = 0..DRAINED;
                while rounds.next().is_some()
                    && self.receive_datagrams(&mut incoming, now, &receiver).frames > 0
                {}
            }
            memory.each(|ring| arrived.add(incoming.receive_memory(ring, now, &receiver)));
            if memory.has_rings() && !incoming.is_turn_of_sockets() && !everywhere {
                self.note_due(&mut incoming);
                return Received { is_all: false, ..arrived };
            }
        }
        let datagrams = self.receive_datagrams(&mut incoming, now, &receiver);
        self.note_due(&mut incoming);
        Received { frames: arrived.frames + datagrams.frames, is_all: arrived.is_all && datagrams.is_all }
    }

    fn receive_datagrams<'a>(
        &self,
        incoming: &mut Incoming,
        now: Instant,
        receiver: &impl Fn() -> Receiver<'a, Lock>,
    ) -> Received {
        let mut arrived = Received::NONE;
        for socket in self.sockets() {
            arrived.add(incoming.receive(socket, &self.neighbors, now, receiver));
        }
        if let Some(packets) = &self.packets {
            let refuses = self.slot == 0 || self.takeover.socket().is_some();
            arrived.add(incoming.receive_frames(packets, refuses, &self.neighbors, now, receiver));
        }
        arrived
    }

    /// Waits until frames have arrived, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        self.wait_also(&mut Vec::new(), true, Some(timeout));
    }

    /// Waits until `waker` is readable, another process has passed or offered something, or, if `for_frames`, frames have arrived. Of the
    /// progress thread.
    pub fn sleep(&self, waker: BorrowedFd<'_>, for_frames: bool, timeout: Option<Duration>) {
        let streams = self.memory.as_ref().map(Inbound::streams).unwrap_or_default();
        let offers = self.memory.as_ref().map(Inbound::listener);
        let offers = offers.into_iter().chain(streams.iter().map(AsFd::as_fd));
        let first = [waker, self.neighbors.readable()];
        let count = first.len();
        let mut interests = first.into_iter().chain(offers).map(|fd| (fd, false)).collect();
        self.wait_also(&mut interests, for_frames, timeout);
        if interests.iter().skip(count).take(1 + streams.len()).any(|&(_, is_readable)| is_readable) {
            self.serve.store(0, Ordering::SeqCst);
        }
    }

    /// Waits for descriptors, and, if `for_frames`, for those of frames, which are appended.
    fn wait_also<'a>(
        &'a self,
        interests: &mut Vec<Interest<'a>>,
        for_frames: bool,
        timeout: Option<Duration>,
    ) {
        let memory = self.memory.as_ref().filter(|_| for_frames);
        let waits = memory.map(Inbound::begin_wait);
        if matches!(waits, Some(None)) {
            return;
        }
        if for_frames {
            let sockets = self.sockets().map(AsFd::as_fd).chain(self.packets.as_ref().map(AsFd::as_fd));
            interests.extend(sockets.chain(memory.map(Inbound::bell)).map(|fd| (fd, false)));
        }
        sys::wait_readable(interests, timeout);
        if let (Some(memory), Some(&(_, true))) = (memory, interests.last()) {
            memory.silence();
        }
    }

    /// Accepts what other processes at the same address offer, if there can be something. Of the progress thread.
    pub fn serve(&self, now: Instant) {
        if let Some(memory) = &self.memory
            && self.serve.load(Ordering::SeqCst) <= now.as_nanos()
        {
            self.serve.store((now + SERVE).as_nanos(), Ordering::SeqCst);
            memory.serve();
        }
    }

    /// Takes the port of RoCEv2 over if the process that had it has ended. To be called when [`Link::next_takeover`] has passed.
    pub fn take_over(&self, now: Instant) {
        self.takeover.attempt(now);
    }

    /// Returns when to call [`Link::take_over`] next.
    pub fn next_takeover(&self) -> Option<Instant> {
        self.takeover.next()
    }

    /// Returns the sockets by which datagrams arrive.
    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        [&self.socket].into_iter().chain(self.takeover.socket())
    }

    /// Passes a frame that came to another process at the same address, or a request that was postponed, to `receiver`. Returns whether
    /// there was one.
    pub fn take_passed<'a>(&self, now: Instant, receiver: impl Fn() -> Receiver<'a, Lock>) -> bool {
        let mut incoming = self.incoming.lock();
        let taken = incoming.take_passed(&self.neighbors, now, &receiver)
            || incoming.take_postponed(&self.neighbors, now, &receiver);
        self.note_due(&mut incoming);
        taken
    }

    /// Records that this process listens on a port that it has claimed: requests that wait for it are handled next.
    pub fn listen(&self, now: Instant, port: u16) {
        self.neighbors.listen(port);
        let mut incoming = self.incoming.lock();
        incoming.postponed().hasten(now, port);
        self.note_due(&mut incoming);
    }

    fn note_due(&self, incoming: &mut MutexGuard<'_, Incoming>) {
        let due = incoming.postponed().due().map_or(u64::MAX, Instant::as_nanos);
        self.due.store(due, Ordering::SeqCst);
    }

    /// Calls `each` with the name of each counter of the link and its value.
    pub fn each_counter(&self, mut each: impl FnMut(&'static str, u64)) {
        let (sent, faults) = {
            let outgoing = self.outgoing.lock();
            (outgoing.sent(), outgoing.fault_counts())
        };
        each("sent_datagrams", sent.datagrams);
        each("sent_ethernet_frames", sent.ethernet);
        each("sent_through_memory", sent.memory);
        each("lost_frames", faults.lost);
        each("duplicated_frames", faults.duplicated);
        each("reordered_frames", faults.reordered);
    }

    /// Returns when [`Link::take_passed`] has to handle a postponed request.
    pub fn due(&self) -> Option<Instant> {
        Some(self.due.load(Ordering::SeqCst)).filter(|&due| due != u64::MAX).map(Instant::from_nanos)
    }

    /// Returns the other processes at the same address.
    pub fn neighbors(&self) -> &Neighbors {
        &self.neighbors
    }
}

/// Checks that an interface can transmit frames of an address.
///
/// # Errors
/// Those of [`PacketSocket::open`].
pub fn check(interface: u32, address: IpAddr) -> Result<(), Error> {
    open_packets(interface, address).map(drop)
}

/// Binds the port of the first slot that no process has.
fn claim(address: IpAddr, except: Option<u32>) -> Result<(u8, UdpSocket), Error> {
    for slot in 0..1 << SLOT_BITS {
        match bind(address, slot, except) {
            Err(Error::AddressInUse) => {}
            bound => return bound.map(|socket| (slot, socket)),
        }
    }
    Err(Error::AddressInUse)
}
