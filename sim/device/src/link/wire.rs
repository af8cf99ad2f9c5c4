// SPDX-License-Identifier: MIT OR Apache-2.0

//! A point-to-point Ethernet link with configurable rate, latency and faults.
//!
//! A [`Wire`] joins two [`Endpoint`]s: NICs, or a NIC and a [tunnel](super::tunnel). Each direction has its own
//! faults and counters. The link itself is lossless: a direction holds a limited number of frames and makes the
//! sender wait, as Ethernet PAUSE does; only [`Faults`] lose frames.
//!
//! # How it is driven
//!
//! The wire has no clock and no thread. A sender checks [`Port::is_writable`] and calls
//! [`Port::transmit`]; the wire calls the receiver's [`Endpoint::wake_at`] with the time of arrival; the
//! receiver then calls [`Port::receive`] until it returns `None`, and again whenever it has room. When a
//! sender was refused, the wire calls its [`Endpoint::writable`] once there is room.
//!
//! The fault of the n-th frame of a direction depends on the seed and on n only, so that a run can be repeated.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    faults::{Fate, Faults, flip, mark, nanos},
    pcapng::{Capture, Note},
};

/// An Ethernet frame, without preamble and checksum.
pub type Frame = Vec<u8>;

/// Bytes that every frame occupies on the link besides its own: preamble 8, checksum 4, gap 12.
const OVERHEAD: u64 = 24;

/// A device at one end of a wire.
pub trait Endpoint: Send + Sync {
    /// Frames arrive at `time`: [`Port::receive`] has to be called then.
    fn wake_at(&self, time: u64);

    /// The wire accepts frames again.
    fn writable(&self);

    /// Returns whether the endpoint still receives frames; frames to an endpoint that does not are dropped.
    fn is_alive(&self) -> bool;
}

/// Rate, latency, capacity and faults of a wire.
#[derive(Clone, Debug)]
pub struct WireOptions {
    /// Bits per second of each direction; `None` for an infinite rate.
    pub rate: Option<u64>,
    /// One-way latency.
    pub latency: Duration,
    /// Frames that one direction holds before the sender has to wait.
    pub capacity: usize,
    /// Faults of the direction from end 0 to end 1, and of the other.
    pub faults: [Faults; 2],
    /// Seed of the faults.
    pub seed: u64,
}

impl WireOptions {
    /// Returns a link without delay and loss, for the threaded clock.
    #[must_use]
    pub fn immediate() -> Self {
        Self { rate: None, latency: Duration::ZERO, capacity: 1024, faults: [Faults::NONE; 2], seed: 0 }
    }

    /// Returns a link of 10 Gbit/s and 5 µs, for the deterministic clock.
    #[must_use]
    pub fn ten_gigabit() -> Self {
        Self { rate: Some(10_000_000_000), latency: Duration::from_micros(5), ..Self::immediate() }
    }

    /// Sets the faults of both directions.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = [faults; 2];
        self
    }

    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// Counters of one direction, in frames unless named otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Frames the sender transmitted, and their bytes.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames the receiver received.
    pub delivered: u64,
    /// Lost by [`Faults::loss`].
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    /// Delayed so that later frames may overtake.
    pub delayed: u64,
    /// ECN-capable frames that were marked.
    pub marked: u64,
    /// Dropped because either end is cut off or no longer receives, or has another address by now.
    pub cut: u64,
    /// Times the sender was refused.
    pub paused: u64,
}

/// A point-to-point link.
pub struct Wire {
    options: WireOptions,
    directions: [Direction; 2],
    ends: [End; 2],
    /// An end was renamed.
    has_renamed: AtomicBool,
    capture: OnceLock<Capture>,
}

#[derive(Default)]
struct End {
    endpoint: OnceLock<Weak<dyn Endpoint>>,
    cut: AtomicBool,
    renamed: Mutex<Option<Renamed>>,
}

/// A link address that the other end sees in place of the endpoint's own.
#[derive(Clone, Copy)]
struct Renamed {
    own: [u8; 6],
    seen: [u8; 6],
}

/// One direction of the link.
struct Direction {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counters: Counters,
    faults: Faults,
    /// Time at which the sender's last frame has left.
    free_at: u64,
    /// Frames and their times of arrival, in this order.
    in_flight: VecDeque<(u64, Frame)>,
    /// Time for which the receiver's wake-up is scheduled.
    wake: Option<u64>,
    /// The sender was refused and waits.
    refused: bool,
}

impl End {
    fn endpoint(&self) -> Option<Arc<dyn Endpoint>> {
        if self.cut.load(Relaxed) { None } else { self.attached() }
    }

    /// Returns the endpoint, cut off or not.
    fn attached(&self) -> Option<Arc<dyn Endpoint>> {
        self.endpoint.get()?.upgrade().filter(|endpoint| endpoint.is_alive())
    }
}

