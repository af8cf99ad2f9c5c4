// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: binding, access rights, and which queue pairs may use them.

use roce::{
    Access, Binding, CompletionKind, CompletionStatus, KeyState, MemoryWindow, PostError, SendData,
    SendFlags, SendOperation, WindowType,
};

use crate::keys::{Fast, invalidate, post, write_to};
use crate::two_hosts::{Memory, Options, Side, TwoHosts};

pub fn bind(side: &Side, context: u64, key: u32, binding: &Binding) -> Result<(), PostError> {
    let flags = SendFlags::empty();
    post(side, &side.qp, context, SendOperation::Bind { key }, flags, SendData::Binding(binding))
}

/// Returns a binding of the whole region with remote read and write access.
pub fn whole(memory: &Memory) -> Binding {
    Binding {
        region: memory.key(),
        address: memory.address(0),
        length: memory.region.length(),
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

fn window(side: &Side) -> MemoryWindow {
    side.engine.memory().create_window(side.pd, WindowType::Type2).unwrap()
}

//= R-MR-61
//= R-MR-65
//= rocev2 §10
#[test]
fn a_window_grants_access_to_a_part_of_a_region() {
    let mut hosts = TwoHosts::connected(Options::default());
    let bob = &hosts.sides[1];
    // The region itself grants no remote access.
    let (memory, window) = (bob.memory(64, Access::LOCAL_WRITE), window(bob));
    let binding = Binding { address: memory.address(8), length: 16, ..whole(&memory) };
    let sink = bob.sink(8);
    for round in 0..3 {
        let [alice, bob] = &hosts.sides;
        bind(bob, 1, window.key() & !0xFF | round, &binding).unwrap();
        assert_eq!(memory.region.windows(), 1);
        assert_eq!(window.key() & 0xFF, round);
        bob.recv(2, &[sink.all()]);
        let key = window.key();
        write_to(alice, 3, b"sixteen bytes ok", binding.address, key);
        alice.post(4, SendOperation::SendInvalidate { key }, SendFlags::empty(), &[]).unwrap();
        hosts.run();
        assert_eq!(
            hosts.sides[0].outcomes(),
            [(3, CompletionStatus::Success), (4, CompletionStatus::Success)]
        );
        let done: Vec<_> = hosts.sides[1].completions().iter().map(|c| (c.kind, c.status)).collect();
        let invalidated = CompletionKind::ReceiveInvalidate { key };
        assert_eq!(
            done,
            [(CompletionKind::Bind, CompletionStatus::Success), (invalidated, CompletionStatus::Success)]
        );
        assert_eq!(memory.region.windows(), 0);
    }
    assert_eq!(memory.read()[8..24], *b"sixteen bytes ok");
    write_to(&hosts.sides[0], 5, b"late", binding.address, window.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(5, CompletionStatus::RemoteAccess)]);
}

//= R-QP-18
//= R-MR-66
#[test]
fn a_second_bind_fails_while_one_is_queued_and_the_connection_stays() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (memory, target, window) = (bob.shared(8), alice.shared(8), window(bob));
    bob.write(1, &[bob.source(b"at first").all()], &target, 0);
    bind(bob, 2, window.key(), &whole(&memory)).unwrap();
    invalidate(bob, 3, window.key()).unwrap();
    assert_eq!(bind(bob, 4, window.key(), &whole(&memory)), Err(PostError::QueueFull));
    hosts.run();
    let bob = &hosts.sides[1];
    assert_eq!(bob.outcomes(), [1, 2, 3].map(|context| (context, CompletionStatus::Success)));
    bind(bob, 4, window.key(), &whole(&memory)).unwrap();
    assert_eq!(bob.outcomes(), [(4, CompletionStatus::Success)]);
    assert_eq!(window.state(), KeyState::Valid);
}

