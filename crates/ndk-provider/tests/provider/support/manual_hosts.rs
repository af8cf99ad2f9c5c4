// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts between which a test carries the frames: a host has no receiver thread, and what a call does is done when it returns.

use super::pool::LEFT;
use super::*;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr};
use ndk_provider::environment::{Environment, Link, ObjectChange, Path, ResolveError};
use ndk_provider::{Config, Provider, Timing, Verdict};
use nt::{DriverObject, Owner};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

thread_local! {
    /// The highest level at which this thread was asked for the transmit queue.
    static LEVEL: Cell<Option<u8>> = const { Cell::new(None) };
}

/// The system's knowledge of the path to the peer.
#[derive(Clone, Copy, Default)]
pub enum Paths {
    #[default]
    Known,
    /// Resolving it ends when the gate is opened.
    Unknown(&'static Gate),
    /// As before, and the thread that asks for it has no memory from then on.
    OutOfMemory,
}

/// The events that the tests see of a host.
#[derive(Default)]
pub struct Seen {
    pub paths: Mutex<Paths>,
    pub sent: Mutex<Vec<Vec<u8>>>,
    /// The transmit queue has no free slot.
    pub is_full: AtomicBool,
    /// Times that a slot was wanted and none was free.
    pub waits: AtomicUsize,
    /// The system no longer has the host's address.
    pub is_homeless: AtomicBool,
    /// Changes of objects: type, address, change.
    pub changes: Mutex<Vec<(i32, usize, ObjectChange)>>,
}

impl Seen {
    pub fn sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

struct Host {
    mac: [u8; 6],
    peer: [u8; 6],
    seen: Arc<Seen>,
}

struct Queue<'a> {
    slot: [u8; 2048],
    seen: &'a Seen,
}

impl roce::Transmit for Queue<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        if self.seen.is_full.load(Ordering::SeqCst) {
            self.seen.waits.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.seen.sent.lock().unwrap().push(self.slot[..len].to_vec());
    }
}

pub fn address(mac: [u8; 6]) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, mac[5])
}

impl Environment for Host {
    fn transmit(&self, _shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        LEVEL.set(LEVEL.get().max(Some(nt::irql::current())));
        while pump(&mut Queue { slot: [0; 2048], seen: &self.seen }) != 0 {}
    }

    fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
        match *self.seen.paths.lock().unwrap() {
            Paths::Known => return Ok(Some(Path { remote_mac: self.peer, mtu: 1500 })),
            Paths::Unknown(_) => {}
            Paths::OutOfMemory => LEFT.set(0),
        }
        Ok(None)
    }

    fn resolve(&self, _: IpAddr, _: IpAddr) -> Result<Path, ResolveError> {
        let paths = *self.seen.paths.lock().unwrap();
        if let Paths::Unknown(gate) = paths {
            gate.hold();
        }
        Err(ResolveError::HostUnreachable)
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        ip == address(self.mac) && !self.seen.is_homeless.load(Ordering::SeqCst)
    }

    fn link(&self) -> Link {
        Link { mac: self.mac, mtu: 1500, scope: 1 }
    }

    fn is_present(&self) -> bool {
        true
    }

    fn driver(&self) -> DriverObject {
        DriverObject::new(core::ptr::null_mut())
    }

    fn trace_object(&self, kind: NDK_OBJECT_TYPE, object: usize, change: ObjectChange) {
        self.seen.changes.lock().unwrap().push((kind.0, object, change));
    }

    fn owner(&self) -> Owner {
        Owner::new(core::ptr::null_mut())
    }
}

pub fn host(mac: [u8; 6], peer: [u8; 6]) -> (Arc<Provider>, Arc<Seen>) {
    host_with(mac, peer, Config::default())
}

pub fn host_with(mac: [u8; 6], peer: [u8; 6], config: Config) -> (Arc<Provider>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let host = Host { mac, peer, seen: Arc::clone(&seen) };
    let provider = Provider::try_new(host, config).expect("a provider");
    assert_eq!(provider.set_addresses(&[address(mac).into()]), Ok(()));
    (Arc::new(provider), seen)
}