impl Renamed {
    /// Changes the frame of an endpoint to one of the address that is seen: its source, and the sender of ARP.
    fn outgoing(self, frame: &mut [u8]) {
        let arp = frame.get(12..14) == Some(&[8, 6]);
        for at in [Some(6), arp.then_some(22)].into_iter().flatten() {
            exchange(frame, at, self.own, self.seen);
        }
    }

    /// Changes a frame to the address that is seen to one of the endpoint. Returns `false` if it is to the endpoint's own
    /// address, which no longer exists.
    fn incoming(self, frame: &mut [u8]) -> bool {
        let arp = frame.get(12..14) == Some(&[8, 6]);
        let exists = !frame.starts_with(&self.own);
        for at in [Some(0), arp.then_some(32)].into_iter().flatten() {
            exchange(frame, at, self.seen, self.own);
        }
        exists
    }
}

/// Replaces the address at `at` if it is `from`.
fn exchange(frame: &mut [u8], at: usize, from: [u8; 6], to: [u8; 6]) {
    if let Some(address) = frame.get_mut(at..at + 6).filter(|address| **address == from) {
        address.copy_from_slice(&to);
    }
}

impl Wire {
    #[must_use]
    pub fn new(options: WireOptions) -> Arc<Self> {
        let direction =
            |faults: Faults| Direction { state: Mutex::new(State { faults, ..State::default() }) };
        Arc::new(Self {
            directions: options.faults.map(direction),
            ends: Default::default(),
            has_renamed: AtomicBool::new(false),
            capture: OnceLock::new(),
            options,
        })
    }

    /// Returns the port at end 0 or 1.
    ///
    /// # Panics
    /// When `end` is another number.
    #[must_use]
    pub fn port(self: &Arc<Self>, end: usize) -> Port {
        assert!(end < 2, "a wire has two ends");
        Port { wire: self.clone(), end }
    }

    /// Writes every frame sent from now on to `capture`: frames of end 0 to its interface 0, frames of end 1 to 1.
    pub fn capture(&self, capture: Capture) {
        let _ = self.capture.set(capture);
    }

    /// Cuts one end off: from now on it neither sends nor receives.
    pub fn cut(&self, end: usize) {
        self.ends[end].cut.store(true, Relaxed);
        // A sender that waits for room must not wait forever.
        for (from, direction) in self.directions.iter().enumerate() {
            let refused = {
                let mut state = direction.state.lock();
                let dropped = std::mem::take(&mut state.in_flight).len() as u64;
                state.counters.cut += dropped;
                std::mem::take(&mut state.refused)
            };
            // The end that is cut off, too: it continues to send, and its frames are dropped.
            if refused && let Some(sender) = self.ends[from].attached() {
                sender.writable();
            }
        }
    }

    /// From now on the other end sees the endpoint at `end`, whose link address is `own`, at another one, as a gateway that takes
    /// over for another, or a host with a new NIC. Frames to the old address are dropped. IPv4 only: neighbor discovery of
    /// IPv6 is not changed.
    pub fn rename(&self, end: usize, own: [u8; 6], seen: [u8; 6]) {
        *self.ends[end].renamed.lock() = Some(Renamed { own, seen });
        self.has_renamed.store(true, Release);
    }

    /// Changes the faults of the direction that starts at end `from`.
    pub fn set_faults(&self, from: usize, faults: Faults) {
        self.directions[from].state.lock().faults = faults;
    }

    /// Returns the counters of the direction that starts at end `from`.
    #[must_use]
    pub fn counters(&self, from: usize) -> Counters {
        self.directions[from].state.lock().counters
    }

    fn transmit(&self, from: usize, now: u64, mut frame: Frame) {
        let reached = !self.has_renamed.load(Acquire) || self.change_addresses(from, &mut frame);
        let receiver = self.ends[1 - from].endpoint().filter(|_| reached);
        let wake = {
            let mut state = self.directions[from].state.lock();
            state.counters.sent += 1;
            state.counters.sent_bytes += frame.len() as u64;
            let number = state.counters.sent;
            let departure = self.departure(&mut state, now, frame.len());
            if self.ends[from].cut.load(Relaxed) {
                state.counters.cut += 1;
                return;
            }
            let fate = state.faults.fate(self.options.seed, from, number);
            if let Some(capture) = self.capture.get() {
                capture.frame(from, now, &frame, Note::from(&fate));
            }
            if receiver.is_none() {
                state.counters.cut += 1;
                return;
            }
            state.enqueue(departure + nanos(self.options.latency), frame, fate);
            state.next_wake()
        };
        if let (Some(time), Some(receiver)) = (wake, receiver) {
            receiver.wake_at(time);
        }
    }

