// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that are lost, duplicated or delayed.

use super::*;

/// Connects, and disconnects first from A, then from B, with `fate` for the first `message`. Asserts that every
/// event is reported exactly once.
fn run_lifecycle(message: Attribute, fate: Fate) -> TwoHosts {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.set_fate_once(message, fate);
    let (a, b) = hosts.established();
    hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    hosts.release(a, b);
    hosts
}

const MESSAGES: [Attribute; 5] =
    [Attribute::CM_REQ, Attribute::CM_REP, Attribute::CM_RTU, Attribute::CM_DREQ, Attribute::CM_DREP];

//= rocev2 §12
#[test]
fn each_message_may_be_lost() {
    for message in MESSAGES {
        let hosts = run_lifecycle(message, Fate::Lose);
        let sent = hosts.a.sent.iter().chain(&hosts.b.sent);
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
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.set_fate_once(Attribute::CM_REJ, Fate::Lose);
    let a = hosts.connect();
    let b = hosts.request();
    hosts.command(Side::B, |cm, now| cm.reject(now, b, b"no")).unwrap();
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    let private_data = padded(b"no", 148);
    hosts.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

//= rocev2 §12
#[test]
fn lost_mra_is_sent_again_for_the_next_retry() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.set_fate_once(Attribute::CM_MRA, Fate::Lose);
    let a = hosts.connect();
    let b = hosts.request();
    hosts.quiet_for(Duration::from_secs(20));
    assert!(hosts.a.sent.len() >= 3, "the request is repeated while it is unanswered");
    hosts.accept(b);
    hosts.replied(a);
}

//= rocev2 §12
#[test]
fn peer_that_always_sends_mra_times_out() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    hosts.request();
    hosts.expect(Side::A, a, CmEventKind::TimedOut);
    let waited = hosts.now.duration_since(Instant::from_nanos(1_000_000_000));
    assert!(waited > Duration::from_mins(2), "{waited:?}");
}

//= rocev2 §12
#[test]
fn retries_of_a_message_are_identical() {
    let mut hosts = TwoHosts::new();
    hosts.set_fate(|_, _| Fate::Lose);
    hosts.connect();
    let mut frames = Vec::new();
    let mut slot = [0; 2048];
    for _ in 0..3 {
        let len = hosts.a.cm.poll_transmit(hosts.now, Crc::detect(), &mut slot).unwrap();
        frames.push(Packet::parse(&slot[..len]).unwrap().payload().to_vec());
        hosts.now = hosts.a.cm.poll_timeout().unwrap();
        hosts.a.cm.handle_timeout(hosts.now);
    }
    assert_eq!(frames[0], frames[1]);
    assert_eq!(frames[0], frames[2]);
}

#[test]
fn connect_times_out_without_transmit_slots() {
    let mut hosts = TwoHosts::new();
    let a = hosts.connect();
    // The driver does not poll for frames.
    while let Some(deadline) = hosts.a.cm.poll_timeout() {
        hosts.a.cm.handle_timeout(deadline);
    }
    let event = hosts.a.cm.poll_event().unwrap();
    assert_eq!((event.conn, event.kind), (a, CmEventKind::TimedOut));
    assert!(!hosts.a.cm.has_transmit(), "a connection that is over sends nothing");
}
