// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fast registration, and invalidation by either side.

use fallible::Arc;
use roce::{
    Access, CompletionKind, CompletionStatus, KeyState, PostError, Qp, QpState, Region, Registration,
    SendData, SendFlags, SendOperation, SendRequest, WindowType,
};

use crate::two_hosts::{Lock, Memory, Options, Side, TwoHosts, pattern};
use crate::windows::whole;

const PAGE: u64 = 4096;
const REMOTE: Access = Access::all();

/// Memory of one side, and a region for fast registration of its pages.
pub struct Fast {
    pub memory: Memory,
    /// Logical addresses of the memory's pages.
    pages: Vec<u64>,
    pub region: Arc<Region>,
}

impl Fast {
    pub fn new(side: &Side, pages: usize) -> Self {
        let memory = side.memory(pages * PAGE as usize, Access::empty());
        let first = side.map(&memory);
        let pages: Vec<_> = (0..pages as u64).map(|page| first + page * PAGE).collect();
        let region = side.engine.memory().allocate_region(side.pd, pages.len() as u32, true).unwrap();
        Self { memory, pages, region }
    }

    fn registration(&self) -> Registration<'_> {
        let length = self.pages.len() as u64 * PAGE;
        Registration { base: 0xABCD_0000, offset: 0, length, access: REMOTE, pages: &self.pages }
    }

    pub fn register(&self, side: &Side, context: u64) {
        let key = self.region.key();
        register(side, &side.qp, context, key, SendFlags::empty(), &self.registration()).unwrap();
    }
}

pub fn post(
    side: &Side,
    qp: &Arc<Qp<Lock>>,
    context: u64,
    operation: SendOperation,
    flags: SendFlags,
    data: SendData<'_>,
) -> Result<(), PostError> {
    side.engine.post_send(qp, &SendRequest { context, operation, flags, data })
}

pub fn register(
    side: &Side,
    qp: &Arc<Qp<Lock>>,
    context: u64,
    key: u32,
    flags: SendFlags,
    registration: &Registration<'_>,
) -> Result<(), PostError> {
    post(side, qp, context, SendOperation::FastRegister { key }, flags, SendData::Registration(registration))
}

pub fn invalidate(side: &Side, context: u64, key: u32) -> Result<(), PostError> {
    let flags = SendFlags::empty();
    post(side, &side.qp, context, SendOperation::Invalidate { key }, flags, SendData::Sges(&[]))
}

pub fn write_to(side: &Side, context: u64, data: &[u8], address: u64, key: u32) {
    let source = side.source(data);
    side.post(context, SendOperation::Write { address, key }, SendFlags::empty(), &[source.all()]).unwrap();
}

//= R-QP-81
//= R-MR-24
//= R-MR-37
//= rocev2 §10
#[test]
fn a_fast_registered_region_can_be_used_at_once() {
    for mtu in roce_wire::PathMtu::ALL {
        let mut hosts = TwoHosts::connected(Options { mtu, ..Options::default() });
        let [alice, bob] = &hosts.sides;
        let fast = Fast::new(bob, 5);
        assert_eq!(fast.region.state(), KeyState::Free);
        // Pages in any order, with an offset into the first one and a base address chosen by the consumer.
        let pages: Vec<_> = [3, 0, 4, 1].map(|page| fast.pages[page]).to_vec();
        let (offset, length) = (1000, 3 * PAGE);
        let registration =
            Registration { base: u64::MAX - 5 * PAGE + 1001, offset, length, access: REMOTE, pages: &pages };
        let (key, flags) = (fast.region.key(), SendFlags::DEFER);
        register(bob, &bob.qp, 1, key, flags, &registration).unwrap();
        let (hello, sink) = (bob.source(b"it is open"), alice.sink(16));
        alice.recv(2, &[sink.all()]);
        bob.send(3, &[hello.all()]);
        hosts.run();
        let kinds: Vec<_> =
            hosts.sides[1].completions().iter().map(|c| (c.context, c.kind, c.status)).collect();
        let expected = [(1, CompletionKind::FastRegister), (3, CompletionKind::Send)];
        assert_eq!(kinds, expected.map(|(context, kind)| (context, kind, CompletionStatus::Success)));
        assert_eq!(fast.region.state(), KeyState::Valid);
        assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::Success)]);

        let alice = &hosts.sides[0];
        let data = pattern(length as usize, 4);
        let back = alice.sink(data.len());
        write_to(alice, 4, &data, registration.base, key);
        let read = SendOperation::Read { address: registration.base, key };
        alice.post(5, read, SendFlags::empty(), &[back.all()]).unwrap();
        hosts.run();
        assert_eq!(
            hosts.sides[0].outcomes(),
            [(4, CompletionStatus::Success), (5, CompletionStatus::Success)],
            "{mtu:?}"
        );
        assert_eq!(back.read(), data);
        let memory = fast.memory.read();
        let page = |number: usize| &memory[number * 4096..(number + 1) * 4096];
        let laid: Vec<_> = [&page(3)[1000..], page(0), page(4), &page(1)[..1000]].concat();
        assert_eq!(laid, data);
        assert_eq!(page(3)[..1000], [0; 1000]);
        assert_eq!(page(1)[1000..], [0; 3096]);
        assert_eq!(page(2), [0; 4096]);
    }
}