    /// Changes the addresses of a frame of renamed endpoints. Returns `false` if it is to an address that no longer exists.
    fn change_addresses(&self, from: usize, frame: &mut [u8]) -> bool {
        if let Some(renamed) = *self.ends[from].renamed.lock() {
            renamed.outgoing(frame);
        }
        let target = *self.ends[1 - from].renamed.lock();
        target.is_none_or(|target| target.incoming(frame))
    }

    /// Returns the time at which a frame transmitted now has left the sender.
    fn departure(&self, state: &mut State, now: u64, len: usize) -> u64 {
        let start = state.free_at.max(now);
        let duration = self
            .options
            .rate
            .map_or(0, |rate| ((len as u64).max(60) + OVERHEAD) * 8 * 1_000_000_000 / rate.max(1));
        state.free_at = start + duration;
        state.free_at
    }

    fn receive(&self, to: usize, now: u64) -> Option<Frame> {
        let from = 1 - to;
        let (frame, wake, writable) = {
            let mut state = self.directions[from].state.lock();
            let due = state.in_flight.pop_front_if(|(arrival, _)| *arrival <= now).map(|(_, frame)| frame);
            let wake = if due.is_some() {
                state.counters.delivered += 1;
                None
            } else {
                state.wake = None;
                state.next_wake()
            };
            let room = state.in_flight.len() <= self.options.capacity / 2;
            let writable = room && std::mem::take(&mut state.refused);
            (due, wake, writable)
        };
        if writable && let Some(sender) = self.ends[from].endpoint() {
            sender.writable();
        }
        if let Some(time) = wake
            && let Some(receiver) = self.ends[to].endpoint()
        {
            receiver.wake_at(time);
        }
        frame
    }

    fn is_writable(&self, from: usize) -> bool {
        let mut state = self.directions[from].state.lock();
        if state.in_flight.len() < self.options.capacity {
            return true;
        }
        if self.ends[1 - from].endpoint().is_none() {
            let dropped = std::mem::take(&mut state.in_flight).len() as u64;
            state.counters.cut += dropped;
            return true;
        }
        state.refused = true;
        state.counters.paused += 1;
        false
    }
}

impl State {
    fn enqueue(&mut self, arrival: u64, mut frame: Frame, fate: Fate) {
        match fate {
            Fate::Delivered => {}
            Fate::Lost => {
                self.counters.lost += 1;
                return;
            }
            Fate::Duplicated { delay } => {
                self.counters.duplicated += 1;
                self.insert(arrival + delay, frame.clone());
            }
            Fate::Corrupted { bit } => {
                self.counters.corrupted += 1;
                flip(&mut frame, bit);
            }
            Fate::Delayed { delay } => {
                self.counters.delayed += 1;
                return self.insert(arrival + delay, frame);
            }
            Fate::Marked => self.counters.marked += u64::from(mark(&mut frame)),
        }
        self.insert(arrival, frame);
    }

    fn insert(&mut self, arrival: u64, frame: Frame) {
        // Behind all that arrive earlier or at the same time; without faults, that is at the end.
        let later = self.in_flight.iter().rev().take_while(|(other, _)| *other > arrival).count();
        self.in_flight.insert(self.in_flight.len() - later, (arrival, frame));
    }

    /// Returns the time to wake the receiver at, unless an earlier wake-up is scheduled.
    fn next_wake(&mut self) -> Option<u64> {
        let &(first, _) = self.in_flight.front()?;
        if self.wake.is_some_and(|wake| wake <= first) {
            return None;
        }
        self.wake = Some(first);
        Some(first)
    }
}

/// One end of a [`Wire`], as its endpoint uses it.
#[derive(Clone)]
pub struct Port {
    wire: Arc<Wire>,
    end: usize,
}

impl Port {
    /// Attaches `endpoint` to this end. An end is attached once.
    ///
    /// # Panics
    /// When it is attached already.
    pub fn attach(&self, endpoint: Weak<dyn Endpoint>) {
        let attached = self.wire.ends[self.end].endpoint.set(endpoint);
        assert!(attached.is_ok(), "this end of the wire has a NIC");
    }

    #[must_use]
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// Returns the number of this end.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Returns whether the wire accepts a frame now. After `false`, [`Endpoint::writable`] will be called.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.wire.is_writable(self.end)
    }

    /// Sends a frame at time `now`.
    pub fn transmit(&self, now: u64, frame: Frame) {
        self.wire.transmit(self.end, now, frame);
    }

    /// Returns the next frame that has arrived by `now`. After `None`, [`Endpoint::wake_at`] is called
    /// for the next one.
    #[must_use]
    pub fn receive(&self, now: u64) -> Option<Frame> {
        self.wire.receive(self.end, now)
    }

    /// Returns the endpoint at the other end.
    #[must_use]
    pub fn peer(&self) -> Option<Arc<dyn Endpoint>> {
        self.wire.ends[1 - self.end].endpoint()
    }
}
