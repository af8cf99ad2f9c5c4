// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames between processes at one address, through memory that two of them share.
//!
//! A process that has frames for another one creates a ring, and offers it through a stream socket; the other one, if it has the same user,
//! answers with a descriptor that wakes it. Until then, and to processes of other users, frames are datagrams. The kernel closes the stream
//! when a process ends, and frees the memory when both have.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use roce::Instant;

use super::ring::{Consumer, Producer};
use crate::error::Error;
use crate::sys::{self, EventFd};

/// After how long a ring is offered again to a process that has refused it.
const REFUSED: Duration = Duration::from_secs(1);

/// How often the process at the other end of a ring is looked for.
const CHECK: Duration = Duration::from_millis(10);

fn name(address: IpAddr, slot: u8) -> Result<SocketAddr, Error> {
    SocketAddr::from_abstract_name(format!("viordma/{address}/memory/{slot}")).map_err(|_| Error::Invalid)
}

fn of_io(error: &std::io::Error) -> Error {
    error.raw_os_error().map_or(Error::Invalid, Error::System)
}

/// The rings by which a process receives.
#[derive(Debug)]
pub struct Inbound {
    listener: UnixListener,
    /// Streams on which a ring is still to be offered.
    pending: Mutex<Vec<Arc<UnixStream>>>,
    rings: RwLock<Vec<Arc<InboundRing>>>,
    bell: EventFd,
}

#[derive(Debug)]
struct InboundRing {
    stream: Arc<UnixStream>,
    consumer: Consumer,
    /// The process that writes has ended.
    is_closed: AtomicBool,
    /// Frames of it have been taken.
    is_used: AtomicBool,
}

impl Inbound {
    /// Waits for offers to the process in a slot.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open(address: IpAddr, slot: u8) -> Result<Self, Error> {
        let listener = UnixListener::bind_addr(&name(address, slot)?).map_err(|error| of_io(&error))?;
        listener.set_nonblocking(true).map_err(|error| of_io(&error))?;
        let bell = EventFd::flag()?;
        Ok(Self { listener, pending: Mutex::default(), rings: RwLock::default(), bell })
    }

    /// Accepts rings that are offered, and forgets those of processes that have ended, once they are empty. Of the progress thread.
    pub fn serve(&self) {
        let mut pending = self.pending.lock();
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && sys::is_of_same_user(&stream) {
                pending.push(Arc::new(stream));
            }
        }
        for stream in core::mem::take(&mut *pending) {
            match sys::take_descriptor(&stream) {
                Ok(None) => pending.push(stream),
                Ok(Some(fd)) => self.accept(&stream, &fd),
                Err(_) => {}
            }
        }
        for ring in self.rings.read().iter() {
            if !matches!(sys::take_descriptor(&ring.stream), Ok(None)) {
                ring.is_closed.store(true, Ordering::SeqCst);
            }
        }
        let is_over =
            |ring: &InboundRing| ring.is_closed.load(Ordering::SeqCst) && !ring.consumer.has_frames();
        if self.rings.read().iter().any(|ring| is_over(ring)) {
            self.rings.write().retain(|ring| !is_over(ring));
        }
    }

    fn accept(&self, stream: &Arc<UnixStream>, fd: &OwnedFd) {
        let Ok(consumer) = Consumer::open(fd) else { return };
        let [is_closed, is_used] = [false; 2].map(AtomicBool::new);
        let ring = InboundRing { stream: Arc::clone(stream), consumer, is_closed, is_used };
        // Before the other process can write to it.
        self.rings.write().push(Arc::new(ring));
        // Without an answer, it writes nothing.
        let _ = sys::pass_descriptor(stream, self.bell.as_fd());
    }

    /// Calls `each` with each ring.
    pub fn each(&self, mut each: impl FnMut(&Consumer)) {
        self.rings.read().iter().for_each(|ring| each(&ring.consumer));
    }

    /// Returns whether there is a ring.
    pub fn has_rings(&self) -> bool {
        !self.rings.read().is_empty()
    }

    /// Returns whether there is a ring with its first frames. Frames that the process wrote before are datagrams, which have arrived.
    pub fn is_begun(&self) -> bool {
        let begins = |ring: &Arc<InboundRing>| {
            !ring.is_used.load(Ordering::Relaxed)
                && ring.consumer.has_frames()
                && !ring.is_used.swap(true, Ordering::Relaxed)
        };
        self.rings.read().iter().filter(|ring| begins(ring)).count() > 0
    }

    /// Announces that this thread is going to wait for the descriptor of [`Inbound::bell`]. `None`: there are frames.
    pub fn begin_wait(&self) -> Option<Wait> {
        let wait = Wait(self.rings.read().clone());
        wait.0.iter().for_each(|ring| ring.consumer.begin_wait());
        (!wait.0.iter().any(|ring| ring.consumer.has_frames())).then_some(wait)
    }

    /// Returns a descriptor that is readable when a process has written frames for which a thread waits.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Resets the bell, after a wait.
    pub fn silence(&self) {
        // A flag: nothing to take is no error.
        let _ = self.bell.take();
    }

    /// Returns streams that are readable when [`Inbound::serve`] has something to do.
    pub fn streams(&self) -> Vec<Arc<UnixStream>> {
        let mut streams = self.pending.lock().clone();
        let rings = self.rings.read();
        let open = rings.iter().filter(|ring| !ring.is_closed.load(Ordering::SeqCst));
        streams.extend(open.map(|ring| Arc::clone(&ring.stream)));
        streams
    }

    /// Returns the descriptor by which offers come.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A thread waits for frames until this is dropped.
