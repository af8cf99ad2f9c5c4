// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA READ with local invalidation.

use roce::{CompletionStatus, KeyState, QpState, SendData, SendFlags, SendOperation};

use crate::keys::{Fast, invalidate, post};
use crate::two_hosts::{Memory, Options, Side, TwoHosts, pattern};

/// Posts a READ of the peer's memory `from` into `to`, which invalidates the key of its first element.
fn read_and_invalidate(side: &Side, context: u64, to: &[roce::Sge], from: &Memory) {
    let operation = SendOperation::Read { address: from.address(0), key: from.key() };
    post(side, &side.qp, context, operation, SendFlags::INVALIDATE_SINK, SendData::Sges(to)).unwrap();
}

/// The second READ completes before the registration, which waits for it, although both are posted at once.
//= R-QP-85
#[test]
fn a_read_can_invalidate_the_key_that_it_reads_to() {
    for loss in [0, 200] {
        let mut hosts = TwoHosts::connected(Options { loss, ..Options::default() });
        let data = pattern(3 * 4096, 5);
        let from = hosts.sides[1].shared(data.len());
        from.write(&data);
        let alice = &hosts.sides[0];
        let (fast, other) = (Fast::new(alice, 3), Fast::new(alice, 1));
        fast.register(alice, 1);
        other.register(alice, 2);
        let sge = |fast: &Fast, length| roce::Sge { address: 0xABCD_0000, length, key: fast.region.key() };
        // The key of the second element stays.
        read_and_invalidate(alice, 3, &[sge(&fast, 3 * 4096 - 100), sge(&other, 100)], &from);
        fast.register(alice, 4);
        alice.read(5, &[sge(&fast, 4096), sge(&other, 100)], &from, 0);
        invalidate(alice, 6, fast.region.key()).unwrap();
        hosts.run_until("all", |hosts| hosts.sides[0].cq.len() == 6);
        let outcomes = hosts.sides[0].outcomes();
        assert_eq!(outcomes, (1..=6).map(|i| (i, CompletionStatus::Success)).collect::<Vec<_>>());
        assert_eq!(fast.memory.read()[4096..][..4096], data[4096..][..4096]);
        assert_eq!((fast.region.state(), other.region.state()), (KeyState::Free, KeyState::Valid));
        // Without a registration between them, the second one finds the key invalid.
        let alice = &hosts.sides[0];
        read_and_invalidate(alice, 7, &[sge(&other, 100)], &from);
        alice.read(8, &[sge(&other, 100)], &from, 0);
        hosts.run_until("both", |hosts| hosts.sides[0].cq.len() == 2);
        assert_eq!(other.region.state(), KeyState::Free);
        let expected = [(7, CompletionStatus::Success), (8, CompletionStatus::LocalProtection)];
        assert_eq!(hosts.sides[0].outcomes(), expected);
    }
}

/// The invalidation of a READ concerns the requests behind it.
#[test]
fn an_invalidation_does_not_wait_for_a_read_behind_it_that_invalidates_another_key() {
    let mut hosts = TwoHosts::connected(Options::default());
    let from = hosts.sides[1].shared(4096);
    let alice = &hosts.sides[0];
    let (fast, other, source) = (Fast::new(alice, 1), Fast::new(alice, 1), alice.source(&[1; 8]));
    fast.register(alice, 1);
    other.register(alice, 2);
    // The invalidation is the oldest request once this is acknowledged.
    alice.write(3, &[source.all()], &from, 0);
    invalidate(alice, 4, other.region.key()).unwrap();
    let sink = roce::Sge { address: 0xABCD_0000, length: 4096, key: fast.region.key() };
    read_and_invalidate(alice, 5, &[sink], &from);
    hosts.run();
    let outcomes = hosts.sides[0].outcomes();
    assert_eq!(outcomes, (1..=5).map(|i| (i, CompletionStatus::Success)).collect::<Vec<_>>());
    assert_eq!([&fast, &other].map(|fast| fast.region.state()), [KeyState::Free; 2]);
}

//= R-QP-86
#[test]
fn a_read_that_cannot_invalidate_its_key_fails() {
    for empty in [false, true] {
        let mut hosts = TwoHosts::connected(Options::default());
        let from = hosts.sides[1].shared(4096);
        let alice = &hosts.sides[0];
        let (sink, fast) = (alice.sink(4096), Fast::new(alice, 1));
        fast.register(alice, 1);
        // The first element is of a region that no request has registered; the second one is not considered.
        let second = roce::Sge { address: 0xABCD_0000, length: 8, key: fast.region.key() };
        let list: &[roce::Sge] = if empty { &[] } else { &[sink.sge(0, 8), second] };
        read_and_invalidate(alice, 2, list, &from);
        hosts.run_until("the read", |hosts| hosts.sides[0].cq.len() == 2);
        assert_eq!(hosts.sides[0].outcomes()[1], (2, CompletionStatus::MemoryManagement));
        assert_eq!(fast.region.state(), KeyState::Valid);
        assert_eq!(hosts.sides[0].qp.state(), QpState::Error);
    }
}