//= R-MR-44
//= R-MR-47
//= R-MR-42
#[test]
fn an_invalidated_region_is_inaccessible_until_registered_again() {
    let mut hosts = TwoHosts::connected(Options::default());
    let fast = Fast::new(&hosts.sides[1], 1);
    let (key, source) = (fast.region.key(), hosts.sides[0].source(&[0; 4]));
    for round in 0..1000u32 {
        let bob = &hosts.sides[1];
        fast.register(bob, 1);
        hosts.run();
        let alice = &hosts.sides[0];
        source.write(&round.to_le_bytes());
        let write = SendOperation::Write { address: 0xABCD_0000, key };
        alice.post(2, write, SendFlags::empty(), &[source.all()]).unwrap();
        hosts.run();
        invalidate(&hosts.sides[1], 3, key).unwrap();
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::Success)]);
        assert_eq!(
            hosts.sides[1].outcomes(),
            [(1, CompletionStatus::Success), (3, CompletionStatus::Success)]
        );
        assert_eq!(fast.region.state(), KeyState::Free);
        assert_eq!(fast.region.key(), key);
    }
    write_to(&hosts.sides[0], 4, b"late", 0xABCD_0000, key);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(4, CompletionStatus::RemoteAccess)]);
    assert_eq!(fast.memory.read()[..4], 999u32.to_le_bytes());
}

//= rocev2 §10
#[test]
fn the_consumer_chooses_the_low_key_byte_and_the_old_key_is_rejected() {
    for (variant, status) in [(0x77, CompletionStatus::Success), (0x00, CompletionStatus::RemoteAccess)] {
        let mut hosts = TwoHosts::connected(Options::default());
        let [alice, bob] = &hosts.sides;
        let fast = Fast::new(bob, 1);
        let index = fast.region.key();
        fast.register(bob, 1);
        invalidate(bob, 2, index).unwrap();
        register(bob, &bob.qp, 3, index | 0x77, SendFlags::empty(), &fast.registration()).unwrap();
        assert_eq!(fast.region.key(), index | 0x77);
        write_to(alice, 4, b"key?", 0xABCD_0000, index | variant);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(4, status)]);
    }
}

//= R-MR-41
//= R-MR-45
//= R-MR-46
//= R-QP-59
#[test]
fn a_request_on_a_key_in_the_wrong_state_ends_the_queue_pair() {
    type BreakIt = fn(&Side, &Fast);
    let twice = |side: &Side, fast: &Fast| {
        fast.register(side, 1);
        fast.register(side, 2);
    };
    let free = |side: &Side, fast: &Fast| {
        fast.register(side, 1);
        invalidate(side, 9, fast.region.key()).unwrap();
        invalidate(side, 2, fast.region.key()).unwrap();
    };
    let gone = |side: &Side, fast: &Fast| {
        fast.register(side, 1);
        assert!(side.engine.memory().deregister(&fast.region));
        invalidate(side, 2, fast.region.key()).unwrap();
    };
    let variant = |side: &Side, fast: &Fast| {
        fast.register(side, 1);
        invalidate(side, 2, fast.region.key() | 1).unwrap();
    };
    let cases: [(&str, BreakIt); 4] =
        [("twice", twice), ("free", free), ("gone", gone), ("variant", variant)];
    for (what, break_it) in cases {
        let mut hosts = TwoHosts::connected(Options::default());
        let [alice, bob] = &hosts.sides;
        let fast = Fast::new(alice, 1);
        break_it(alice, &fast);
        let remote = bob.shared(4);
        let posted = alice.post(
            3,
            SendOperation::Write { address: remote.address(0), key: remote.key() },
            SendFlags::empty(),
            &[alice.source(b"more").all()],
        );
        hosts.run();
        let alice = &hosts.sides[0];
        let outcomes = alice.outcomes();
        assert!(outcomes.contains(&(2, CompletionStatus::MemoryManagement)), "{what}: {outcomes:?}");
        assert_eq!(alice.qp.state(), QpState::Error, "{what}");
        // The request failed either when posted or when executed.
        assert_eq!(
            posted.is_ok(),
            outcomes.contains(&(3, CompletionStatus::Flushed)),
            "{what}: {outcomes:?}"
        );
        assert_eq!(remote.read(), [0; 4]);
    }
}

