// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wire and the hosts at its ends.
//!
//! The wire is two queues of frames. Each host has a receiver thread in place of the NIC's receive DPC. All frames arrive by the
//! last shard.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use core::ops::Deref;
use ndk_provider::environment::{Environment, Link, Path, ResolveError};
use ndk_provider::{Config, CreateCompletion, Provider};
use nt::{DriverObject, Owner};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A frame, or `None` to end the receiver thread.
type Frame = Option<Vec<u8>>;

/// Scope ID of link-local addresses on both hosts.
pub const SCOPE: u32 = 7;

/// The MAC address and the IP addresses of a host.
#[derive(Clone, Copy)]
struct Identity {
    mac: [u8; 6],
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    link_local: Ipv6Addr,
}

impl Identity {
    fn new(number: u8) -> Self {
        let last = number.into();
        Self {
            mac: [2, 0, 0, 0, 0, number],
            v4: Ipv4Addr::new(192, 0, 2, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
            link_local: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last),
        }
    }

    fn addresses(&self) -> [IpAddr; 3] {
        [self.v4.into(), self.v6.into(), self.link_local.into()]
    }
}

/// The NIC of a host.
struct Nic {
    own: Identity,
    peer: Identity,
    transmit: Mutex<Cable>,
    /// Frames are no longer sent.
    cut: Arc<AtomicBool>,
    present: Arc<AtomicBool>,
    resolutions: Arc<Resolutions>,
    /// Distinguishes the host from all others of the process.
    number: usize,
}

/// Neighbors that are resolved at a time. On a link that is cut, each takes [`Resolutions::TIME`].
#[derive(Default)]
struct Resolutions {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Resolutions {
    const TIME: std::time::Duration = std::time::Duration::from_millis(300);
}

struct Cable {
    to_peer: Sender<Frame>,
    slot: Vec<u8>,
    cut: Arc<AtomicBool>,
    lengths: Lengths,
}

/// The lengths of all frames that a host has transmitted, in octets.
type Lengths = Arc<Mutex<Vec<usize>>>;

impl roce::Transmit for Cable {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.lengths.lock().unwrap().push(len);
        if !self.cut.load(Ordering::SeqCst) {
            // The peer's receiver may have ended.
            let _ = self.to_peer.send(Some(self.slot[..len].to_vec()));
        }
    }
}

impl Environment for Nic {
    fn transmit(&self, _shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        let mut cable = self.transmit.lock().unwrap();
        while pump(&mut *cable) != 0 {}
    }

    fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
        Ok(None)
    }

    fn resolve(&self, _local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError> {
        assert_eq!(nt::irql::current(), nt::irql::PASSIVE_LEVEL);
        let at_a_time = self.resolutions.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.resolutions.most.fetch_max(at_a_time, Ordering::SeqCst);
        if self.cut.load(Ordering::SeqCst) {
            std::thread::sleep(Resolutions::TIME);
        }
        self.resolutions.now.fetch_sub(1, Ordering::SeqCst);
        let reachable = Path { remote_mac: self.peer.mac, mtu: 1500 };
        match remote {
            ip if self.peer.addresses().contains(&ip) => Ok(reachable),
            IpAddr::V4(ip) if ip.octets()[..3] != self.own.v4.octets()[..3] => {
                Err(ResolveError::NetworkUnreachable)
            }
            _ => Err(ResolveError::HostUnreachable),
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.own.addresses().contains(&address)
    }

    fn link(&self) -> Link {
        Link { mac: self.own.mac, mtu: 1500, scope: SCOPE }
    }

    fn is_present(&self) -> bool {
        self.present.load(Ordering::SeqCst)
    }

    fn driver(&self) -> DriverObject {
        DriverObject::new(core::ptr::null_mut())
    }

    fn owner(&self) -> Owner {
        Owner::new(core::ptr::without_provenance_mut(self.number))
    }
}

/// An open NDK adapter of a host.
pub struct OpenAdapter {
    pub provider: Arc<Provider>,
    own: Identity,
    adapter: *mut NDK_ADAPTER,
}

// SAFETY: calls on NDK objects may come from any thread.
unsafe impl Send for OpenAdapter {}
// SAFETY: as above.
unsafe impl Sync for OpenAdapter {}

impl OpenAdapter {
    fn new(provider: &Arc<Provider>, own: Identity, major: u16, minor: u16) -> Self {
        let adapter = provider.open(NDK_VERSION { Major: major, Minor: minor }).expect("an adapter");
        Self { provider: Arc::clone(provider), own, adapter }
    }

    /// Opens an NDK adapter of the host with this number.
    pub fn of(provider: &Arc<Provider>, number: u8) -> Self {
        observed::start();
        Self::new(provider, Identity::new(number), 2, 1)
    }

    /// Opens another NDK adapter of the same host.
    pub fn open(&self, major: u16, minor: u16) -> Self {
        Self::new(&self.provider, self.own, major, minor)
    }

    /// Closes the adapter, which waits for its objects.
    pub fn close(self) {
        // SAFETY: opened by `new`, closed once.
        unsafe { self.provider.close(self.adapter) };
    }

    pub fn adapter(&self) -> *mut NDK_ADAPTER {
        self.adapter
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.own.v4, port))
    }

    pub fn at_v6(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.own.v6, port))
    }

    /// The link-local address with its scope.
    pub fn at_link_local(&self, port: u16) -> SocketAddr {
        SocketAddrV6::new(self.own.link_local, port, 0, SCOPE).into()
    }
}