//= R-MR-58
//= R-MR-63
//= R-MR-64
#[test]
fn a_window_grants_only_its_range_and_rights_to_one_peer() {
    let cases: [(&str, bool, u64, Access); 5] = [
        ("as bound", true, 8, Access::REMOTE_READ),
        ("before it", false, 7, Access::REMOTE_READ),
        ("past it", false, 21, Access::REMOTE_READ),
        ("for writing", false, 8, Access::REMOTE_WRITE),
        ("by another queue pair", false, 8, Access::empty()),
    ];
    for (what, allowed, at, right) in cases {
        let mut hosts = TwoHosts::connected(Options::default());
        let [other, _] = hosts.connect_another(5);
        let [alice, bob] = &hosts.sides;
        let (memory, readable, writable) = (bob.shared(64), window(bob), window(bob));
        let binding =
            Binding { address: memory.address(8), length: 16, access: Access::REMOTE_READ, ..whole(&memory) };
        bind(bob, 1, readable.key(), &binding).unwrap();
        bind(bob, 2, writable.key(), &Binding { access: Access::REMOTE_WRITE, ..binding }).unwrap();
        assert_eq!(memory.region.windows(), 2);
        let (address, key) = (memory.address(at as usize), readable.key());
        let local = alice.shared(4);
        let operation = match right {
            Access::REMOTE_WRITE => SendOperation::Write { address, key },
            _ => SendOperation::Read { address, key },
        };
        let qp = if right.is_empty() { &other } else { &alice.qp };
        post(alice, qp, 3, operation, SendFlags::empty(), SendData::Sges(&[local.all()])).unwrap();
        hosts.run();
        let expected = if allowed { CompletionStatus::Success } else { CompletionStatus::RemoteAccess };
        assert_eq!(hosts.sides[0].outcomes(), [(3, expected)], "{what}");
        assert!(hosts.sides[1].engine.memory().destroy_window(&writable));
        assert_eq!(memory.region.windows(), 1);
    }
}

//= R-MR-59
//= R-MR-62
#[test]
fn invalid_binds_fail_when_posted() {
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    let (memory, read_only, window) = (side.shared(64), side.source(&[0; 64]), window(side));
    let good = whole(&memory);
    let bad: [(&str, Binding, PostError); 5] = [
        ("a local right", Binding { access: Access::all(), ..good }, PostError::Invalid),
        ("empty", Binding { length: 0, ..good }, PostError::Invalid),
        ("too long", Binding { length: 65, ..good }, PostError::Invalid),
        ("before the region", Binding { address: good.address - 1, ..good }, PostError::Invalid),
        ("remote write without local write", whole(&read_only), PostError::NoRight),
    ];
    for (what, binding, error) in bad {
        assert_eq!(bind(side, 1, window.key(), &binding), Err(error), "{what}");
    }
    assert_eq!(bind(side, 1, memory.key(), &good), Err(PostError::NotAllowed), "no window");
    assert_eq!(bind(side, 2, window.key(), &good), Ok(()));
    assert_eq!(side.outcomes(), [(2, CompletionStatus::Success)]);
}

//= R-MR-66
//= R-MR-67
#[test]
fn binds_that_fail_when_executed_end_the_queue_pair() {
    type Make = fn(&Side) -> Binding;
    let fast = |side: &Side| {
        let fast = Fast::new(side, 1);
        Binding { region: fast.region.key(), address: 0, length: 1, access: Access::REMOTE_READ }
    };
    let gone = |side: &Side| {
        let memory = side.shared(8);
        let binding = whole(&memory);
        assert!(side.engine.memory().deregister(&memory.region));
        binding
    };
    let foreign = |side: &Side| whole(&side.memory_of(side.engine.create_pd(), 8, Access::all()));
    let cases: [(&str, Make); 3] = [("fast", fast), ("gone", gone), ("foreign", foreign)];
    for (what, make) in cases {
        let hosts = TwoHosts::connected(Options::default());
        let side = &hosts.sides[0];
        let window = window(side);
        bind(side, 1, window.key(), &make(side)).unwrap();
        assert_eq!(side.outcomes(), [(1, CompletionStatus::MemoryManagement)], "{what}");
        assert_eq!(window.state(), KeyState::Free, "{what}");
    }
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    let (memory, window) = (side.shared(8), window(side));
    bind(side, 1, window.key(), &whole(&memory)).unwrap();
    bind(side, 2, window.key(), &Binding { length: 1, ..whole(&memory) }).unwrap();
    assert_eq!(side.outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::MemoryManagement)]);
    assert_eq!(memory.region.windows(), 1);
}

//= R-MR-21
#[test]
fn a_window_over_a_deregistered_region_grants_no_access() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (memory, window) = (bob.shared(8), window(bob));
    let binding = whole(&memory);
    bind(bob, 1, window.key(), &binding).unwrap();
    assert!(bob.engine.memory().deregister(&memory.region));
    write_to(alice, 2, b"gone", binding.address, window.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::RemoteAccess)]);
    assert_eq!(memory.read(), [0; 8]);
    assert!(hosts.sides[1].engine.memory().destroy_window(&window));
    assert!(!hosts.sides[1].engine.memory().destroy_window(&window));
}