//= rocev2 §9
//= rocev2 §10
//= R-QP-77
//= R-MR-48
//= R-CQ-26
#[test]
fn send_invalidate_revokes_the_peers_access() {
    for size in [0, 4, 5000] {
        let mut hosts = TwoHosts::connected(Options::default());
        let bob = &hosts.sides[1];
        let (fast, sink) = (Fast::new(bob, 1), bob.sink(8000));
        let key = fast.region.key();
        for (round, solicited) in [(0, false), (1, true)] {
            let [alice, bob] = &hosts.sides;
            fast.register(bob, 1);
            bob.recv(2, &[sink.all()]);
            bob.engine.arm_cq(&bob.cq, roce::Arm::Solicited);
            let source = alice.source(&pattern(size, round));
            let flags = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
            alice.post(3, SendOperation::SendInvalidate { key }, flags, &[source.sge(0, size)]).unwrap();
            hosts.run();
            let sent: Vec<_> = hosts.sides[0].completions().iter().map(|c| (c.kind, c.status)).collect();
            assert_eq!(sent, [(CompletionKind::Send, CompletionStatus::Success)]);
            let received: Vec<_> =
                hosts.sides[1].completions().iter().map(|c| (c.kind, c.status, c.bytes)).collect();
            let invalidated = CompletionKind::ReceiveInvalidate { key };
            assert_eq!(
                received,
                [
                    (CompletionKind::FastRegister, CompletionStatus::Success, 0),
                    (invalidated, CompletionStatus::Success, size as u32)
                ]
            );
            assert_eq!(fast.region.state(), KeyState::Free);
            assert_eq!(
                hosts.sides[1].cq_notifications.len(),
                round as usize,
                "only the solicited message notifies"
            );
            assert_eq!(sink.read()[..size], pattern(size, round));
        }
        assert_eq!(hosts.sides[1].stat("rx_invalidations"), 2);
        write_to(&hosts.sides[0], 4, b"late", 0xABCD_0000, key);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(4, CompletionStatus::RemoteAccess)]);
    }
}

//= rocev2 §6
#[test]
fn a_duplicate_send_invalidate_is_executed_once() {
    let mut hosts = TwoHosts::connected(Options { duplication: 1000, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (fast, sink) = (Fast::new(bob, 1), bob.sink(8));
    let key = fast.region.key();
    fast.register(bob, 1);
    for context in 2..4 {
        bob.recv(context, &[sink.all()]);
    }
    let empty = SendFlags::empty();
    alice.post(5, SendOperation::SendInvalidate { key }, empty, &[alice.source(b"once").all()]).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(5, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[1].outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
    assert!(hosts.sides[1].stat("rx_duplicates") > 0);
    assert_eq!(hosts.sides[1].stat("rx_invalidations"), 1);
}

//= R-QP-78
//= R-QP-79
//= R-MR-50
#[test]
fn send_invalidate_of_other_keys_is_rejected() {
    type Prepare = fn(&mut TwoHosts) -> u32;
    let cases: [(&str, Prepare); 5] = [
        ("free", |hosts| Fast::new(&hosts.sides[1], 1).region.key()),
        ("another variant", |hosts| {
            let fast = Fast::new(&hosts.sides[1], 1);
            fast.register(&hosts.sides[1], 1);
            fast.region.key() | 5
        }),
        ("local only", |hosts| {
            let bob = &hosts.sides[1];
            let fast = Fast::new(bob, 1);
            let registration = Registration { access: Access::LOCAL_WRITE, ..fast.registration() };
            let key = fast.region.key();
            register(bob, &bob.qp, 1, key, SendFlags::empty(), &registration).unwrap();
            key
        }),
        ("another domain", |hosts| {
            let bob = &hosts.sides[1];
            bob.engine.memory().allocate_region(bob.engine.create_pd(), 1, true).unwrap().key()
        }),
        ("another queue pair's window", |hosts| {
            let [_, other] = hosts.connect_another(5);
            let bob = &hosts.sides[1];
            let (memory, window) =
                (bob.shared(8), bob.engine.memory().create_window(bob.pd, WindowType::Type2).unwrap());
            let binding = whole(&memory);
            let operation = SendOperation::Bind { key: window.key() };
            post(bob, &other, 1, operation, SendFlags::empty(), SendData::Binding(&binding)).unwrap();
            window.key()
        }),
    ];
    for (what, prepare) in cases {
        let mut hosts = TwoHosts::connected(Options::default());
        let key = prepare(&mut hosts);
        hosts.run();
        hosts.sides[1].completions();
        let [alice, bob] = &hosts.sides;
        let sink = bob.sink(8);
        bob.recv(7, &[sink.all()]);
        let source = alice.source(b"four");
        let operation = SendOperation::SendInvalidate { key };
        alice.post(2, operation, SendFlags::empty(), &[source.all()]).unwrap();
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::RemoteAccess)], "{what}");
        assert_eq!(hosts.sides[1].outcomes(), [(7, CompletionStatus::LocalAccess)], "{what}");
        assert_eq!(hosts.sides[1].stat("rx_invalidations"), 0, "{what}");
    }
}