/// One host, with one NDK adapter open.
pub struct Node {
    opened: OpenAdapter,
    receiver: Option<JoinHandle<()>>,
    own_queue: Sender<Frame>,
    cut: Arc<AtomicBool>,
    lengths: Lengths,
    present: Arc<AtomicBool>,
    resolutions: Arc<Resolutions>,
    /// Held during the end of a batch of frames.
    batch_end: Arc<Mutex<()>>,
    /// The owner of what the host's provider allocates and reports.
    pub number: usize,
}

static HOSTS: AtomicUsize = AtomicUsize::new(1);

/// Returns two hosts on one wire.
pub fn pair() -> (Node, Node) {
    pair_with(Config::default())
}

/// Returns two hosts whose calls pend whenever they may.
pub fn pending_pair() -> (Node, Node) {
    pair_with(Config { create_completion: CreateCompletion::Pend, ..Config::default() })
}

pub fn pair_with(config: Config) -> (Node, Node) {
    observed::start();
    let (left, right) = (Identity::new(1), Identity::new(2));
    let (to_left, left_queue) = channel();
    let (to_right, right_queue) = channel();
    let a = Node::new(left, right, (to_left.clone(), left_queue), to_right.clone(), config);
    let b = Node::new(right, left, (to_right, right_queue), to_left, config);
    (a, b)
}

impl Node {
    fn new(
        own: Identity,
        peer: Identity,
        (own_queue, queue): (Sender<Frame>, Receiver<Frame>),
        to_peer: Sender<Frame>,
        config: Config,
    ) -> Self {
        let (cut, present) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let lengths = Lengths::default();
        let cable =
            Cable { to_peer, slot: vec![0; 9216], cut: Arc::clone(&cut), lengths: Arc::clone(&lengths) };
        let nic = Nic {
            own,
            peer,
            transmit: Mutex::new(cable),
            cut: Arc::clone(&cut),
            present: Arc::clone(&present),
            resolutions: Arc::default(),
            number: HOSTS.fetch_add(1, Ordering::Relaxed),
        };
        let (number, resolutions) = (nic.number, Arc::clone(&nic.resolutions));
        let provider = Arc::new(Provider::try_new(nic, config).expect("a provider"));
        assert_eq!(provider.set_addresses(&own.addresses()), Ok(()));
        let opened = OpenAdapter::new(&provider, own, 2, 1);
        let receiving = Arc::clone(&provider);
        let batch_end = Arc::new(Mutex::new(()));
        let held = Arc::clone(&batch_end);
        let shard = config.shards - 1;
        let receiver = std::thread::spawn(move || receive(&receiving, shard, &queue, &held));
        let receiver = Some(receiver);
        Self { opened, receiver, own_queue, cut, lengths, present, resolutions, batch_end, number }
    }

