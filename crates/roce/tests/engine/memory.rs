// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions and logical addresses.
#![allow(unsafe_code, reason = "registers memory with an engine")]

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ptr::NonNull;

use roce::{Access, Backing, CompletionStatus, CreateError, PRIVILEGED_KEY, Sge};
use roce_wire::{Ext, Opcode};

use crate::responder::Script;
use crate::two_hosts::{Options, TwoHosts, pattern};

/// Memory that is not registered.
struct Pages(Box<[UnsafeCell<u8>]>);

impl Pages {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| UnsafeCell::new(0)).collect())
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(UnsafeCell::raw_get(&raw const self.0[offset])).unwrap()
    }

    fn read(&self) -> Vec<u8> {
        // SAFETY: no engine runs at the same time.
        self.0.iter().map(|byte| unsafe { *byte.get() }).collect()
    }
}

//= R-QP-41
//= R-QP-42
//= R-MR-56
#[test]
fn logical_addresses_reach_discontiguous_memory() {
    let mut hosts = TwoHosts::connected(Options::default());
    let pages = Pages::new(3 * 4096);
    let mut backing = Backing::new();
    // The second page first, then the first: from byte 100 of the page on, 5000 bytes.
    // SAFETY: the pages outlive the mapping.
    unsafe { backing.push(pages.at(4096 + 100), 3996) }.unwrap();
    // SAFETY: the second part is in the first of the same pages.
    unsafe { backing.push(pages.at(0), 1004) }.unwrap();
    let alice = &hosts.sides[0];
    // SAFETY: both parts are unmapped below, before the pages are freed.
    let base = unsafe { alice.engine.memory().map_logical(100, backing) }.unwrap();
    assert_eq!(base % (1 << 40), 0);
    let data = pattern(5000, 3);
    let remote = hosts.sides[1].shared(5000);
    remote.write(&data);
    let sge = Sge { address: base + 100, length: 5000, key: PRIVILEGED_KEY };
    alice.read(1, &[sge], &remote, 0);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(pages.read()[4196..8192], data[..3996]);
    assert_eq!(pages.read()[..1004], data[3996..]);
    assert_eq!(pages.read()[8192..], [0; 4096]);
    assert!(hosts.sides[0].engine.memory().unmap_logical(base));
    assert!(!hosts.sides[0].engine.memory().unmap_logical(base));
    hosts.sides[0].send(2, &[sge]);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::LocalProtection)]);
}

//= R-LAM-24
#[test]
fn logical_ranges_do_not_overlap() {
    let hosts = TwoHosts::new(Options::default());
    let pages = Pages::new(4096);
    let engine = &hosts.sides[0].engine;
    let map = || {
        // SAFETY: the pages outlive the engine's use: no request is posted.
        let backing = unsafe { Backing::contiguous(pages.at(0), 4096) }.unwrap();
        // SAFETY: the page outlives each mapping, and no request uses one.
        unsafe { engine.memory().map_logical(0, backing) }
    };
    let bases: HashSet<_> = (0..256).map(|_| map().unwrap()).collect();
    assert_eq!(bases.len(), 256);
    assert!(!bases.contains(&0));
    assert_eq!(map(), Err(CreateError::TooMany));
    for base in bases {
        assert!(engine.memory().unmap_logical(base));
    }
    // SAFETY: the memory is not accessed.
    let empty = unsafe { engine.memory().map_logical(0, Backing::new()) };
    assert_eq!(empty, Err(CreateError::Invalid));
}

//= R-MR-13
//= R-MR-22
//= R-MR-54
//= R-MR-69
#[test]
fn keys_are_not_reused_for_long() {
    let hosts = TwoHosts::new(Options::default());
    let mut seen = HashSet::new();
    for _ in 0..2000 {
        let memory = hosts.sides[0].memory(8, Access::all());
        assert!(seen.insert(memory.key()), "a key was reused after {}", seen.len());
        assert!(memory.key() != 0 && memory.key() != PRIVILEGED_KEY);
        assert!(hosts.sides[0].engine.memory().deregister(&memory.region));
        assert!(!hosts.sides[0].engine.memory().deregister(&memory.region));
    }
}

//= R-MR-10
#[test]
fn invalid_regions_are_rejected() {
    let hosts = TwoHosts::new(Options::default());
    let side = &hosts.sides[0];
    let pages = Pages::new(64);
    let register = |base, length, access| {
        // SAFETY: the memory is not accessed.
        let backing = unsafe { Backing::contiguous(pages.at(0), 64) }.unwrap();
        // SAFETY: no request names the region, so that its pages are not accessed.
        unsafe { side.engine.memory().register(side.pd, base, length, access, backing) }.map(|_| ())
    };
    let none = Access::empty();
    assert_eq!(register(0, 0, none), Err(CreateError::Invalid));
    assert_eq!(register(0, 65, none), Err(CreateError::Invalid));
    assert_eq!(register(u64::MAX - 62, 64, none), Err(CreateError::Invalid));
    assert_eq!(register(0, 64, Access::REMOTE_WRITE), Err(CreateError::Invalid));
    assert_eq!(register(u64::MAX - 64, 64, Access::all()), Ok(()));
}

//= R-MR-17
//= R-MR-21
#[test]
fn a_read_of_a_region_deregistered_midway_fails() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (sink, remote) = (alice.sink(400_000), bob.shared(400_000));
    alice.read(1, &[sink.all()], &remote, 0);
    hosts.run_until("the first response", |hosts| hosts.sides[1].stat("tx_bytes") > 0);
    assert!(hosts.sides[1].engine.memory().deregister(&remote.region));
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RemoteAccess)]);
}

#[test]
fn elements_are_looked_for_in_requests_that_are_not_complete() {
    let mut script = Script::new(Options::default());
    let sink = script.hosts.sides[1].sink(2048);
    let has = |script: &Script| script.hosts.sides[1].qp.has_element(&|sge| sge.key == sink.key());
    assert!(!has(&script));
    script.hosts.sides[1].recv(1, &[sink.all()]);
    assert!(has(&script));
    script.next(1, Opcode::SEND_FIRST, Ext::None, &[1; 1024]);
    assert!(has(&script), "of the message that is being received");
    script.next(1, Opcode::SEND_LAST, Ext::None, &[1]);
    assert!(!has(&script));
    script.hosts.sides[1].send(2, &[sink.sge(0, 8)]);
    assert!(has(&script));
}
