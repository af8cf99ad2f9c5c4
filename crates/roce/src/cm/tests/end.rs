// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends of connections.

use super::*;

//= R-CONN-80
//= R-CONN-87
//= R-CONN-91
//= rocev2 §12
#[test]
fn disconnect_is_done_when_the_peer_has_disconnected() {
    for first in [Side::A, Side::B] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let (a, b) = hosts.established();
        let (first_conn, second_conn) = if first == Side::A { (a, b) } else { (b, a) };
        hosts.command(first, |cm, now| cm.disconnect(now, first_conn)).unwrap();
        hosts.expect(first.other(), second_conn, CmEventKind::Disconnected);
        hosts.run_for(Duration::from_secs(3));
        assert_eq!(hosts.host(first).events, [], "the peer has not disconnected yet");
        hosts.command(first.other(), |cm, now| cm.disconnect(now, second_conn)).unwrap();
        hosts.expect(first.other(), second_conn, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
        hosts.expect(first, first_conn, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
        hosts.release(a, b);
    }
}

//= R-CONN-96
#[test]
fn release_answers_a_dreq() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-89
//= R-CONN-96
#[test]
fn release_without_disconnect_disconnects_the_peer() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    assert_eq!(hosts.a.events, []);
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-94
//= rocev2 §12
#[test]
fn simultaneous_disconnects_are_both_graceful() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    //= R-CONN-88
    hosts.quiet_for(Duration::from_secs(30));
    hosts.release(a, b);
}

//= R-CONN-95
//= R-CONN-81
#[test]
fn unanswered_disconnect_ends_after_its_retries() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::TimedOut));
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.release(a, b);
}

//= R-CONN-81
#[test]
fn disconnect_from_a_vanished_peer_takes_at_most_ten_seconds() {
    for side in [Side::A, Side::B] {
        // The active side chooses the interval at which the passive side retries its REP.
        let mut hosts =
            TwoHosts::with(|config| config.response_timeout = if side == Side::A { 18 } else { 19 });
        hosts.listen();
        let (a, b) = hosts.established();
        if side == Side::B {
            hosts.b.cm.conns.config.response_timeout = 18;
        }
        hosts.set_fate(|_, _| Fate::Lose);
        let conn = if side == Side::A { a } else { b };
        let start = hosts.now;
        hosts.command(side, |cm, now| cm.disconnect(now, conn)).unwrap();
        hosts.expect(side, conn, CmEventKind::DisconnectDone(DisconnectOutcome::TimedOut));
        let took = hosts.now.duration_since(start);
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(10), "{side:?}: {took:?}");
    }
}

//= R-CONN-86
#[test]
fn second_disconnect_is_refused() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    assert_eq!(hosts.command(Side::A, |cm, now| cm.disconnect(now, a)), Err(ConnError::State));
    hosts.release(a, b);
}

//= R-CONN-81, R-CONN-87
#[test]
fn failed_queue_pair_aborts_locally_and_disconnects_the_peer() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    for _ in 0..2 {
        hosts.command(Side::A, |cm, now| cm.abort(now, a)).unwrap();
    }
    hosts.expect(Side::A, a, CmEventKind::Aborted);
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    //= R-CONN-91
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Aborted));
    // The peer's DREP does not cause a second event.
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.quiet_for(Duration::from_secs(30));
    hosts.release(a, b);
}

//= rocev2 §12
#[test]
fn dreq_after_a_lost_rtu_reports_established_and_disconnected() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.set_fate(|_, message| if message == Attribute::CM_RTU { Fate::Lose } else { Fate::Deliver });
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    hosts.collect();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.release(a, b);
}

//= rocev2 §12
#[test]
fn dreq_for_an_unknown_connection_is_answered_with_drep() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, _) = hosts.established();
    hosts.b.crash();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
}

#[test]
fn every_state_can_be_released() {
    // The stage of the connection at which one or both sides release it.
    for depth in 0..7 {
        for leave in [&[Side::A][..], &[Side::B], &[Side::A, Side::B], &[Side::B, Side::A]] {
            let mut hosts = TwoHosts::new();
            hosts.listen();
            let a = hosts.connect();
            let mut b = None;
            if depth >= 1 {
                b = Some(hosts.request());
            }
            if let Some(b) = b.filter(|_| depth >= 2) {
                hosts.accept(b);
            }
            if depth >= 3 {
                hosts.replied(a);
            }
            if depth >= 4 {
                hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
            }
            if let Some(b) = b.filter(|_| depth >= 5) {
                hosts.expect(Side::B, b, CmEventKind::Established);
            }
            if let Some(b) = b.filter(|_| depth >= 6) {
                hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
                hosts.expect(Side::A, a, CmEventKind::Disconnected);
            }
            let mut left = Vec::new();
            for &side in leave {
                let conn = if side == Side::A { Some(a) } else { b };
                if let Some(conn) = conn {
                    hosts.command(side, |cm, now| cm.release(now, conn)).unwrap();
                    left.push(side);
                }
            }
            // The other side, if any, is notified and releases it, too.
            hosts.run_for(Duration::from_mins(1));
            hosts.a.events.clear();
            for event in core::mem::take(&mut hosts.b.events) {
                if let CmEventKind::Request { .. } = event.kind {
                    b = Some(event.conn);
                }
            }
            for (side, conn) in [(Side::A, Some(a)), (Side::B, b)] {
                if let Some(conn) = conn.filter(|_| !left.contains(&side)) {
                    hosts.command(side, |cm, now| cm.release(now, conn)).unwrap();
                }
            }
            hosts.nothing_left();
        }
    }
}
