// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NIC of a host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ndk_provider::environment::{Environment, Link, Path, ResolveError};
use nt::{DriverObject, Owner};
use roce::Transmit;

/// Length in bytes of the longest frame.
const LONGEST: usize = 9216;

/// Scope ID of link-local addresses on both hosts.
pub const SCOPE: u32 = 7;

/// A frame, or `None` to end the receiver thread.
pub(crate) type Frame = Option<Vec<u8>>;

/// The MAC address and the IP addresses of a host.
#[derive(Clone, Copy)]
pub struct Identity {
    mac: [u8; 6],
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    link_local: Ipv6Addr,
}

impl Identity {
    /// Returns the addresses of a host by its number on the wire, 1 or 2.
    #[must_use]
    pub fn new(number: u8) -> Self {
        let last = number.into();
        Self {
            mac: [2, 0, 0, 0, 0, number],
            v4: Ipv4Addr::new(192, 0, 2, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
            link_local: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last),
        }
    }

    pub(crate) fn addresses(&self) -> [IpAddr; 3] {
        [self.v4.into(), self.v6.into(), self.link_local.into()]
    }

    /// Returns the IPv4 address with this port.
    #[must_use]
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.v4, port))
    }

    /// Returns the global IPv6 address with this port.
    #[must_use]
    pub fn at_v6(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.v6, port))
    }

    /// Returns the link-local address with this port and [`SCOPE`].
    #[must_use]
    pub fn at_link_local(&self, port: u16) -> SocketAddr {
        SocketAddrV6::new(self.link_local, port, 0, SCOPE).into()
    }
}

/// Next hops that are resolved at a time. On a wire that is cut, each takes [`Resolutions::TIME`].
#[derive(Default)]
struct Resolutions {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Resolutions {
    const TIME: Duration = Duration::from_millis(300);
}

/// State of a NIC that tests change and read.
pub(crate) struct NicState {
    /// Frames are no longer sent.
    pub(crate) is_cut: AtomicBool,
    pub(crate) is_present: AtomicBool,
    /// Number of frames lost per million.
    pub(crate) loss: u64,
    /// The lengths of all frames that the host has transmitted, in bytes.
    pub(crate) transmitted: Mutex<Vec<usize>>,
    resolutions: Resolutions,
}

impl NicState {
    pub(crate) fn new(loss: u64) -> Self {
        Self {
            is_cut: AtomicBool::new(false),
            is_present: AtomicBool::new(true),
            loss,
            transmitted: Mutex::default(),
            resolutions: Resolutions::default(),
        }
    }

    pub(crate) fn most_resolutions(&self) -> usize {
        self.resolutions.most.load(Ordering::SeqCst)
    }
}

/// The NIC of a host.
pub(crate) struct Nic {
    pub(crate) own: Identity,
    pub(crate) peer: Identity,
    pub(crate) mtu: u32,
    pub(crate) state: Arc<NicState>,
    pub(crate) transmit: Mutex<TransmitQueue>,
    /// Distinguishes the host from all others of the process.
    pub(crate) number: usize,
}

/// The transmit queue of a NIC: sends committed frames to the peer's receiver thread.
pub(crate) struct TransmitQueue {
    pub(crate) to_peer: Sender<Frame>,
    slot: Box<[u8]>,
    state: Arc<NicState>,
    /// Frames of both hosts.
    sent: Arc<AtomicU64>,
}

impl TransmitQueue {
    pub(crate) fn new(to_peer: Sender<Frame>, state: Arc<NicState>, sent: Arc<AtomicU64>) -> Self {
        Self { to_peer, slot: vec![0; LONGEST].into(), state, sent }
    }
}

impl Transmit for TransmitQueue {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.state.transmitted.lock().unwrap().push(len);
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        // The loss is a function of the frame's number: it repeats if the order of frames does.
        let draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let is_lost = draw % 1_000_000 < self.state.loss;
        if !is_lost && !self.state.is_cut.load(Ordering::SeqCst) {
            // The peer's receiver may have ended.
            let _ = self.to_peer.send(Some(self.slot[..len].to_vec()));
        }
    }
}

impl Environment for Nic {
    fn transmit(&self, _shard: u32, pump: &mut dyn FnMut(&mut dyn Transmit) -> usize) {
        let mut queue = self.transmit.lock().unwrap();
        while pump(&mut *queue) != 0 {}
    }

    fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
        Ok(None)
    }

    fn resolve(&self, _local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError> {
        assert_eq!(nt::irql::current(), nt::irql::PASSIVE_LEVEL);
        let resolutions = &self.state.resolutions;
        let at_a_time = resolutions.now.fetch_add(1, Ordering::SeqCst) + 1;
        resolutions.most.fetch_max(at_a_time, Ordering::SeqCst);
        if self.state.is_cut.load(Ordering::SeqCst) {
            thread::sleep(Resolutions::TIME);
        }
        resolutions.now.fetch_sub(1, Ordering::SeqCst);
        match remote {
            ip if self.peer.addresses().contains(&ip) => {
                Ok(Path { remote_mac: self.peer.mac, mtu: self.mtu })
            }
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
        Link { mac: self.own.mac, mtu: self.mtu, scope: SCOPE }
    }

    fn is_present(&self) -> bool {
        self.state.is_present.load(Ordering::SeqCst)
    }

    fn driver(&self) -> DriverObject {
        DriverObject::new(ptr::null_mut())
    }

    fn owner(&self) -> Owner {
        Owner::new(ptr::without_provenance_mut(self.number))
    }
}