pub struct Wait(Vec<Arc<InboundRing>>);

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.iter().for_each(|ring| ring.consumer.end_wait());
    }
}

/// The rings by which a process transmits, by slot.
#[derive(Debug)]
pub struct Outbound {
    address: IpAddr,
    rings: HashMap<u8, OutboundRing>,
}

#[derive(Debug)]
enum OutboundRing {
    Refused { until: Instant },
    Offered { stream: UnixStream, producer: Producer },
    Accepted { stream: UnixStream, producer: Producer, bell: EventFd, check: Instant },
}

impl Outbound {
    pub fn new(address: IpAddr) -> Self {
        Self { address, rings: HashMap::new() }
    }

    /// Returns whether frames can be written to the process in a slot. Offers it a ring, if that was not done.
    pub fn is_ready(&mut self, now: Instant, slot: u8) -> bool {
        match self.rings.get(&slot) {
            Some(OutboundRing::Accepted { check, .. }) if now < *check => return true,
            Some(OutboundRing::Refused { until }) if now < *until => return false,
            _ => {}
        }
        let refused = OutboundRing::Refused { until: now + REFUSED };
        let next = match self.rings.remove(&slot) {
            None | Some(OutboundRing::Refused { .. }) => self.offer(slot).unwrap_or(refused),
            Some(OutboundRing::Offered { stream, producer }) => match sys::take_descriptor(&stream) {
                Ok(None) => OutboundRing::Offered { stream, producer },
                Ok(Some(bell)) => {
                    let (bell, check) = (EventFd::from(bell), now + CHECK);
                    OutboundRing::Accepted { stream, producer, bell, check }
                }
                Err(_) => refused,
            },
            Some(OutboundRing::Accepted { stream, producer, bell, .. }) => {
                match sys::take_descriptor(&stream) {
                    Ok(None) => OutboundRing::Accepted { stream, producer, bell, check: now + CHECK },
                    // The process has ended. Another one may have the slot.
                    _ => OutboundRing::Refused { until: now },
                }
            }
        };
        let is_ready = matches!(next, OutboundRing::Accepted { .. });
        self.rings.insert(slot, next);
        is_ready
    }

    fn offer(&self, slot: u8) -> Option<OutboundRing> {
        let stream = UnixStream::connect_addr(&name(self.address, slot).ok()?).ok()?;
        stream.set_nonblocking(true).ok()?;
        if !sys::is_of_same_user(&stream) {
            return None;
        }
        let (producer, fd) = Producer::create().ok()?;
        sys::pass_descriptor(&stream, fd.as_fd()).ok()?;
        Some(OutboundRing::Offered { stream, producer })
    }

    /// Writes frames for the process in a slot, as far as there is room. Returns how many.
    pub fn push<'a>(&mut self, slot: u8, frames: impl Iterator<Item = &'a [u8]>) -> usize {
        let Some(OutboundRing::Accepted { producer, bell, .. }) = self.rings.get_mut(&slot) else { return 0 };
        let (count, wakes) = producer.push(frames);
        if wakes {
            bell.add();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::FRAME;

    #[test]
    fn a_ring_is_offered_used_and_ends_with_its_reader() {
        let address = [127, 9, 9, 4].into();
        let (start, mut outbound) = (Instant::from_nanos(1), Outbound::new(address));
        assert!(!outbound.is_ready(start, 3), "no process has the slot");
        let inbound = Inbound::open(address, 3).unwrap();
        assert!(!outbound.is_ready(start, 3), "it is not asked for each frame");
        let later = start + REFUSED;
        assert!(!outbound.is_ready(later, 3));
        inbound.serve();
        assert!(outbound.is_ready(later, 3));
        let wait = inbound.begin_wait().unwrap();
        assert_eq!(outbound.push(3, [&b"frame"[..]].into_iter()), 1);
        let mut interest = [(inbound.bell(), false)];
        sys::wait_readable(&mut interest, Some(Duration::from_secs(10)));
        assert!(interest[0].1);
        drop(wait);
        assert!(inbound.begin_wait().is_none(), "there is a frame");
        let mut frames = Vec::new();
        let mut buffer = [0; FRAME];
        inbound.each(|consumer| frames.extend(consumer.pop(&mut buffer)));
        assert_eq!((frames, &buffer[..5]), (vec![5], &b"frame"[..]));
        drop(inbound);
        assert!(!outbound.is_ready(later + CHECK, 3));
    }

    #[test]
    fn what_a_process_wrote_before_its_end_is_read() {
        let address = [127, 9, 9, 5].into();
        let (start, mut outbound) = (Instant::from_nanos(1), Outbound::new(address));
        let inbound = Inbound::open(address, 3).unwrap();
        outbound.is_ready(start, 3);
        inbound.serve();
        assert!(outbound.is_ready(start, 3));
        assert_eq!(outbound.push(3, [&b"last"[..]].into_iter()), 1);
        drop(outbound);
        inbound.serve();
        let mut buffer = [0; FRAME];
        let mut taken = None;
        inbound.each(|consumer| taken = consumer.pop(&mut buffer));
        assert_eq!(taken, Some(4));
        inbound.serve();
        let mut rings = 0;
        inbound.each(|_| rings += 1);
        assert_eq!(rings, 0);
    }
}
