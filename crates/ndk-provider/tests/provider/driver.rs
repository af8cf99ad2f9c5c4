// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's calls of the provider: received frames, the end of a batch, transmit slots that become free, and drop. The
//! host has no receiver thread: what a call does is done when it returns.

use crate::support::*;
use core::net::{IpAddr, Ipv4Addr};
use ndk_abi::ndk::{NDK_OBJECT_TYPE, NDK_SRQ};
use ndk_abi::nt::*;
use ndk_provider::environment::{Environment, Link, ObjectChange, Path, ResolveError};
use ndk_provider::{Config, Provider, Verdict};
use nt::{DriverObject, Owner};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The events that the tests see of a host.
#[derive(Default)]
struct Seen {
    sent: Mutex<Vec<Vec<u8>>>,
    /// The transmit queue has no free slot.
    is_full: AtomicBool,
    /// Times that a slot was wanted and none was free.
    waits: AtomicUsize,
    /// The system no longer has the host's address.
    is_homeless: AtomicBool,
    /// Changes of objects: type, address, change.
    changes: Mutex<Vec<(i32, usize, ObjectChange)>>,
}

impl Seen {
    fn sent(&self) -> Vec<Vec<u8>> {
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

fn address(mac: [u8; 6]) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, mac[5])
}

impl Environment for Host {
    fn transmit(&self, _shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        while pump(&mut Queue { slot: [0; 2048], seen: &self.seen }) != 0 {}
    }

    fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
        Ok(Some(Path { remote_mac: self.peer, mtu: 1500 }))
    }

    fn resolve(&self, _: IpAddr, _: IpAddr) -> Result<Path, ResolveError> {
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

fn host(mac: [u8; 6], peer: [u8; 6]) -> (Arc<Provider>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let host = Host { mac, peer, seen: Arc::clone(&seen) };
    let provider = Provider::try_new(host, Config::default()).expect("a provider");
    assert_eq!(provider.set_addresses(&[address(mac).into()]), Ok(()));
    (Arc::new(provider), seen)
}

/// Connects from `a` until its connect request is sent, which is returned.
fn request_of(active: &End, seen: &Seen) -> (Vec<u8>, Connecting) {
    let (from, to) = ((address(OWN), 0).into(), (address(PEER), 445).into());
    let connecting = active.connect(from, to, &[]);
    let mut sent = Vec::new();
    wait("the request is sent", || {
        sent.extend(seen.sent());
        !sent.is_empty()
    });
    (sent.remove(0), connecting)
}

//= R-PNP-3, R-OPEN-6
#[test]
fn frames_are_taken_for_this_station_while_the_provider_is_enabled_or_open() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let mut foreign = frame.clone();
    foreign[5] ^= 1;
    let (b, _) = host(PEER, OWN);
    let receive = || [&frame, &foreign].map(|frame| b.receive_batch(0).unwrap().receive(frame));
    let (taken, left) = ([Verdict::Consumed, Verdict::NotOurs], [Verdict::NotOurs; 2]);
    assert_eq!(receive(), taken, "enabled, without a consumer");
    let consumer = OpenAdapter::of(&b, 2);
    assert_eq!(receive(), taken, "enabled and open");
    b.set_enabled(false);
    assert_eq!(receive(), taken, "disabled, with a consumer");
    consumer.close();
    assert_eq!(receive(), left, "disabled, without a consumer");
    b.set_enabled(true);
    assert_eq!(receive(), taken, "enabled again");
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

/// Frames to many stations between those of a queue pair: what the batch keeps is released after as many frames of any kind.
#[test]
fn a_batch_keeps_queue_pairs_and_regions_for_a_few_frames_of_any_station() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let mut multicast = frame.clone();
    multicast[0] |= 1;
    let (b, _) = host(PEER, OWN);
    // Frames are counted when the batch releases what it keeps.
    let counted = || b.performance_counters().RDMAInFrames;
    let mut batch = b.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    for number in 1..100 {
        assert_eq!(counted(), u64::from(number > 15), "{number}");
        assert_eq!(batch.receive(&multicast), Verdict::NotOurs);
    }
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    assert_eq!(counted(), 1);
    batch.end();
    assert_eq!(counted(), 2);
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

#[test]
fn frame_that_found_no_slot_is_sent_when_one_becomes_free() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    seen.is_full.store(true, Ordering::SeqCst);
    let (from, to) = ((address(OWN), 0).into(), (address(PEER), 445).into());
    let connecting = active.connect(from, to, &[]);
    wait("the request needs a slot", || seen.waits.load(Ordering::SeqCst) != 0);
    assert!(seen.sent().is_empty());
    seen.is_full.store(false, Ordering::SeqCst);
    a.transmit_ready();
    assert_eq!(seen.sent().len(), 1, "sent by the call");
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

/// The system has taken the address away, and the driver has not yet called `set_addresses`.
//= R-CONN-101
#[test]
fn request_to_an_address_that_is_gone_is_refused_at_the_end_of_the_batch() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let (b, from_b) = host(PEER, OWN);
    let consumer = OpenAdapter::of(&b, 2);
    let listener = consumer.listener(445);
    from_b.is_homeless.store(true, Ordering::SeqCst);
    let mut batch = b.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    batch.end();
    let sent = from_b.sent();
    assert_eq!(sent.len(), 1, "the refusal is sent by the call");
    assert!(listener.is_idle());
    let mut batch = a.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&sent[0]), Verdict::Consumed);
    batch.end();
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    opened.close();
    listener.close();
    consumer.close();
}

//= R-PNP-14
#[test]
fn dropped_provider_stops_its_timer_and_frees_everything() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    // The timer is set for the repetition of the request.
    let (_, connecting) = request_of(&active, &seen);
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
    assert_eq!(Arc::strong_count(&seen), 2);
    drop(a);
    assert_eq!(Arc::strong_count(&seen), 1, "the environment is freed with the provider");
}

/// An object of which the creation failed was none.
#[test]
fn changes_of_an_object_are_traced_from_its_creation_to_its_end() {
    let (provider, seen) = host(OWN, PEER);
    let adapter = OpenAdapter::of(&provider, 1);
    seen.changes.lock().unwrap().clear();
    let pd = adapter.pd();
    let failed = create(|done, context, out: *mut *mut NDK_SRQ| {
        let none = core::ptr::null_mut();
        call!(pd, NdkCreateSrq, 0, 1, 0, None, none, none.cast(), done, context, out)
    });
    assert_eq!(failed.err(), Some(STATUS_INVALID_PARAMETER));
    let kind = NDK_OBJECT_TYPE::NdkObjectTypePd.0;
    let object = pd.addr();
    close!(pd, NdkClosePd);
    let expected = [ObjectChange::Created, ObjectChange::Closing, ObjectChange::Closed]
        .map(|change| (kind, object, change));
    assert_eq!(*seen.changes.lock().unwrap(), expected);
    adapter.close();
}
