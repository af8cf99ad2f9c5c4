// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames between devices: the engine builds Ethernet frames, which travel as UDP datagrams.
//!
//! Processes that share an address have different *slots*. The slot is the upper bits of their queue pair numbers, and the offset of
//! their UDP port: slot 0 has the port of RoCEv2, which other hosts know. The kernel releases a port when its process ends.

mod capture;
mod faults;
mod frame;
mod headers;
mod incoming;
mod neighbors;
mod outgoing;
mod postponed;
mod routing;

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use roce::{Instant, Receiver};

use crate::Lock;
use crate::environment::Faults;
use crate::error::Error;
use crate::sys::UdpSocket;
use frame::port_of;
use incoming::Incoming;
use neighbors::Neighbors;
use outgoing::Outgoing;

pub use capture::Capture;
pub use frame::SLOT_BITS;
pub use headers::MAC;

/// Send buffer that is asked for: rings of NICs are of this order.
const SEND_BYTES: i32 = 8 << 20;

/// Receive buffer that is asked for, of which the kernel counts twice as much. Unreliable services have no window: what a peer sends while
/// this process is not scheduled is lost unless it fits.
const RECEIVE_BYTES: i32 = 64 << 20;

/// Bytes that the kernel counts for a frame of 4096 bytes of payload in a receive buffer.
const COUNTED: usize = 8448;

/// The link of a device.
#[derive(Debug)]
pub struct Link {
    slot: u8,
    socket: UdpSocket,
    neighbors: Neighbors,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
    /// When a postponed request is to be handled; `u64::MAX` if there is none.
    due: AtomicU64,
}

impl Link {
    /// Opens the link of `address`, in the first slot that is free.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] if no slot is free; [`Error::System`] if the address is not one of this host.
    pub fn open(address: IpAddr, faults: Faults, capture: Option<&Arc<Capture>>) -> Result<Self, Error> {
        let (slot, socket) = claim(address)?;
        socket.enlarge_buffers(RECEIVE_BYTES, SEND_BYTES);
        let outgoing = Mutex::new(Outgoing::new(address, slot, faults, capture.cloned()));
        let incoming = Mutex::new(Incoming::new(address, slot, capture.cloned()));
        let neighbors = Neighbors::open(address, slot)?;
        Ok(Self { slot, socket, neighbors, outgoing, incoming, due: AtomicU64::new(u64::MAX) })
    }

    /// Returns the slot, less than 2^[`SLOT_BITS`].
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the packets of the largest MTU that a peer may have in flight so that the receive buffer holds those of a few queue pairs.
    pub fn window(&self) -> u32 {
        let packets = self.socket.receive_buffer() / COUNTED / 2;
        u32::try_from(packets).unwrap_or(u32::MAX).clamp(8, 256)
    }

    /// Transmits frames that `fill` writes into a transmit queue, until it writes less than the queue holds.
    pub fn transmit(&self, mut fill: impl FnMut(&mut Outgoing, usize) -> usize) {
        let mut outgoing = self.outgoing.lock();
        loop {
            let budget = outgoing.room();
            let filled = fill(&mut outgoing, budget);
            outgoing.flush(&self.socket);
            if filled < budget {
                break;
            }
        }
    }

    /// Passes frames that have arrived to `receiver`, unless another thread does so now. Returns their number.
    pub fn receive<'a>(&self, now: Instant, receiver: impl FnOnce() -> Receiver<'a, Lock>) -> usize {
        let Some(mut incoming) = self.incoming.try_lock() else { return 0 };
        let count = incoming.receive(&self.socket, &self.neighbors, now, receiver);
        self.note_due(&mut incoming);
        count
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

    /// Returns when [`Link::take_passed`] has to handle a postponed request.
    pub fn due(&self) -> Option<Instant> {
        Some(self.due.load(Ordering::SeqCst)).filter(|&due| due != u64::MAX).map(Instant::from_nanos)
    }

    /// Returns the other processes at the same address.
    pub fn neighbors(&self) -> &Neighbors {
        &self.neighbors
    }

    /// Returns a descriptor that is readable when frames have arrived.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds the port of the first slot that no process has.
fn claim(address: IpAddr) -> Result<(u8, UdpSocket), Error> {
    for slot in 0..1 << SLOT_BITS {
        match UdpSocket::bind(SocketAddr::new(address, port_of(slot)), false) {
            Err(Error::AddressInUse) => {}
            bound => return bound.map(|socket| (slot, socket)),
        }
    }
    Err(Error::AddressInUse)
}
