// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers that name things to peers: nobody who knows some knows others.

use std::collections::HashSet;

use roce::{DropReason, Verdict};
use roce_testkit::{Options, Pair};
use roce_wire::cm::CmMessage;
use roce_wire::{Mad, Opcode, Packet};

use crate::forger::{Forger, frame, message};

/// How many.
const COUNT: usize = 512;

fn roomy() -> Options {
    let config = |config: &mut roce::Config| {
        (config.max_qps, config.max_regions) = (1 << 14, 1 << 17);
    };
    Options { config, ..Options::default() }
}

/// Whether numbers of `bits` bits look as if drawn by lot: no two the same, each bit set half of the time and
/// independent of the one before, and no distance between neighbours twice as often as by chance.
fn look_drawn_by_lot(what: &str, numbers: &[u32], bits: u32) {
    let different: HashSet<_> = numbers.iter().collect();
    // Of 512 out of 2^24, two are the same once in 128 times; names that are in use together never are.
    assert!(different.len() + 1 >= numbers.len(), "{what}: {} of {}", different.len(), numbers.len());
    // Six standard deviations.
    let half = numbers.len() / 2;
    let slack = 3 * numbers.len().isqrt();
    for bit in 0..bits {
        let set = numbers.iter().filter(|&&number| number >> bit & 1 != 0).count();
        assert!(set.abs_diff(half) <= slack, "{what}: bit {bit} is set {set} times");
        let flips = numbers.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 != 0).count();
        assert!(flips.abs_diff(half) <= slack, "{what}: bit {bit} changes {flips} times");
    }
    let mask = u32::MAX >> (32 - bits);
    let distances: HashSet<_> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & mask).collect();
    assert!(distances.len() + 4 >= numbers.len() - 1, "{what}: {} distances", distances.len());
}

#[test]
fn queue_pair_numbers_do_not_tell_one_from_the_other() {
    let pair = Pair::new(roomy());
    let side = &pair.sides[1];
    let spec = || roce_testkit::spec(side.pd, &side.cq, &pair.options);
    let qps: Vec<_> = (0..COUNT).map(|_| side.engine.create_qp(spec()).unwrap()).collect();
    let numbers: Vec<_> = qps.iter().map(|qp| qp.qpn().value()).collect();
    look_drawn_by_lot("queue pairs", &numbers, 24);
}

#[test]
fn keys_do_not_tell_one_from_the_other_in_any_of_their_bits() {
    let pair = Pair::new(roomy());
    let regions: Vec<_> = (0..COUNT).map(|_| pair.sides[1].shared(8)).collect();
    let keys: Vec<_> = regions.iter().map(roce_testkit::Memory::key).collect();
    look_drawn_by_lot("keys", &keys, 32);
}

#[test]
fn starting_sequence_numbers_and_identifiers_do_not_tell_one_from_the_other() {
    let mut pair = Pair::new(Options { config: |config| config.max_qps = 1024, ..Options::default() });
    pair.capture = Some(Vec::new());
    // Nobody listens: each attempt is refused.
    let (mut psns, mut ids, mut transactions) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..COUNT {
        let side = &mut pair.sides[0];
        side.qp = side.engine.create_qp(roce_testkit::spec(side.pd, &side.cq, &pair.options)).unwrap();
        pair.connect(b"");
        pair.run_for(std::time::Duration::from_millis(1));
        let capture = std::mem::take(pair.capture.as_mut().unwrap());
        let mut requests = capture.iter().filter_map(|(_, frame)| {
            let CmMessage::Req(req) = message(frame)? else { return None };
            let packet = Packet::parse(frame).ok()?;
            Some((req, Mad::new_checked(packet.payload()).ok()?.header().transaction_id()))
        });
        let (req, transaction) = requests.next_back().unwrap();
        psns.push(req.starting_psn.value());
        ids.push(req.local_comm_id.0);
        transactions.push(transaction as u32);
        pair.sides[0].engine.release(pair.now, pair.sides[0].conn.unwrap());
    }
    look_drawn_by_lot("starting sequence numbers", &psns, 24);
    look_drawn_by_lot("communication identifiers", &ids, 32);
    look_drawn_by_lot("transactions", &transactions, 32);
}

#[test]
fn another_seed_gives_other_numbers() {
    let numbers = |seed| {
        let pair = Pair::new(Options { seed, ..Options::default() });
        (pair.sides[1].qp.qpn(), pair.sides[1].shared(8).key())
    };
    let (one, other) = (numbers(1), numbers(2));
    assert_eq!(numbers(1), one, "and the same seed the same");
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn the_number_of_a_queue_pair_that_has_gone_reaches_no_other_one() {
    let mut forger = Forger::new(Options::default());
    let mut gone = HashSet::new();
    for _ in 0..600 {
        let side = &mut forger.pair.sides[1];
        let old = side.qp.clone();
        side.engine.destroy_qp(&old);
        assert!(gone.insert(old.qpn()), "a number came again");
        side.qp = side.engine.create_qp(roce_testkit::spec(side.pd, &side.cq, &forger.pair.options)).unwrap();
        assert!(!gone.contains(&side.qp.qpn()));
    }
    let psn = forger.psn;
    for qpn in gone {
        let frame = frame(&forger.path, qpn, Opcode::SEND_ONLY, psn, roce_wire::Ext::None, b"late");
        assert_eq!(forger.give(&frame), Verdict::Dropped(DropReason::NoQp));
    }
}
