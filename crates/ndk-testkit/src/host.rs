// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host: its provider and its receiver thread.

use core::net::IpAddr;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use ndk_abi::ndk::{NDK_ADAPTER, NDK_VERSION};
use ndk_provider::{Config, Provider};

use crate::nic::{Frame, Identity, Nic, NicState, TransmitQueue};

/// Frames per batch.
const BATCH: usize = 64;

/// The number of the next host of the process.
static NEXT_HOST: AtomicUsize = AtomicUsize::new(1);

/// MTU and losses of a wire.
#[derive(Clone, Copy, Debug)]
pub struct WireOptions {
    /// IP MTU in bytes.
    pub mtu: u32,
    /// Number of frames lost per million.
    pub loss: u64,
}

impl Default for WireOptions {
    fn default() -> Self {
        Self { mtu: 1500, loss: 0 }
    }
}

/// Returns two hosts on one wire, with providers of this configuration.
#[must_use]
pub fn two_hosts(config: Config, wire: WireOptions) -> [Host; 2] {
    let sent = Arc::default();
    let ends = [channel(), channel()];
    let senders = ends.each_ref().map(|(sender, _)| sender.clone());
    let mut numbers = 0..2;
    ends.map(|end| {
        let number = numbers.next().unwrap();
        let to_peer = senders[1 - number].clone();
        Host::new(number as u8 + 1, config, wire, end, TransmitEnd { to_peer, sent: Arc::clone(&sent) })
    })
}

/// Opens an NDK adapter of version 2.1 on each host, runs `body`, and closes both, which waits until what was created through them is closed.
#[allow(unsafe_code, reason = "an adapter is closed by its pointer")]
pub fn with_adapters<R>(hosts: &[Host; 2], body: impl FnOnce([NonNull<NDK_ADAPTER>; 2]) -> R) -> R {
    let opened = hosts.each_ref().map(|host| {
        let opened = host.provider.open(NDK_VERSION { Major: 2, Minor: 1 });
        NonNull::new(opened.unwrap_or_else(|status| panic!("{status:#x}"))).unwrap()
    });
    let result = body(opened);
    for (host, adapter) in hosts.iter().zip(opened) {
        // SAFETY: this provider has opened it above, and it is closed nowhere else.
        unsafe { host.provider.close(adapter.as_ptr()) };
    }
    result
}

/// Transmitting end of the wire.
struct TransmitEnd {
    to_peer: Sender<Frame>,
    /// Frames that both hosts have sent.
    sent: Arc<AtomicU64>,
}

/// One of two hosts on a wire. Its NDK adapters have to be closed before it is dropped.
pub struct Host {
    pub provider: Arc<Provider>,
    pub identity: Identity,
    /// The owner of what the host's provider allocates and reports.
    pub number: usize,
    state: Arc<NicState>,
    sent: Arc<AtomicU64>,
    /// Held during the end of a batch of frames.
    batch_end: Arc<Mutex<()>>,
    /// Held by the provider's timer while it runs.
    timers: Arc<Mutex<()>>,
    own_queue: Sender<Frame>,
    receiver: Option<JoinHandle<()>>,
}

impl Host {
    #[allow(clippy::large_types_passed_by_value, reason = "once for each host")]
    fn new(
        on_wire: u8,
        config: Config,
        wire: WireOptions,
        (own_queue, queue): (Sender<Frame>, Receiver<Frame>),
        TransmitEnd { to_peer, sent }: TransmitEnd,
    ) -> Self {
        let identity = Identity::new(on_wire);
        let state = Arc::new(NicState::new(wire.loss));
        let number = NEXT_HOST.fetch_add(1, Ordering::Relaxed);
        let transmit = TransmitQueue::new(to_peer, Arc::clone(&state), Arc::clone(&sent));
        let nic = Nic {
            own: identity,
            peer: Identity::new(3 - on_wire),
            mtu: wire.mtu,
            state: Arc::clone(&state),
            transmit: Mutex::new(transmit),
            number,
        };
        let timers = Arc::new(Mutex::new(()));
        let provider = nt::with_timers_behind(Arc::clone(&timers), || Provider::try_new(nic, config));
        let provider = Arc::new(provider.unwrap_or_else(|status| panic!("{status:#x}")));
        assert_eq!(provider.set_addresses(&identity.addresses()), Ok(()));
        let batch_end = Arc::new(Mutex::new(()));
        let (receiving, held, shard) = (Arc::clone(&provider), Arc::clone(&batch_end), config.shards - 1);
        let receiver = thread::spawn(move || receive(&receiving, shard, &queue, &held));
        let receiver = Some(receiver);
        Self { provider, identity, number, state, sent, batch_end, timers, own_queue, receiver }
    }

    /// Changes the adapter's addresses, as the system does.
    pub fn set_addresses(&self, addresses: &[IpAddr]) {
        assert_eq!(self.provider.set_addresses(addresses), Ok(()));
        self.provider.transmit_ready();
    }

    /// Cuts the wire from this host: from now on, none of its frames arrives.
    pub fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
    }

    /// Undoes [`cut`](Self::cut).
    pub fn restore(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }

    /// Removes the device by surprise.
    pub fn remove_device(&self) {
        self.cut();
        self.state.is_present.store(false, Ordering::SeqCst);
        self.provider.remove();
    }

    /// Returns the lengths of all frames that this host has transmitted, in bytes.
    #[must_use]
    pub fn transmitted(&self) -> Vec<usize> {
        self.state.transmitted.lock().unwrap().clone()
    }

    /// Returns the number of frames that both hosts have transmitted.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the largest number of next hops that were resolved at a time.
    #[must_use]
    pub fn most_resolutions(&self) -> usize {
        self.state.most_resolutions()
    }

    /// Holds the ends of batches: until the guard is dropped, received frames are processed but their batch does not end.
    /// The provider's DPC and timer still run.
    pub fn hold_batches(&self) -> MutexGuard<'_, ()> {
        self.batch_end.lock().unwrap()
    }

    /// Holds the provider's timer: until the guard is dropped, it does not run. The provider is dropped later.
    pub fn hold_timer(&self) -> MutexGuard<'_, ()> {
        self.timers.lock().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.own_queue.send(None);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

/// The receiver thread: processes frames in batches, in this shard.
fn receive(provider: &Provider, shard: u32, queue: &Receiver<Frame>, batch_end: &Mutex<()>) {
    while let Ok(Some(frame)) = queue.recv() {
        let mut batch = provider.receive_batch(shard).unwrap();
        batch.receive(&frame);
        for frame in queue.try_iter().take(BATCH - 1) {
            let Some(frame) = frame else { return };
            batch.receive(&frame);
        }
        // A test may close queue pairs before it lets the batch end.
        batch.pause();
        let _held = batch_end.lock().unwrap();
        batch.end();
    }
}
