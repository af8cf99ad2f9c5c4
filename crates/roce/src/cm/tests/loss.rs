// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that get lost, come twice, or come late.

use super::*;

/// Connects, disconnects from A, agrees from B, with `fate` for the first `message`; every event is told
/// exactly once.
fn whole_life(message: Attribute, fate: Fate) -> Pair {
    let mut pair = Pair::new();
    pair.listen();
    pair.meddle_once(message, fate);
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Disconnected);
    pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    pair.expect(Side::B, b, EventKind::DisconnectDone { graceful: true });
    pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: true });
    pair.release(a, b);
    pair
}

const MESSAGES: [Attribute; 5] =
    [Attribute::CM_REQ, Attribute::CM_REP, Attribute::CM_RTU, Attribute::CM_DREQ, Attribute::CM_DREP];

//= rocev2 §12
#[test]
fn any_message_may_be_lost() {
    for message in MESSAGES {
        let pair = whole_life(message, Fate::Lose);
        let sent = pair.a.sent.iter().chain(&pair.b.sent);
        let times = sent.filter(|&&sent| sent == message).count();
        assert_eq!(times, 2, "{message:?} is sent again, once");
    }
}

//= rocev2 §12
#[test]
fn any_message_may_come_twice() {
    for message in MESSAGES {
        whole_life(message, Fate::Double);
    }
}

//= rocev2 §12
#[test]
fn any_message_may_come_late() {
    for message in MESSAGES {
        whole_life(message, Fate::Delay);
    }
}

//= rocev2 §12
#[test]
fn a_lost_refusal_is_repeated() {
    let mut pair = Pair::new();
    pair.listen();
    pair.meddle_once(Attribute::CM_REJ, Fate::Lose);
    let a = pair.connect();
    let b = pair.request();
    pair.command(Side::B, |cm, now| cm.reject(now, b, b"no")).unwrap();
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    let private_data = padded(b"no", 148);
    pair.expect(Side::A, a, EventKind::Refused { reason: RejReason::CONSUMER, private_data });
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= rocev2 §12
#[test]
fn a_lost_mra_is_asked_for_again() {
    let mut pair = Pair::new();
    pair.listen();
    pair.meddle_once(Attribute::CM_MRA, Fate::Lose);
    let a = pair.connect();
    let b = pair.request();
    pair.quiet_for(Duration::from_secs(20));
    assert!(pair.a.sent.len() >= 3, "the request is repeated while it is unanswered");
    pair.accept(b);
    pair.replied(a);
}

//= rocev2 §12
#[test]
fn a_peer_that_always_asks_for_patience_is_left_in_the_end() {
    let mut pair = Pair::new();
    pair.listen();
    let a = pair.connect();
    pair.request();
    pair.expect(Side::A, a, EventKind::TimedOut);
    let waited = pair.now.duration_since(Instant::from_nanos(1_000_000_000));
    assert!(waited > Duration::from_mins(2), "{waited:?}");
}

//= rocev2 §12
#[test]
fn a_message_repeats_with_the_same_content() {
    let mut pair = Pair::new();
    pair.meddle(|_, _| Fate::Lose);
    pair.connect();
    let mut frames = Vec::new();
    let mut slot = [0; 2048];
    for _ in 0..3 {
        let len = pair.a.cm.poll_transmit(pair.now, Crc::detect(), &mut slot).unwrap();
        frames.push(Packet::parse(&slot[..len]).unwrap().payload().to_vec());
        pair.now = pair.a.cm.poll_timeout().unwrap();
        pair.a.cm.handle_timeout(pair.now);
    }
    assert_eq!(frames[0], frames[1]);
    assert_eq!(frames[0], frames[2]);
}

#[test]
fn a_wire_that_takes_nothing_still_lets_time_run_out() {
    let mut pair = Pair::new();
    let a = pair.connect();
    // Nobody polls for frames.
    while let Some(deadline) = pair.a.cm.poll_timeout() {
        pair.a.cm.handle_timeout(deadline);
    }
    let event = pair.a.cm.poll_event().unwrap();
    assert_eq!((event.conn, event.kind), (a, EventKind::TimedOut));
    assert!(!pair.a.cm.has_transmit(), "a connection that is over has nothing to say");
}
