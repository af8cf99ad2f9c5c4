// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that drivers share by their names (WDK, `IoCreateNotificationEvent`, `IoCreateSynchronizationEvent`).

use crate::on_host::{correct, counted, memory, violates, wait};
use ndk_abi::nt::{KEVENT, STATUS_SUCCESS, STATUS_TIMEOUT, UNICODE_STRING};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::{
        dispatcher::{KeClearEvent, KeReadStateEvent, KeSetEvent},
        handles::ZwClose,
        named_events::{IoCreateNotificationEvent, IoCreateSynchronizationEvent},
    },
};

type Create = extern "efiapi" fn(Guest<UNICODE_STRING>, Guest<usize>) -> Guest<KEVENT>;

fn created(create: Create, of: Guest<UNICODE_STRING>) -> (Guest<KEVENT>, usize) {
    let mut handle = 0_usize;
    let event = create(of, Guest::new(&raw mut handle));
    (event, handle)
}

#[test]
fn openers_of_a_name_share_one_event_until_the_last_closes_it() {
    correct(|host| {
        let of = counted(host, "\\BaseNamedObjects\\shared", 0);
        let (first, one) = created(IoCreateNotificationEvent, of);
        assert_eq!(KeReadStateEvent(first), 1, "a new event is signaled");
        KeClearEvent(first);
        let (second, two) = created(IoCreateNotificationEvent, of);
        assert_eq!((second, KeReadStateEvent(second)), (first, 0), "it is opened as it is");
        assert_ne!(one, two);
        assert_eq!(ZwClose(one), STATUS_SUCCESS);
        KeSetEvent(second, 0, 0);
        assert_eq!(wait(first.address(), Some(0)), STATUS_SUCCESS, "a handle is open");
        assert_eq!(wait(first.address(), Some(0)), STATUS_SUCCESS, "a notification event stays signaled");
        KeClearEvent(first);
        assert_eq!(ZwClose(two), STATUS_SUCCESS);
        let (third, three) = created(IoCreateNotificationEvent, of);
        assert_eq!(KeReadStateEvent(third), 1, "another event");
        assert_eq!(ZwClose(three), STATUS_SUCCESS);
    });
}

#[test]
fn events_differ_by_name_and_kind() {
    correct(|host| {
        let of = counted(host, "\\BaseNamedObjects\\one", 0);
        let (event, handle) = created(IoCreateSynchronizationEvent, of);
        assert_eq!(wait(event.address(), Some(0)), STATUS_SUCCESS);
        assert_eq!(wait(event.address(), Some(0)), STATUS_TIMEOUT, "the first wait has reset it");
        assert!(created(IoCreateNotificationEvent, of).0.is_null(), "of the other kind");
        let others = [counted(host, "\\BaseNamedObjects\\other", 0), Guest::null(), Guest::null()];
        let others = others.map(|of| created(IoCreateSynchronizationEvent, of));
        let mut all: Vec<_> = others.iter().map(|(event, _)| event.address()).collect();
        all.push(event.address());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4, "without a name, each is an event of its own");
        for (_, handle) in others {
            assert_eq!(ZwClose(handle), STATUS_SUCCESS);
        }
        let unused: Guest<usize> = memory(host);
        host.low_resources.fail_nth(0);
        assert!(IoCreateSynchronizationEvent(of, unused).is_null());
        assert_eq!(unused.read(), 0);
        assert_eq!(ZwClose(handle), STATUS_SUCCESS);
    });
}

#[test]
fn use_of_an_event_whose_last_handle_is_closed_is_reported() {
    violates(BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "of a mapping that was removed", |host| {
        let (event, handle) = created(IoCreateNotificationEvent, counted(host, "closed", 0));
        ZwClose(handle);
        KeClearEvent(event);
    });
}
