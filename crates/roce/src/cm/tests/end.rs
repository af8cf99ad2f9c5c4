// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections end.

use super::*;

//= R-CONN-80
//= R-CONN-87
//= R-CONN-91
//= rocev2 §12
#[test]
fn a_disconnect_is_over_when_the_peer_has_disconnected_too() {
    for first in [Side::A, Side::B] {
        let mut pair = Pair::new();
        pair.listen();
        let (a, b) = pair.established();
        let (first_conn, second_conn) = if first == Side::A { (a, b) } else { (b, a) };
        pair.command(first, |cm, now| cm.disconnect(now, first_conn)).unwrap();
        pair.expect(first.other(), second_conn, EventKind::Disconnected);
        pair.run_for(Duration::from_secs(3));
        assert_eq!(pair.host(first).events, [], "the peer has not agreed yet");
        pair.command(first.other(), |cm, now| cm.disconnect(now, second_conn)).unwrap();
        pair.expect(first.other(), second_conn, EventKind::DisconnectDone { graceful: true });
        pair.expect(first, first_conn, EventKind::DisconnectDone { graceful: true });
        pair.release(a, b);
    }
}

//= R-CONN-96
#[test]
fn a_release_agrees_to_a_disconnect_as_well() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Disconnected);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: true });
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= R-CONN-89
//= R-CONN-96
#[test]
fn a_release_without_disconnect_ends_the_connection_for_the_peer() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Disconnected);
    assert_eq!(pair.a.events, []);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.nothing_left();
}

//= R-CONN-94
//= rocev2 §12
#[test]
fn disconnects_that_cross_are_both_graceful() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: true });
    pair.expect(Side::B, b, EventKind::DisconnectDone { graceful: true });
    //= R-CONN-88
    pair.quiet_for(Duration::from_secs(30));
    pair.release(a, b);
}

//= R-CONN-95
//= R-CONN-81
#[test]
fn a_disconnect_that_the_peer_never_answers_ends_by_itself() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Disconnected);
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: false });
    pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    pair.expect(Side::B, b, EventKind::DisconnectDone { graceful: true });
    pair.release(a, b);
}

//= R-CONN-81
#[test]
fn a_peer_that_has_vanished_is_disconnected_from_within_ten_seconds() {
    for side in [Side::A, Side::B] {
        // What the passive side repeats its REP by comes from the active side.
        let mut pair = Pair::with(|config| config.response_timeout = if side == Side::A { 18 } else { 19 });
        pair.listen();
        let (a, b) = pair.established();
        if side == Side::B {
            pair.b.cm.config.response_timeout = 18;
        }
        pair.meddle(|_, _| Fate::Lose);
        let conn = if side == Side::A { a } else { b };
        let start = pair.now;
        pair.command(side, |cm, now| cm.disconnect(now, conn)).unwrap();
        pair.expect(side, conn, EventKind::DisconnectDone { graceful: false });
        let took = pair.now.duration_since(start);
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(10), "{side:?}: {took:?}");
    }
}

//= R-CONN-86
#[test]
fn a_connection_is_disconnected_once() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    assert_eq!(pair.command(Side::A, |cm, now| cm.disconnect(now, a)), Err(ConnError::State));
    pair.release(a, b);
}

//= R-CONN-87
#[test]
fn a_failed_queue_pair_aborts_here_and_disconnects_there() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, b) = pair.established();
    for _ in 0..2 {
        pair.command(Side::A, |cm, now| cm.abort(now, a)).unwrap();
    }
    pair.expect(Side::A, a, EventKind::Aborted);
    pair.expect(Side::B, b, EventKind::Disconnected);
    //= R-CONN-91
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: false });
    // That the peer agrees in the end is no second end.
    pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    pair.expect(Side::B, b, EventKind::DisconnectDone { graceful: true });
    pair.quiet_for(Duration::from_secs(30));
    pair.release(a, b);
}

//= rocev2 §12
#[test]
fn a_disconnect_right_after_a_lost_rtu_still_tells_both() {
    let mut pair = Pair::new();
    pair.listen();
    pair.meddle(|_, message| if message == Attribute::CM_RTU { Fate::Lose } else { Fate::Deliver });
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    pair.collect();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Established);
    pair.expect(Side::B, b, EventKind::Disconnected);
    pair.release(a, b);
}

//= rocev2 §12
#[test]
fn a_dreq_for_an_unknown_connection_is_agreed_to() {
    let mut pair = Pair::new();
    pair.listen();
    let (a, _) = pair.established();
    pair.b.crash();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: true });
}

#[test]
fn every_state_can_be_released() {
    // How far the connection gets before either side or both leave.
    for depth in 0..7 {
        for leave in [&[Side::A][..], &[Side::B], &[Side::A, Side::B], &[Side::B, Side::A]] {
            let mut pair = Pair::new();
            pair.listen();
            let a = pair.connect();
            let mut b = None;
            if depth >= 1 {
                b = Some(pair.request());
            }
            if let Some(b) = b.filter(|_| depth >= 2) {
                pair.accept(b);
            }
            if depth >= 3 {
                pair.replied(a);
            }
            if depth >= 4 {
                pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
            }
            if let Some(b) = b.filter(|_| depth >= 5) {
                pair.expect(Side::B, b, EventKind::Established);
            }
            if let Some(b) = b.filter(|_| depth >= 6) {
                pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
                pair.expect(Side::A, a, EventKind::Disconnected);
            }
            let mut left = Vec::new();
            for &side in leave {
                let conn = if side == Side::A { Some(a) } else { b };
                if let Some(conn) = conn {
                    pair.command(side, |cm, now| cm.release(now, conn)).unwrap();
                    left.push(side);
                }
            }
            // The other side hears of it, if there is one, and leaves too.
            pair.run_for(Duration::from_mins(1));
            pair.a.events.clear();
            for event in core::mem::take(&mut pair.b.events) {
                if let EventKind::Request { .. } = event.kind {
                    b = Some(event.conn);
                }
            }
            for (side, conn) in [(Side::A, Some(a)), (Side::B, b)] {
                if let Some(conn) = conn.filter(|_| !left.contains(&side)) {
                    pair.command(side, |cm, now| cm.release(now, conn)).unwrap();
                }
            }
            pair.nothing_left();
        }
    }
}