/// A local invalidation waits for preceding requests, which may have to be retransmitted from the memory.
//= rocev2 §10
#[test]
fn an_invalidation_waits_for_those_before_it() {
    for seed in 20..40 {
        let mut hosts = TwoHosts::connected(Options { seed, ..Options::default() });
        let [alice, bob] = &hosts.sides;
        let (fast, target) = (Fast::new(alice, 4), bob.shared(4 * 4096));
        let data = pattern(4 * 4096, seed);
        fast.memory.write(&data);
        hosts.options.loss = 300;
        for round in 0..4 {
            let alice = &hosts.sides[0];
            fast.register(alice, 10 * round);
            let sge = roce::Sge { address: 0xABCD_0000, length: 4 * 4096, key: fast.region.key() };
            alice.write(10 * round + 1, &[sge], &target, 0);
            alice.post(10 * round + 2, SendOperation::Send, SendFlags::SILENT, &[]).unwrap();
            hosts.sides[1].recv(round, &[]);
            invalidate(&hosts.sides[0], 10 * round + 3, fast.region.key()).unwrap();
            hosts.run();
            let expected = [0, 1, 3].map(|n| (10 * round + n, CompletionStatus::Success));
            assert_eq!(hosts.sides[0].outcomes(), expected, "seed {seed}");
        }
        assert_eq!(target.read(), data);
        assert!(hosts.sides[0].stat("retransmissions") > 0);
    }
}

//= R-CQ-21
//= R-CQ-24
//= R-CQ-30
#[test]
fn local_requests_complete_in_posting_order() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (fast, target, back) = (Fast::new(alice, 1), bob.shared(9000), alice.sink(9000));
    let source = alice.source(&pattern(9000, 1));
    let key = fast.region.key();
    alice.write(1, &[source.all()], &target, 0);
    fast.register(alice, 2);
    alice.read(3, &[back.all()], &target, 0);
    invalidate(alice, 4, key).unwrap();
    register(alice, &alice.qp, 5, key, SendFlags::SILENT, &fast.registration()).unwrap();
    alice.write(6, &[source.all()], &target, 0);
    invalidate(alice, 7, key).unwrap();
    assert_eq!(alice.outcomes(), [], "the first request was not sent yet");
    hosts.run();
    let done: Vec<_> = hosts.sides[0].completions().iter().map(|c| (c.context, c.kind)).collect();
    let expected = [
        (1, CompletionKind::Write),
        (2, CompletionKind::FastRegister),
        (3, CompletionKind::Read),
        (4, CompletionKind::Invalidate),
        (6, CompletionKind::Write),
        (7, CompletionKind::Invalidate),
    ];
    assert_eq!(done, expected);
    assert_eq!(back.read(), pattern(9000, 1));
    assert!(hosts.sides[0].qp.is_drained());
}

/// And so the requests behind it do not.
#[test]
fn a_registration_does_not_wait_for_acknowledgements() {
    let hosts = TwoHosts::connected(Options::default());
    let alice = &hosts.sides[0];
    let (fast, source) = (Fast::new(alice, 1), alice.source(b"data"));
    alice.send(1, &[source.all()]);
    let key = fast.region.key();
    // A fence keeps it in order.
    register(alice, &alice.qp, 2, key, SendFlags::FENCE, &fast.registration()).unwrap();
    alice.send(3, &[source.all()]);
    assert_eq!(alice.transmit(hosts.now, 64).len(), 2);
}