/// Connects from `a` until its connect request is sent, which is returned.
pub fn request_of(active: &End, seen: &Seen) -> (Vec<u8>, Connecting) {
    let (from, to) = ((address(OWN), 0).into(), (address(PEER), 445).into());
    let connecting = active.connect(from, to, &[]);
    let mut sent = Vec::new();
    wait("the request is sent", || {
        sent.extend(seen.sent());
        !sent.is_empty()
    });
    (sent.remove(0), connecting)
}

/// Has a host receive these frames.
pub fn deliver(to: &Provider, frames: &[Vec<u8>]) {
    let mut batch = to.receive_batch(0).unwrap();
    for frame in frames {
        assert_eq!(batch.receive(frame), Verdict::Consumed);
    }
    batch.end();
}

/// Makes a consumer's call at `PASSIVE_LEVEL`, which must transmit before it returns, and without a lock: another thread may
/// have the transmit queue and wait for it. Returns what was sent.
pub fn sent_by<T>(seen: &Seen, call: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    assert_eq!(seen.sent(), Vec::<Vec<u8>>::new(), "before the call");
    LEVEL.set(None);
    let answer = call();
    assert_eq!(LEVEL.get(), Some(nt::irql::PASSIVE_LEVEL));
    let sent = seen.sent();
    assert_eq!(sent.len(), 1, "sent by the call");
    (answer, sent)
}

/// Two hosts between which a test carries the frames.
pub struct Hosts {
    pub a: (Arc<Provider>, Arc<Seen>),
    pub b: (Arc<Provider>, Arc<Seen>),
    pub at_a: OpenAdapter,
    pub at_b: OpenAdapter,
    pub listener: Listener,
}

impl Hosts {
    pub fn new(config: Config) -> Self {
        let (a, b) = (host_with(OWN, PEER, config), host_with(PEER, OWN, config));
        let (at_a, at_b) = (OpenAdapter::of(&a.0, 1), OpenAdapter::of(&b.0, 2));
        let listener = at_b.listener(445);
        Self { a, b, at_a, at_b, listener }
    }

    /// Begins a connection, whose request the second host has received.
    pub fn request(&self, active: &End) -> (End, Connecting) {
        let (frame, connecting) = request_of(active, &self.a.1);
        deliver(&self.b.0, &[frame]);
        (self.at_b.end(self.listener.accept()), connecting)
    }

    pub fn connect(&self, active: End) -> (End, End) {
        let (passive, connecting) = self.request(&active);
        let (accepting, reply) = sent_by(&self.b.1, || passive.accept(&[]));
        deliver(&self.a.0, &reply);
        assert_eq!(connecting.wait(), STATUS_SUCCESS);
        let (completed, rtu) = sent_by(&self.a.1, || active.complete());
        assert_eq!(completed, STATUS_SUCCESS);
        deliver(&self.b.0, &rtu);
        assert_eq!(accepting.wait(), STATUS_SUCCESS);
        (active, passive)
    }

    /// Returns connected hosts, when the timer of their connect requests has expired.
    pub fn without_timers(config: Config) -> (Self, End, End) {
        let hosts = Self::new(config);
        let (active, passive) = hosts.connect(hosts.at_a.active());
        std::thread::sleep(Duration::from_millis(1500));
        (hosts, active, passive)
    }

    pub fn close(self, ends: impl IntoIterator<Item = End>) {
        ends.into_iter().for_each(End::close);
        self.listener.close();
        self.at_a.close();
        self.at_b.close();
    }
}

/// Returns a configuration in which a message without an answer is sent again after this time.
pub fn sending_again_after(time: Duration) -> Config {
    let timing = Timing { ack_timeout: time, min_resend: time, min_probe: time, ..Timing::default() };
    Config { timing, ..Config::default() }
}
