// SPDX-License-Identifier: MIT OR Apache-2.0

//! The idle timer, and answers on request.

use std::time::Duration;

use smb_direct::wire::DataTransfer;
use smb_direct::{Config, Reason, State};

use crate::support::{
    Conn, EMPTY, START, all, assert_ended, data_bytes, fragment, just_before, next, passive_with_credits,
    receive,
};

const INTERVAL: Duration = Duration::from_secs(120);
const TIMEOUT: Duration = Duration::from_secs(5);

fn idle() -> Conn {
    passive_with_credits(Config::default(), 10)
}

fn asks(sent: &crate::support::Sent) -> bool {
    sent.header().flags == DataTransfer::RESPONSE_REQUESTED
}

//= R-SMBD-62, R-SMBD-73
#[test]
fn an_idle_connection_requests_an_answer() {
    let mut conn = idle();
    assert_eq!(conn.next_deadline(), Some(START + INTERVAL));
    conn.handle_timeout(just_before(START + INTERVAL));
    assert!(next(&mut conn, START).is_none());
    let now = START + INTERVAL;
    conn.handle_timeout(now);
    let sent = all(&mut conn, now);
    assert_eq!(sent.len(), 1);
    assert!(asks(&sent[0]) && sent[0].payload().is_empty());
    assert_eq!(conn.next_deadline(), Some(now + TIMEOUT));
}

//= R-SMBD-4, R-SMBD-62
#[test]
fn a_message_with_payload_requests_the_answer_if_one_waits() {
    let mut conn = idle();
    conn.handle_timeout(START + INTERVAL);
    conn.send(vec![1; 2000], None).unwrap();
    let flags: Vec<_> = all(&mut conn, START + INTERVAL).iter().map(|sent| sent.header().flags).collect();
    assert_eq!(flags, [1, 0]);
}

//= R-SMBD-74
#[test]
fn a_peer_that_does_not_answer_ends_the_connection() {
    let mut conn = idle();
    let now = START + INTERVAL;
    conn.handle_timeout(now);
    next(&mut conn, now).unwrap();
    conn.handle_timeout(just_before(now + TIMEOUT));
    assert_eq!(conn.state(), State::Established);
    conn.handle_timeout(now + TIMEOUT);
    assert_ended(&mut conn, Reason::KeepaliveTimeout);
}

//= R-SMBD-74
#[test]
fn a_request_that_cannot_be_sent_for_lack_of_credits_ends_the_connection_too() {
    let mut conn = crate::support::passive(Config::default(), &crate::support::REQUEST);
    let now = START + INTERVAL;
    conn.handle_timeout(now);
    assert!(next(&mut conn, now).is_none());
    conn.handle_timeout(now + TIMEOUT);
    assert_ended(&mut conn, Reason::KeepaliveTimeout);
}

//= R-SMBD-52
#[test]
fn any_message_restarts_the_timer() {
    for bytes in [data_bytes(&EMPTY, &[]), fragment(b"a", 0), fragment(b"a", 1)] {
        let mut conn = idle();
        let now = START + INTERVAL;
        conn.handle_timeout(now);
        next(&mut conn, now).unwrap();
        let later = now + TIMEOUT / 2;
        conn.receive(later, &bytes, None);
        assert_eq!(conn.next_deadline(), Some(later + INTERVAL));
        conn.handle_timeout(later + INTERVAL);
        assert!(asks(&next(&mut conn, later + INTERVAL).unwrap()), "asked again");
    }
}

//= R-SMBD-53, R-SMBD-54
#[test]
fn an_answer_is_sent_at_once_and_requests_none() {
    let mut conn = idle();
    let ask = DataTransfer { flags: DataTransfer::RESPONSE_REQUESTED, ..EMPTY };
    receive(&mut conn, &data_bytes(&ask, &[]), None);
    let sent = all(&mut conn, START);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].header().flags, sent[0].payload().len()), (0, 0));
}

//= R-SMBD-53
#[test]
fn a_message_with_payload_is_answer_enough() {
    let mut conn = idle();
    conn.send(vec![1], None).unwrap();
    let ask = DataTransfer { flags: DataTransfer::RESPONSE_REQUESTED, ..EMPTY };
    receive(&mut conn, &data_bytes(&ask, &[]), None);
    receive(&mut conn, &data_bytes(&ask, &[]), None);
    assert_eq!(all(&mut conn, START).len(), 1);
}

//= R-SMBD-53
#[test]
fn an_answer_waits_for_a_credit() {
    let mut conn = crate::support::passive(Config::default(), &crate::support::REQUEST);
    let ask = DataTransfer { flags: DataTransfer::RESPONSE_REQUESTED, ..EMPTY };
    receive(&mut conn, &data_bytes(&ask, &[]), None);
    assert!(next(&mut conn, START).is_none());
    receive(&mut conn, &data_bytes(&DataTransfer { credits_granted: 1, ..EMPTY }, &[]), None);
    assert_eq!(all(&mut conn, START).len(), 1);
}