    /// Changes the adapter's addresses, as the system does.
    pub fn set_addresses(&self, addresses: &[IpAddr]) {
        assert_eq!(self.provider.set_addresses(addresses), Ok(()));
        self.provider.transmit_ready();
    }

    /// From now on, no frame of this host arrives.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// From now on, frames of this host arrive again.
    pub fn restore(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    /// Returns the lengths of all frames that this host has transmitted, in octets.
    pub fn transmitted(&self) -> Vec<usize> {
        self.lengths.lock().unwrap().clone()
    }

    /// Returns the largest number of neighbors that were resolved at a time.
    pub fn most_resolutions(&self) -> usize {
        self.resolutions.most.load(Ordering::SeqCst)
    }

    /// Until the guard is dropped, received frames are processed but their batch does not end. The provider's
    /// DPC and timer still run: use [`Node::hold_callbacks`] to prevent callbacks.
    fn hold_batches(&self) -> MutexGuard<'_, ()> {
        self.batch_end.lock().unwrap()
    }

    /// Until the guard is dropped, received frames are processed but neither the receiver nor the DPC makes
    /// callbacks: the DPC is held in a callback of a completion queue.
    pub fn hold_callbacks(&self) -> HeldCallbacks<'_> {
        let gate = Gate::new();
        let batches = self.hold_batches();
        let cq: *mut NDK_CQ = create(|done, context, out| {
            let (callback, null) = (Some(on_cq_at_gate as NDK_FN_CQ_NOTIFICATION_CALLBACK), null_mut());
            call!(self.adapter(), NdkCreateCq, 1, callback, gate.context(), null, done, context, out)
        })
        .expect("a completion queue");
        let pd = self.pd();
        let qp: *mut NDK_QP = create(|done, context, out| {
            call!(pd, NdkCreateQp, cq, cq, null_mut(), 1, 1, 0, 0, 0, done, context, out)
        })
        .expect("a queue pair");
        call!(cq, NdkArmCq, NDK_CQ_NOTIFY_ANY);
        assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
        call!(qp, NdkFlush);
        gate.wait();
        HeldCallbacks { gate, cq, pd, qp, _batches: batches }
    }

    /// Returns a counter of the engine.
    pub fn counter(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.provider.counters(&mut |name, value| {
            if name == wanted {
                found = Some(value);
            }
        });
        found.expect("a counter of this name")
    }

    /// Removes the device by surprise.
    pub fn remove_device(&self) {
        self.cut();
        self.present.store(false, Ordering::SeqCst);
        self.provider.remove();
    }
}

/// Holds a host's callbacks until dropped.
pub struct HeldCallbacks<'a> {
    gate: &'static Gate,
    cq: *mut NDK_CQ,
    pd: *mut NDK_PD,
    qp: *mut NDK_QP,
    _batches: MutexGuard<'a, ()>,
}

impl Drop for HeldCallbacks<'_> {
    fn drop(&mut self) {
        self.gate.open();
        close!(self.qp, NdkCloseQp);
        close!(self.cq, NdkCloseCq);
        close!(self.pd, NdkClosePd);
    }
}

impl Deref for Node {
    type Target = OpenAdapter;

    fn deref(&self) -> &OpenAdapter {
        &self.opened
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `new`, closed once. Waits for every object to be closed.
            unsafe { self.provider.close(self.adapter) };
        }
        let _ = self.own_queue.send(None);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

/// The receiver thread: processes frames in batches of up to 64, in this shard.
fn receive(provider: &Provider, shard: u32, queue: &Receiver<Frame>, batch_end: &Mutex<()>) {
    while let Ok(Some(frame)) = queue.recv() {
        let mut batch = provider.batch(shard).unwrap();
        batch.receive(&frame);
        for frame in queue.try_iter().take(63) {
            let Some(frame) = frame else { return };
            batch.receive(&frame);
        }
        // A test may close queue pairs before it lets the batch end.
        batch.pause();
        let _held = batch_end.lock().unwrap();
        batch.end();
    }
}
