//! The network between hosts: a point-to-point Ethernet link that can be told to fail.
//!
//! A [`Wire`] joins two [`Endpoint`]s: NICs, or a NIC and a [tunnel](super::tunnel) to whoever is outside. Each direction has a rate, a latency, faults with a seed
//! of their own and counters of their own. The link is lossless by itself: a direction holds a limited
//! number of frames and tells the sender to wait, as Ethernet PAUSE does; only [`Faults`] lose frames.
//!
//! # How it is driven
//!
//! The wire has no clock and no thread. A sender asks [`Port::is_writable`] and calls
//! [`Port::transmit`]; the wire tells the receiver by [`Endpoint::wake_at`] when to look; the receiver
//! calls [`Port::receive`] then, until it yields `None`, and again whenever it has room. A sender that
//! was refused hears [`Endpoint::writable`].
//!
//! What happens to the n-th frame of a direction depends on the seed and on n alone, so that a seed
//! replays.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    faults::{Fate, Faults, flip, nanos},
    pcapng::{Capture, Note},
};

/// An Ethernet frame, without preamble and checksum.
pub type Frame = Vec<u8>;

/// Bytes that every frame occupies on the link besides its own: preamble 8, checksum 4, gap 12.
const OVERHEAD: u64 = 24;

/// What sits at an end of a wire.
pub trait Endpoint: Send + Sync {
    /// Frames will be there at `time`: call [`Port::receive`] then.
    fn wake_at(&self, time: u64);

    /// The wire takes frames again.
    fn writable(&self);

    /// Whether anything will ever be received here again; frames to a dead end vanish.
    fn is_alive(&self) -> bool;
}

/// Speed and length of a wire, and what goes wrong on it.
#[derive(Clone, Debug)]
pub struct WireOptions {
    /// Bits per second of each direction; `None` takes no time.
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
    /// A link that takes no time and loses nothing, for the threaded clock.
    #[must_use]
    pub fn immediate() -> Self {
        Self { rate: None, latency: Duration::ZERO, capacity: 1024, faults: [Faults::NONE; 2], seed: 0 }
    }

    /// 10 Gbit/s and 5 µs, for the deterministic clock.
    #[must_use]
    pub fn ten_gigabit() -> Self {
        Self { rate: Some(10_000_000_000), latency: Duration::from_micros(5), ..Self::immediate() }
    }

    /// The same faults in both directions.
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

/// What one direction did so far, in frames unless named otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Frames the sender handed over, and their bytes.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames the receiver took.
    pub delivered: u64,
    /// Lost by [`Faults::loss`].
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    /// Held back so that later frames may overtake.
    pub delayed: u64,
    /// Handed over by, or on their way to, an end that is cut off or dead.
    pub cut: u64,
    /// Times the sender had to wait.
    pub paused: u64,
}

/// A point-to-point link.
pub struct Wire {
    options: WireOptions,
    directions: [Direction; 2],
    ends: [End; 2],
    capture: OnceLock<Capture>,
}

#[derive(Default)]
struct End {
    endpoint: OnceLock<Weak<dyn Endpoint>>,
    cut: AtomicBool,
}

/// Frames that travel one way.
struct Direction {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counters: Counters,
    faults: Faults,
    /// When the sender's last frame has left.
    free_at: u64,
    sequence: u64,
    in_flight: BTreeMap<(u64, u64), Frame>,
    /// When the receiver was asked to look.
    wake: Option<u64>,
    /// The sender was refused and waits.
    refused: bool,
}

impl End {
    fn endpoint(&self) -> Option<Arc<dyn Endpoint>> {
        if self.cut.load(Relaxed) { None } else { self.attached() }
    }

    /// The endpoint, cut off or not.
    fn attached(&self) -> Option<Arc<dyn Endpoint>> {
        self.endpoint.get()?.upgrade().filter(|endpoint| endpoint.is_alive())
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
            capture: OnceLock::new(),
            options,
        })
    }

    /// The port at end 0 or 1.
    ///
    /// # Panics
    /// When `end` is another number.
    #[must_use]
    pub fn port(self: &Arc<Self>, end: usize) -> Port {
        assert!(end < 2, "a wire has two ends");
        Port { wire: self.clone(), end }
    }

    /// Writes every frame sent from now on to `capture`, end 0 on its interface 0, end 1 on 1.
    pub fn capture(&self, capture: Capture) {
        let _ = self.capture.set(capture);
    }

    /// Cuts one end off: nothing leaves it and nothing reaches it any more.
    pub fn cut(&self, end: usize) {
        self.ends[end].cut.store(true, Relaxed);
        // Whoever waits for room shall not wait for ever.
        for (from, direction) in self.directions.iter().enumerate() {
            let refused = {
                let mut state = direction.state.lock();
                let dropped = std::mem::take(&mut state.in_flight).len() as u64;
                state.counters.cut += dropped;
                std::mem::take(&mut state.refused)
            };
            // Also of the end that is cut off: it goes on sending, into nothing.
            if refused && let Some(sender) = self.ends[from].attached() {
                sender.writable();
            }
        }
    }

    /// Changes the faults of the direction that starts at end `from`.
    pub fn set_faults(&self, from: usize, faults: Faults) {
        self.directions[from].state.lock().faults = faults;
    }

    /// Counters of the direction that starts at end `from`.
    #[must_use]
    pub fn counters(&self, from: usize) -> Counters {
        self.directions[from].state.lock().counters
    }

    fn transmit(&self, from: usize, now: u64, frame: Frame) {
        let receiver = self.ends[1 - from].endpoint();
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

    /// When a frame handed over now has left the sender.
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
            let due = state
                .in_flight
                .first_entry()
                .filter(|first| first.key().0 <= now)
                .map(std::collections::btree_map::OccupiedEntry::remove);
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
        }
        self.insert(arrival, frame);
    }

    fn insert(&mut self, arrival: u64, frame: Frame) {
        self.sequence += 1;
        self.in_flight.insert((arrival, self.sequence), frame);
    }

    /// The time to wake the receiver at, unless it was told an earlier one already.
    fn next_wake(&mut self) -> Option<u64> {
        let (&(first, _), _) = self.in_flight.first_key_value()?;
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
    /// Makes `endpoint` the one that this end wakes. An end is attached once.
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

    /// Which end this is.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether the wire takes a frame now. After `false`, [`Endpoint::writable`] will be called.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.wire.is_writable(self.end)
    }

    /// Sends a frame at time `now`.
    pub fn transmit(&self, now: u64, frame: Frame) {
        self.wire.transmit(self.end, now, frame);
    }

    /// Takes the next frame that has arrived by `now`. After `None`, [`Endpoint::wake_at`] is called
    /// for the next one.
    #[must_use]
    pub fn receive(&self, now: u64) -> Option<Frame> {
        self.wire.receive(self.end, now)
    }

    /// The endpoint at the other end.
    #[must_use]
    pub fn peer(&self) -> Option<Arc<dyn Endpoint>> {
        self.wire.ends[1 - self.end].endpoint()
    }
}
