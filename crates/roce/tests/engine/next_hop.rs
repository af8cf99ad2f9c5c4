// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer, or the gateway to it, that has another MAC address than when the connection was made.

use std::time::Duration;

use roce::{CompletionStatus, ConnError, ConnEvent};
use roce_wire::MacAddr;

use crate::two_hosts::{Options, TwoHosts, pattern};

const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xEE]);

/// From now on side 1 is reached at `NEW` only.
fn move_peer(hosts: &mut TwoHosts) {
    hosts.filter = Some(Box::new(|to, frame| to == 0 || frame.starts_with(&NEW.0)));
}

#[test]
fn a_connection_continues_at_the_new_address_of_its_next_hop() {
    let mut hosts = TwoHosts::connected(Options::default());
    let conn = hosts.sides[0].conn.unwrap();
    let (source, target) = (hosts.sides[0].source(&pattern(20_000, 3)), hosts.sides[1].shared(20_000));
    move_peer(&mut hosts);
    let start = hosts.now;
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    hosts.run_until("a suspect path", |hosts| !hosts.sides[0].suspect_paths.is_empty());
    assert_eq!(hosts.sides[0].suspect_paths, [(conn, 100)]);
    let taken = hosts.now.duration_since(start);
    assert!(taken >= Duration::from_millis(268), "not before the ACK timeout: {taken:?}");
    hosts.sides[0].engine.connections().set_next_hop(conn, NEW).unwrap();
    assert!(hosts.run_within(Duration::from_millis(600), |hosts| !hosts.sides[0].cq.is_empty()));
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(target.read(), pattern(20_000, 3));
    assert_eq!(hosts.sides[0].stat("connections_aborted"), 0);
    // Connection management follows, too.
    hosts.sides[0].engine.connections().disconnect(hosts.now, conn).unwrap();
    let is_over = |hosts: &TwoHosts| hosts.has_event(1, |e| matches!(e, ConnEvent::Disconnected));
    assert!(hosts.run_within(Duration::from_millis(100), is_over));
    hosts.sides[0].engine.connections().release(hosts.now, conn);
    assert_eq!(hosts.sides[0].engine.connections().set_next_hop(conn, NEW), Err(ConnError::Unknown));
}

#[test]
fn the_path_of_a_silent_peer_is_suspect_at_each_retry_until_the_connection_ends() {
    let mut hosts = TwoHosts::connected(Options::default());
    let (source, target) = (hosts.sides[0].source(b"x"), hosts.sides[1].shared(1));
    hosts.cut[1] = true;
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    hosts.run_until("the end", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Aborted)));
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RetryExceeded)]);
    assert_eq!(hosts.sides[0].suspect_paths.len(), 7);
}

#[test]
fn losses_do_not_make_a_path_suspect() {
    let mut hosts = TwoHosts::connected(Options { loss: 20, ..Options::default() });
    let (source, target) = (hosts.sides[0].source(&pattern(1 << 20, 3)), hosts.sides[1].shared(1 << 20));
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    assert!(hosts.sides[0].stat("retransmissions") > 0);
    assert_eq!(hosts.sides[0].suspect_paths, []);
}
