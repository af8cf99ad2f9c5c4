// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that drivers share by their names (WDK, `IoCreateNotificationEvent`, `IoCreateSynchronizationEvent`, `ZwCreateEvent`).

use crate::on_host::{correct, counted, memory, violates, wait};
use ndk_abi::nt::{
    EVENT_TYPE, KEVENT, OBJECT_ATTRIBUTES, STATUS_INVALID_PARAMETER_4, STATUS_OBJECT_NAME_COLLISION,
    STATUS_OBJECT_NAME_EXISTS, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_SYNTAX_BAD,
    STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, STATUS_TIMEOUT, UNICODE_STRING,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{
        dispatcher::{KeClearEvent, KeReadStateEvent, KeSetEvent},
        handles::ZwClose,
        named_events::{
            IoCreateNotificationEvent, IoCreateSynchronizationEvent, ZwCreateEvent, ZwOpenEvent, ZwSetEvent,
        },
        thread_objects::{ObReferenceObjectByHandle, ObfDereferenceObject},
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

/// Object attributes with this name.
fn attributes(host: &Host, name: &str, flags: u32) -> Guest<OBJECT_ATTRIBUTES> {
    let attributes = memory::<OBJECT_ATTRIBUTES>(host);
    attributes.write(OBJECT_ATTRIBUTES {
        Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).unwrap(),
        ObjectName: counted(host, name, 0).as_ptr(),
        Attributes: flags,
        ..OBJECT_ATTRIBUTES::zeroed()
    });
    attributes
}

fn zw_create(host: &Host, of: Guest<OBJECT_ATTRIBUTES>, kind: EVENT_TYPE) -> (i32, usize) {
    let handle: Guest<usize> = memory(host);
    (ZwCreateEvent(handle, 0, of, kind, 0), handle.read())
}

const NAME: &str = "\\BaseNamedObjects\\handled";
const OPENIF: u32 = 0x80;

#[test]
fn event_of_a_handle_is_waited_for_by_its_object_and_lives_as_long_as_a_reference() {
    correct(|host| {
        let of = attributes(host, NAME, 0);
        let (status, one) = zw_create(host, of, EVENT_TYPE::SynchronizationEvent);
        assert_eq!(status, STATUS_SUCCESS);
        let object: Guest<usize> = memory(host);
        assert_eq!(ObReferenceObjectByHandle(one, 0, 0, 0, object, 0), STATUS_SUCCESS);
        let event = object.read();
        assert_eq!(wait(event, Some(0)), STATUS_TIMEOUT, "as it was made");
        let (two, previous): (Guest<usize>, Guest<i32>) = (memory(host), memory(host));
        assert_eq!(ZwOpenEvent(two, 0, of), STATUS_SUCCESS);
        assert_eq!(ZwSetEvent(two.read(), previous), STATUS_SUCCESS);
        assert_eq!(ZwSetEvent(one, previous), STATUS_SUCCESS);
        assert_eq!(previous.read(), 1);
        assert_eq!((ZwClose(one), ZwClose(two.read())), (STATUS_SUCCESS, STATUS_SUCCESS));
        assert_eq!(wait(event, Some(0)), STATUS_SUCCESS, "a reference is left");
        assert_eq!(wait(event, Some(0)), STATUS_TIMEOUT);
        assert_eq!(ObfDereferenceObject(event), 0);
        assert_eq!(ZwOpenEvent(two, 0, of), STATUS_OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn handles_of_events_are_refused_by_name_kind_and_type() {
    correct(|host| {
        let (notification, synchronization) =
            (EVENT_TYPE::NotificationEvent, EVENT_TYPE::SynchronizationEvent);
        let (_, first) = zw_create(host, attributes(host, NAME, 0), notification);
        let again = zw_create(host, attributes(host, NAME, 0), notification);
        assert_eq!(again.0, STATUS_OBJECT_NAME_COLLISION);
        let open_if = attributes(host, NAME, OPENIF);
        assert_eq!(zw_create(host, open_if, synchronization).0, STATUS_OBJECT_TYPE_MISMATCH);
        let (status, second) = zw_create(host, open_if, notification);
        assert_eq!(status, STATUS_OBJECT_NAME_EXISTS);
        assert_eq!(zw_create(host, open_if, EVENT_TYPE(2)).0, STATUS_INVALID_PARAMETER_4);
        let relative = attributes(host, "handled", 0);
        assert_eq!(zw_create(host, relative, notification).0, STATUS_OBJECT_PATH_SYNTAX_BAD);
        let object: Guest<usize> = memory(host);
        let type_of_threads = 0x00fd_0000_0000_4000;
        let refused = ObReferenceObjectByHandle(first, 0, type_of_threads, 0, object, 0);
        assert_eq!(refused, STATUS_OBJECT_TYPE_MISMATCH);
        let (status, unnamed) = zw_create(host, Guest::null(), notification);
        assert_eq!(status, STATUS_SUCCESS);
        for handle in [first, second, unnamed] {
            assert_eq!(ZwClose(handle), STATUS_SUCCESS);
        }
    });
}