//= R-QP-28
#[test]
fn a_fenced_registration_waits_for_reads() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (fast, target, back) = (Fast::new(alice, 1), bob.shared(64), alice.sink(64));
    alice.read(1, &[back.all()], &target, 0);
    register(alice, &alice.qp, 2, fast.region.key(), SendFlags::FENCE, &fast.registration()).unwrap();
    hosts.drive();
    assert_eq!(fast.region.state(), KeyState::Free);
    hosts.run();
    assert_eq!(fast.region.state(), KeyState::Valid);
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
}

//= R-LAM-26
//= R-MR-57
#[test]
fn access_to_unmapped_pages_fails() {
    let mut hosts = TwoHosts::connected(Options::default());
    let fast = Fast::new(&hosts.sides[1], 2);
    fast.register(&hosts.sides[1], 1);
    assert!(hosts.sides[1].engine.memory().unmap_logical(fast.pages[0]));
    write_to(&hosts.sides[0], 2, b"gone", 0xABCD_0000, fast.region.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::RemoteAccess)]);
    assert_eq!(fast.memory.read()[..4], [0; 4]);
}

//= R-MR-31
//= R-MR-32
//= R-MR-33
//= R-MR-34
//= R-MR-35
//= R-MR-36
//= R-MR-38
//= R-MR-52
#[test]
fn invalid_registrations_fail_when_posted() {
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    let fast = Fast::new(side, 2);
    let good = Registration { offset: 24, base: 24, length: 2 * PAGE - 24, ..fast.registration() };
    let three = [fast.pages[0]; 3];
    let odd = [fast.pages[0], fast.pages[1] + 512];
    let post = |key, registration: &Registration<'_>| {
        register(side, &side.qp, 1, key, SendFlags::empty(), registration)
    };
    let bad: [(&str, Registration<'_>); 10] = [
        ("no pages", Registration { pages: &[], ..good }),
        ("too many pages", Registration { pages: &three, ..good }),
        ("an unaligned page", Registration { pages: &odd, ..good }),
        ("an offset of a page", Registration { offset: 4096, base: 4096, length: 1, ..good }),
        ("too long", Registration { length: 2 * PAGE - 23, ..good }),
        ("empty", Registration { length: 0, ..good }),
        ("a base that does not fit the offset", Registration { base: 23, ..good }),
        ("base 0 with an offset", Registration { base: 0, ..good }),
        ("a range that wraps", Registration { base: u64::MAX - PAGE + 25, ..good }),
        ("remote write without local", Registration { access: Access::REMOTE_WRITE, ..good }),
    ];
    for (what, registration) in bad {
        assert_eq!(post(fast.region.key(), &registration), Err(PostError::Invalid), "{what}");
    }
    assert_eq!(post(0x0012_3400, &good), Err(PostError::Invalid), "unknown key");
    let other = side.engine.memory().allocate_region(side.engine.create_pd(), 2, true).unwrap();
    assert_eq!(post(other.key(), &good), Err(PostError::Invalid), "another domain");
    let local = side.engine.memory().allocate_region(side.pd, 2, false).unwrap();
    assert_eq!(post(local.key(), &good), Err(PostError::NoRight));
    assert_eq!(post(side.shared(8).key(), &good), Err(PostError::NotAllowed), "a normal region");
    assert_eq!(post(local.key(), &Registration { access: Access::LOCAL_WRITE, ..good }), Ok(()));
    assert_eq!(post(fast.region.key(), &good), Ok(()));
    assert_eq!(side.outcomes().len(), 2);
    for pages in [0, (1 << 16) + 1] {
        assert!(side.engine.memory().allocate_region(side.pd, pages, true).is_err());
    }
}

//= R-MR-43
//= R-QP-34
#[test]
fn requests_with_the_wrong_kind_of_data_fail_when_posted() {
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    let (fast, memory) = (Fast::new(side, 1), side.shared(8));
    let key = fast.region.key();
    assert_eq!(invalidate(side, 1, memory.key()), Err(PostError::NotAllowed));
    let registration = fast.registration();
    let sges = [memory.all()];
    let data = [SendData::Sges(&sges), SendData::Inline(&[]), SendData::Registration(&registration)];
    for (number, data) in data.into_iter().enumerate() {
        let flags = SendFlags::empty();
        let mut operations = vec![SendOperation::Invalidate { key }, SendOperation::Bind { key }];
        operations.push(if number == 2 { SendOperation::Send } else { SendOperation::FastRegister { key } });
        for operation in operations {
            let refused = post(side, &side.qp, 1, operation, flags, data);
            assert_eq!(refused, Err(PostError::NotAllowed), "{operation:?} {data:?}");
        }
    }
    assert_eq!(side.outcomes(), []);
}

