// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers and keys that peers see cannot be predicted from each other.

use std::collections::HashSet;

use roce::{DropReason, NumberPrefix, Verdict};
use roce_testkit::{Options, TwoHosts};
use roce_wire::cm::CmMessage;
use roce_wire::{Mad, Opcode, Packet};

use super::forger::{Forger, frame, message};

/// Number of samples.
const COUNT: usize = 512;

fn roomy() -> Options {
    let config = |config: &mut roce::Config| {
        (config.max_qps, config.max_regions) = (1 << 14, 1 << 17);
    };
    Options { config, ..Options::default() }
}

/// Asserts that numbers of `bits` bits look random: no two are the same, each bit is set half of the time and
/// is independent of its predecessor, and distances between successive numbers repeat no more often than by
/// chance.
fn assert_random(what: &str, numbers: &[u32], bits: u32) {
    let different: HashSet<_> = numbers.iter().collect();
    // Among 512 random numbers below 2^24, two are equal once in 128 runs; numbers in use at a time never
    // are.
    assert!(different.len() + 1 >= numbers.len(), "{what}: {} of {}", different.len(), numbers.len());
    // Six standard deviations.
    let half = numbers.len() / 2;
    let slack = 3 * numbers.len().isqrt();
    for bit in 0..bits {
        let set = numbers.iter().filter(|&&number| number >> bit & 1 != 0).count();
        assert!(set.abs_diff(half) <= slack, "{what}: bit {bit} is set {set} times");
        let flips = numbers.windows(2).filter(|two| (two[0] ^ two[1]) >> bit & 1 != 0).count();
        assert!(flips.abs_diff(half) <= slack, "{what}: bit {bit} changes {flips} times");
    }
    let mask = u32::MAX >> (32 - bits);
    let distances: HashSet<_> = numbers.windows(2).map(|two| two[1].wrapping_sub(two[0]) & mask).collect();
    assert!(distances.len() + 4 >= numbers.len() - 1, "{what}: {} distances", distances.len());
}

#[test]
fn queue_pair_numbers_are_unpredictable_from_each_other() {
    let hosts = TwoHosts::new(roomy());
    let side = &hosts.sides[1];
    let spec = || roce_testkit::spec(side.pd, &side.cq, &hosts.options);
    let qps: Vec<_> = (0..COUNT).map(|_| side.engine.create_qp(spec()).unwrap()).collect();
    let numbers: Vec<_> = qps.iter().map(|qp| qp.qpn().value()).collect();
    assert_random("queue pairs", &numbers, 24);
}

/// Several engines share an address: the upper bits tell whose queue pair or connection a frame is for.
#[test]
fn numbers_have_the_prefix_of_their_engine_and_are_unpredictable_after_it() {
    const PREFIX: NumberPrefix = NumberPrefix::new(0x9, 4).unwrap();
    let config = |config: &mut roce::Config| {
        (config.max_qps, config.number_prefix) = (1 << 14, PREFIX);
    };
    let mut hosts = TwoHosts::connected(Options { config, ..Options::default() });
    let side = &hosts.sides[1];
    let spec = || roce_testkit::spec(side.pd, &side.cq, &hosts.options);
    let qps: Vec<_> = (0..COUNT).map(|_| side.engine.create_qp(spec()).unwrap()).collect();
    assert!(qps.iter().all(|qp| PREFIX.is_of_qpn(qp.qpn())));
    let numbers: Vec<_> = qps.iter().map(|qp| qp.qpn().value() & 0xF_FFFF).collect();
    assert_random("queue pairs", &numbers, 20);
    hosts.capture = Some(Vec::new());
    for context in 0..4 {
        hosts.connect_another(context);
    }
    let mut ids = 0;
    for (_, frame) in hosts.capture.take().unwrap() {
        let Some(CmMessage::Rep(rep)) = message(&frame) else { continue };
        for id in [rep.local_comm_id, rep.remote_comm_id] {
            assert!(PREFIX.is_of_comm_id(id), "{id:?}");
            ids += 1;
        }
    }
    assert_eq!(ids, 8);
}

#[test]
fn keys_are_unpredictable_from_each_other_in_each_bit() {
    let hosts = TwoHosts::new(roomy());
    let regions: Vec<_> = (0..COUNT).map(|_| hosts.sides[1].shared(8)).collect();
    let keys: Vec<_> = regions.iter().map(roce_testkit::Memory::key).collect();
    assert_random("keys", &keys, 32);
}

#[test]
fn starting_psns_and_cm_identifiers_are_unpredictable_from_each_other() {
    let mut hosts = TwoHosts::new(Options { config: |config| config.max_qps = 1024, ..Options::default() });
    hosts.capture = Some(Vec::new());
    // Without a listener, each attempt is rejected.
    let (mut psns, mut ids, mut transactions) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..COUNT {
        let side = &mut hosts.sides[0];
        side.qp = side.engine.create_qp(roce_testkit::spec(side.pd, &side.cq, &hosts.options)).unwrap();
        hosts.connect(b"");
        hosts.run_for(std::time::Duration::from_millis(1));
        let capture = std::mem::take(hosts.capture.as_mut().unwrap());
        let mut requests = capture.iter().filter_map(|(_, frame)| {
            let CmMessage::Req(req) = message(frame)? else { return None };
            let packet = Packet::parse(frame).ok()?;
            Some((req, Mad::new_checked(packet.payload()).ok()?.header().transaction_id()))
        });
        let (req, transaction) = requests.next_back().unwrap();
        psns.push(req.starting_psn.value());
        ids.push(req.local_comm_id.0);
        transactions.push(transaction as u32);
        hosts.sides[0].engine.connections().release(hosts.now, hosts.sides[0].conn.unwrap());
    }
    assert_random("starting PSNs", &psns, 24);
    assert_random("communication identifiers", &ids, 32);
    assert_random("transactions", &transactions, 32);
}

#[test]
fn different_seeds_give_different_numbers() {
    let numbers = |seed| {
        let hosts = TwoHosts::new(Options { seed, ..Options::default() });
        (hosts.sides[1].qp.qpn(), hosts.sides[1].shared(8).key())
    };
    let (one, other) = (numbers(1), numbers(2));
    assert_eq!(numbers(1), one, "the same seed gives the same numbers");
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn the_number_of_a_destroyed_queue_pair_reaches_no_other_queue_pair() {
    let mut forger = Forger::new(Options::default());
    let mut gone = HashSet::new();
    for _ in 0..600 {
        let side = &mut forger.hosts.sides[1];
        let old = side.qp.clone();
        side.engine.destroy_qp(&old);
        assert!(gone.insert(old.qpn()), "a number was reused");
        side.qp =
            side.engine.create_qp(roce_testkit::spec(side.pd, &side.cq, &forger.hosts.options)).unwrap();
        assert!(!gone.contains(&side.qp.qpn()));
    }
    let psn = forger.psn;
    for qpn in gone {
        let frame = frame(&forger.path, qpn, Opcode::SEND_ONLY, psn, roce_wire::Ext::None, b"late");
        assert_eq!(forger.give(&frame), Verdict::Dropped(DropReason::NoQp));
    }
}
