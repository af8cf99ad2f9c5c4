// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions that are registered anew, with the keys that they have.

use roce::{Access, CompletionStatus, ReregisterError, WindowType};

use crate::keys::write_to;
use crate::two_hosts::{Options, TwoHosts};
use crate::windows::{bind, whole};

#[test]
fn a_region_has_its_keys_for_other_memory() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let former = bob.shared(8);
    let memory = bob.reregister(&former, bob.pd, 32, Access::all()).unwrap();
    assert_eq!(memory.key(), former.key());
    assert_eq!((memory.region.base(), memory.region.length()), (former.address(0) + 0x1_0000, 32));
    write_to(alice, 1, b"sixteen bytes ok", memory.address(16), memory.key());
    // Also by the local key.
    bob.write(2, &[memory.sge(16, 8)], &alice.shared(8), 0);
    hosts.run();
    let [alice, bob] = &hosts.sides;
    assert_eq!(alice.outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(bob.outcomes(), [(2, CompletionStatus::Success)]);
    assert_eq!(memory.read()[16..], *b"sixteen bytes ok");
    assert_eq!(former.read(), [0; 8]);
    write_to(alice, 3, b"former", former.address(0), former.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(3, CompletionStatus::RemoteAccess)]);
    assert_eq!(former.read(), [0; 8]);
}

#[test]
fn rights_and_protection_domain_of_a_region_change() {
    type Change = (&'static str, Access, bool, CompletionStatus);
    let cases: [Change; 3] = [
        ("more rights", Access::all(), true, CompletionStatus::Success),
        ("no right", Access::LOCAL_WRITE, true, CompletionStatus::RemoteAccess),
        ("another protection domain", Access::all(), false, CompletionStatus::RemoteAccess),
    ];
    for (what, access, is_own, expected) in cases {
        let mut hosts = TwoHosts::connected(Options::default());
        let [alice, bob] = &hosts.sides;
        let former = bob.memory(8, if access == Access::all() { Access::empty() } else { Access::all() });
        let pd = if is_own { bob.pd } else { bob.engine.create_pd() };
        let memory = bob.reregister(&former, pd, 8, access).unwrap();
        assert_eq!(memory.region.access(), access);
        write_to(alice, 1, b"by alice", memory.address(0), memory.key());
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(1, expected)], "{what}");
    }
}

#[test]
fn a_region_that_cannot_be_registered_anew_stays_as_it_was() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let memory = bob.shared(8);
    let no_right = Access::REMOTE_WRITE;
    assert_eq!(bob.reregister(&memory, bob.pd, 8, no_right).err(), Some(ReregisterError::Invalid));
    assert_eq!(bob.reregister(&memory, bob.pd, 0, Access::all()).err(), Some(ReregisterError::Invalid));
    let window = bob.engine.memory().create_window(bob.pd, WindowType::Type2).unwrap();
    bind(bob, 1, window.key(), &whole(&memory)).unwrap();
    assert_eq!(bob.reregister(&memory, bob.pd, 8, Access::all()).err(), Some(ReregisterError::Bound));
    assert!(bob.engine.memory().destroy_window(&window));
    write_to(alice, 1, b"by alice", memory.address(0), memory.key());
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(memory.read(), *b"by alice");
    let bob = &hosts.sides[1];
    let mut fast = bob.shared(8);
    fast.region = bob.engine.memory().allocate_region(bob.pd, 1, true).unwrap();
    assert_eq!(bob.reregister(&fast, bob.pd, 8, Access::all()).err(), Some(ReregisterError::Invalid));
    // The region, deregistered by either of its handles, is no longer one.
    let other = bob.reregister(&memory, bob.pd, 8, Access::all()).unwrap();
    assert!(bob.engine.memory().deregister(&memory.region));
    assert!(!bob.engine.memory().deregister(&other.region));
    assert_eq!(bob.reregister(&other, bob.pd, 8, Access::all()).err(), Some(ReregisterError::Invalid));
}