//= R-QP-18
//= R-QP-39
#[test]
fn a_flushed_registration_leaves_the_region_unchanged() {
    let mut hosts = TwoHosts::connected(Options { send_depth: 2, ..Options::default() });
    let [other, _] = hosts.connect_another(5);
    let [alice, bob] = &hosts.sides;
    let (fast, target) = (Fast::new(alice, 1), bob.shared(4));
    let (key, back) = (fast.region.key(), alice.sink(4));
    alice.read(1, &[back.all()], &target, 0);
    register(alice, &alice.qp, 2, key, SendFlags::FENCE, &fast.registration()).unwrap();
    // The send queue is full: the registration is not recorded.
    let third = Fast::new(alice, 1);
    let no_room =
        register(alice, &alice.qp, 3, third.region.key(), SendFlags::empty(), &third.registration());
    assert_eq!(no_room, Err(PostError::QueueFull));
    assert_eq!(fast.region.state(), KeyState::Free);
    alice.engine.flush(&alice.qp);
    assert_eq!(alice.outcomes(), [(1, CompletionStatus::Flushed), (2, CompletionStatus::Flushed)]);
    for (context, key, fast) in [(4, key, &fast), (5, third.region.key(), &third)] {
        register(alice, &other, context, key, SendFlags::empty(), &fast.registration()).unwrap();
    }
    assert_eq!(alice.outcomes(), [(4, CompletionStatus::Success), (5, CompletionStatus::Success)]);
}

/// A region has room for one queued registration, even if a second one would be valid when executed.
//= R-QP-18
//= R-MR-41
#[test]
fn a_second_registration_fails_while_one_is_queued_and_the_connection_stays() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [other, _] = hosts.connect_another(5);
    let [alice, bob] = &hosts.sides;
    let (fast, target) = (Fast::new(alice, 1), bob.shared(9000));
    let (key, source) = (fast.region.key(), alice.source(&pattern(9000, 1)));
    fast.register(alice, 1);
    alice.write(2, &[source.all()], &target, 0);
    invalidate(alice, 3, key).unwrap();
    fast.register(alice, 4);
    alice.write(5, &[source.all()], &target, 0);
    invalidate(alice, 6, key).unwrap();
    for qp in [&alice.qp, &other] {
        let again = register(alice, qp, 7, key, SendFlags::empty(), &fast.registration());
        assert_eq!(again, Err(PostError::QueueFull), "its predecessor is still queued");
    }
    hosts.run();
    let alice = &hosts.sides[0];
    assert_eq!(alice.outcomes(), [1, 2, 3, 4, 5, 6].map(|context| (context, CompletionStatus::Success)));
    fast.register(alice, 7);
    assert_eq!(alice.outcomes(), [(7, CompletionStatus::Success)]);
    assert_eq!(fast.region.state(), KeyState::Valid);
    assert_eq!(alice.qp.state(), QpState::Rts);
}

//= R-MR-51
#[test]
fn every_queue_pair_of_the_domain_can_use_a_registered_region() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [other, _] = hosts.connect_another(5);
    let fast = Fast::new(&hosts.sides[1], 1);
    fast.register(&hosts.sides[1], 1);
    let alice = &hosts.sides[0];
    let source = alice.source(b"mine");
    let operation = SendOperation::Write { address: 0xABCD_0000, key: fast.region.key() };
    post(alice, &other, 2, operation, SendFlags::empty(), SendData::Sges(&[source.all()])).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::Success)]);
    assert_eq!(fast.memory.read()[..4], *b"mine");
}

//= R-CLOSE-27
#[test]
fn a_deregistered_fast_region_is_inaccessible() {
    let mut hosts = TwoHosts::connected(Options::default());
    let fast = Fast::new(&hosts.sides[1], 1);
    fast.register(&hosts.sides[1], 1);
    assert!(hosts.sides[1].engine.memory().deregister(&fast.region));
    assert!(!hosts.sides[1].engine.memory().deregister(&fast.region));
    write_to(&hosts.sides[0], 2, b"gone", 0xABCD_0000, fast.region.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::RemoteAccess)]);
}
