// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two natively linked providers, connected by a simulated link.
#![allow(unsafe_code, reason = "a provider is opened and closed through pointers")]

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use ndk_abi::ndk::{NDK_ADAPTER, NDK_VERSION};
use ndk_consumer::Adapter;
use ndk_consumer::native::Native;
use ndk_provider::environment::{Environment, Link, Path, ResolveError};
use ndk_provider::{Config, CreateCompletion, Provider};
use nt::{DriverObject, Owner};
use roce::Transmit;

/// Length of the longest frame in bytes.
const LONGEST: usize = 9216;
/// Frames per batch.
const BATCH: usize = 64;

/// Two hosts on one link.
pub struct Pair {
    hosts: [Machine; 2],
    link: Arc<SimulatedLink>,
}

/// The link: its faults and counters.
#[derive(Default)]
pub struct SimulatedLink {
    is_down: AtomicBool,
    /// Number of frames lost per million.
    loss: AtomicU64,
    frames: AtomicU64,
}

struct Machine {
    provider: Arc<OnceLock<Provider>>,
    /// `None` ends the receiving thread.
    stop: Sender<Option<Vec<u8>>>,
    receiver: Option<JoinHandle<()>>,
    address: IpAddr,
}

struct Nic {
    number: u8,
    mtu: u32,
    queue: Mutex<Box<[u8; LONGEST]>>,
    link: Arc<SimulatedLink>,
    peer: Sender<Option<Vec<u8>>>,
}

/// Sends committed frames to the other host's channel.
struct Queue<'a> {
    slot: &'a mut [u8; LONGEST],
    nic: &'a Nic,
}

impl Pair {
    /// Creates the pair. `mtu` is the IP MTU in bytes, `loss` the number of frames lost per million.
    pub fn new(pending: CreateCompletion, mtu: u32, loss: u64) -> Self {
        let link = Arc::new(SimulatedLink { loss: AtomicU64::new(loss), ..SimulatedLink::default() });
        let (first, second) = (channel(), channel());
        let senders = [first.0.clone(), second.0.clone()];
        let hosts = [(first, 0_u8), (second, 1)].map(|((stop, frames), number)| {
            let nic = Nic {
                number,
                mtu,
                queue: Mutex::new(Box::new([0; LONGEST])),
                link: Arc::clone(&link),
                peer: senders[usize::from(1 - number)].clone(),
            };
            let provider = Arc::new(OnceLock::new());
            let config = Config { create_completion: pending, ..Config::default() };
            let built = Provider::try_new(nic, config).unwrap_or_else(|status| panic!("{status:#x}"));
            assert_eq!(built.set_addresses(&[ip(number)]), Ok(()));
            assert!(provider.set(built).is_ok());
            let receiving = Arc::clone(&provider);
            let receiver = std::thread::spawn(move || receive(&receiving, &frames));
            Machine { provider, stop, receiver: Some(receiver), address: ip(number) }
        });
        Self { hosts, link }
    }

    /// Opens both adapters, runs `body`, and closes them.
    pub fn with_adapters<R>(&self, body: impl FnOnce([&Arc<Adapter<Native>>; 2]) -> R) -> R {
        let os = Arc::new(Native::new());
        let raw = [0, 1].map(|host: usize| {
            let version = NDK_VERSION { Major: 2, Minor: 1 };
            let opened = self.hosts[host].provider().open(version);
            NonNull::new(opened.unwrap_or_else(|status| panic!("{status:#x}"))).unwrap()
        });
        // SAFETY: closed below, after `body` has closed everything made from them.
        let adapters = raw.map(|raw: NonNull<NDK_ADAPTER>| unsafe { Adapter::new(&os, raw) });
        let result = body([&adapters[0], &adapters[1]]);
        drop(adapters);
        for (host, raw) in self.hosts.iter().zip(raw) {
            // SAFETY: opened above, and all objects created through it are closed.
            unsafe { host.provider().close(raw.as_ptr()) };
        }
        result
    }

    /// Returns the address of a host with port 0.
    pub fn address(&self, host: usize) -> SocketAddr {
        (self.hosts[host].address, 0).into()
    }

    /// Takes the link down: all later frames are lost.
    pub fn cut(&self) {
        self.link.is_down.store(true, Ordering::Relaxed);
    }

    /// Prints the counters of both engines.
    pub fn print_counters(&self) {
        for host in &self.hosts {
            host.provider().counters(&mut |name, value| {
                if value != 0 {
                    print!("{name} {value}, ");
                }
            });
            println!();
        }
    }

    /// Returns the number of frames that both hosts have sent.
    pub fn frames(&self) -> u64 {
        self.link.frames.load(Ordering::Relaxed)
    }
}

impl Machine {
    fn provider(&self) -> &Provider {
        self.provider.get().expect("set when the pair was made")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            let _ = host.stop.send(None);
        }
        for host in &mut self.hosts {
            let _ = host.receiver.take().map(JoinHandle::join);
        }
    }
}

/// Receives frames in batches, like a NIC.
fn receive(provider: &OnceLock<Provider>, frames: &Receiver<Option<Vec<u8>>>) {
    let provider = provider.get().expect("set before the thread was started");
    while let Ok(Some(frame)) = frames.recv() {
        let mut batch = provider.batch(0).unwrap();
        batch.receive(&frame);
        for next in frames.try_iter().take(BATCH) {
            let Some(frame) = next else { return };
            batch.receive(&frame);
        }
        batch.end();
    }
}

impl Environment for Nic {
    fn transmit(&self, _shard: u32, pump: &mut dyn FnMut(&mut dyn Transmit) -> usize) {
        let mut slot = self.queue.lock().unwrap();
        while pump(&mut Queue { slot: &mut slot, nic: self }) != 0 {}
    }

    fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
        Ok(None)
    }

    fn resolve(&self, _: IpAddr, remote: IpAddr) -> Result<Path, ResolveError> {
        let peer = 1 - self.number;
        if remote == ip(peer) {
            Ok(Path { remote_mac: mac(peer), mtu: self.mtu })
        } else {
            Err(ResolveError::HostUnreachable)
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address == ip(self.number)
    }

    fn link(&self) -> Link {
        Link { mac: mac(self.number), mtu: self.mtu, scope: 1 }
    }

    fn is_present(&self) -> bool {
        true
    }

    fn driver(&self) -> DriverObject {
        DriverObject::new(core::ptr::null_mut())
    }

    fn owner(&self) -> Owner {
        Owner::new(ptr::null_mut())
    }
}

impl Transmit for Queue<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot[..])
    }

    fn commit(&mut self, length: usize) {
        let number = self.nic.link.frames.fetch_add(1, Ordering::Relaxed);
        // The loss is a function of the frame number: it repeats if the order of frames does.
        let draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let lost = draw % 1_000_000 < self.nic.link.loss.load(Ordering::Relaxed);
        if !lost && !self.nic.link.is_down.load(Ordering::Relaxed) {
            let _ = self.nic.peer.send(Some(self.slot[..length].to_vec()));
        }
    }
}

fn ip(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1 + number).into()
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + number]
}
