// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that are lost, duplicated or delayed.

use super::*;

/// Connects, and disconnects first from A, then from B, with `fate` for the first `message`. Asserts that every
/// event is reported exactly once.
fn run_lifecycle(message: Attribute, fate: Fate) -> TwoHosts {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.set_fate_once(message, fate);
    let (a, b) = pair.established();
    pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Disconnected);
    pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    pair.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    pair.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    pair.release(a, b);
    pair
}

const MESSAGES: [Attribute; 5] =
    [Attribute::CM_REQ, Attribute::CM_REP, Attribute::CM_RTU, Attribute::CM_DREQ, Attribute::CM_DREP];

//= rocev2 §12
#[test]
fn each_message_may_be_lost() {
    for message in MESSAGES {
        let pair = run_lifecycle(message, Fate::Lose);
        let sent = pair.a.sent.iter().chain(&pair.b.sent);
        let times = sent.filter(|&&sent| sent == message).count();
        assert_eq!(times, 2, "{message:?} is sent again, once");
    }
}

//= rocev2 §12
#[test]
fn each_message_may_be_duplicated() {
    for message in MESSAGES {
        run_lifecycle(message, Fate::Duplicate);
    }
}

//= rocev2 §12
#[test]
fn each_message_may_be_delayed() {
    for message in MESSAGES {
        run_lifecycle(message, Fate::Delay);
    }
}

//= rocev2 §12
#[test]
fn lost_rej_is_sent_again() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.set_fate_once(Attribute::CM_REJ, Fate::Lose);
    let a = pair.connect();
    let b = pair.request();
    pair.command(Side::B, |cm, now| cm.reject(now, b, b"no")).unwrap();
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    let private_data = padded(b"no", 148);
    pair.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= rocev2 §12
#[test]
fn lost_mra_is_sent_again_for_the_next_retry() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.set_fate_once(Attribute::CM_MRA, Fate::Lose);
    let a = pair.connect();
    let b = pair.request();
    pair.quiet_for(Duration::from_secs(20));
    assert!(pair.a.sent.len() >= 3, "the request is repeated while it is unanswered");
    pair.accept(b);
    pair.replied(a);
}

//= rocev2 §12
#[test]
fn peer_that_always_sends_mra_times_out() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    pair.request();
    pair.expect(Side::A, a, CmEventKind::TimedOut);
    let waited = pair.now.duration_since(Instant::from_nanos(1_000_000_000));
    assert!(waited > Duration::from_mins(2), "{waited:?}");
}

//= rocev2 §12
#[test]
fn retries_of_a_message_are_identical() {
    let mut pair = TwoHosts::new();
    pair.set_fate(|_, _| Fate::Lose);
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
fn connect_times_out_without_transmit_slots() {
    let mut pair = TwoHosts::new();
    let a = pair.connect();
    // The driver does not poll for frames.
    while let Some(deadline) = pair.a.cm.poll_timeout() {
        pair.a.cm.handle_timeout(deadline);
    }
    let event = pair.a.cm.poll_event().unwrap();
    assert_eq!((event.conn, event.kind), (a, CmEventKind::TimedOut));
    assert!(!pair.a.cm.has_transmit(), "a connection that is over sends nothing");
}