#[test]
fn a_window_without_rights_grants_no_access() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (memory, window) = (bob.shared(8), window(bob));
    bind(bob, 1, window.key(), &Binding { access: Access::empty(), ..whole(&memory) }).unwrap();
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::Success)]);
    write_to(alice, 2, b"refused", memory.address(0), window.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::RemoteAccess)]);
    assert_eq!(memory.read(), [0; 8]);
}

fn type_1(side: &Side) -> MemoryWindow {
    side.engine.memory().create_window(side.pd, WindowType::Type1).unwrap()
}

#[test]
fn a_window_of_type_1_is_for_the_peers_of_all_queue_pairs() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [other, _] = hosts.connect_another(5);
    let [alice, bob] = &hosts.sides;
    let (memory, window) = (bob.memory(8, Access::LOCAL_WRITE), type_1(bob));
    bind(bob, 1, window.key(), &whole(&memory)).unwrap();
    let (address, key, source) = (memory.address(0), window.key(), alice.source(b"for both"));
    let write = SendOperation::Write { address, key };
    post(alice, &other, 2, write, SendFlags::empty(), SendData::Sges(&[source.all()])).unwrap();
    hosts.run();
    assert_eq!(memory.read(), *b"for both");
    write_to(&hosts.sides[0], 3, b"also 2nd", address, key);
    hosts.run();
    let done = [2, 3].map(|context| (context, CompletionStatus::Success));
    assert_eq!(hosts.sides[0].outcomes(), done);
    assert_eq!(memory.read(), *b"also 2nd");
}

#[test]
fn a_bind_of_type_1_replaces_the_one_before_and_one_of_no_bytes_ends_it() {
    let mut hosts = TwoHosts::connected(Options::default());
    let bob = &hosts.sides[1];
    let (first, second, window) = (bob.shared(8), bob.shared(8), type_1(bob));
    let [key, next, last] = [0, 1, 2].map(|low| window.key() | low);
    bind(bob, 1, key, &whole(&first)).unwrap();
    bind(bob, 2, next, &whole(&second)).unwrap();
    assert_eq!((first.region.windows(), second.region.windows()), (0, 1));
    assert_eq!((window.key(), window.state()), (next, KeyState::Valid));
    write_to(&hosts.sides[0], 1, b"replaced", second.address(0), next);
    hosts.run();
    assert_eq!(second.read(), *b"replaced");
    let bob = &hosts.sides[1];
    let nothing = Binding { region: 0, address: 0, length: 0, access: Access::empty() };
    bind(bob, 3, last, &nothing).unwrap();
    // Also of a window that is not bound, and if a region is named.
    bind(bob, 4, last, &Binding { region: second.key(), ..nothing }).unwrap();
    assert_eq!(bob.outcomes(), [1, 2, 3, 4].map(|context| (context, CompletionStatus::Success)));
    assert_eq!((second.region.windows(), window.state()), (0, KeyState::Free));
    write_to(&hosts.sides[0], 2, b"too late", second.address(0), next);
    hosts.run();
    let [alice, bob] = &hosts.sides;
    assert_eq!(alice.outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::RemoteAccess)]);
    assert!(bob.engine.memory().destroy_window(&window));
    assert_eq!(second.region.windows(), 0);
}

#[test]
fn no_request_invalidates_a_window_of_type_1() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (memory, window) = (bob.shared(8), type_1(bob));
    bind(bob, 1, window.key(), &whole(&memory)).unwrap();
    assert_eq!(invalidate(bob, 2, window.key()), Err(PostError::NotAllowed));
    let sink = bob.sink(8);
    bob.recv(3, &[sink.all()]);
    let invalidation = SendOperation::SendInvalidate { key: window.key() };
    alice.post(4, invalidation, SendFlags::empty(), &[]).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(4, CompletionStatus::RemoteAccess)]);
    assert_eq!(window.state(), KeyState::Valid);
}

#[test]
fn a_bind_of_type_1_that_fails_leaves_no_binding() {
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    let (memory, gone, window) = (side.shared(8), side.shared(8), type_1(side));
    bind(side, 1, window.key(), &whole(&memory)).unwrap();
    let binding = whole(&gone);
    assert!(side.engine.memory().deregister(&gone.region));
    bind(side, 2, window.key(), &binding).unwrap();
    assert_eq!(side.outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::MemoryManagement)]);
    assert_eq!((memory.region.windows(), window.state()), (0, KeyState::Free));
}
