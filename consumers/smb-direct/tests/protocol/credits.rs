// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who may send, and who grants when.

use std::time::Duration;

use smb_direct::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};
use smb_direct::{Config, Reason, State};

use crate::support::{
    Conn, EMPTY, REQUEST, RESPONSE, START, active, all, assert_ended, data_bytes, fragment, just_before,
    next, passive, passive_with_credits, post, receive,
};

fn config(receive_credit_max: u16) -> Config {
    Config { receive_credit_max, ..Config::default() }
}

/// Delivers `count` messages without payload, each of which grants `credits`.
fn deliver(conn: &mut Conn, count: usize, credits: u16) {
    for _ in 0..count {
        receive(conn, &data_bytes(&DataTransfer { credits_granted: credits, ..EMPTY }, &[]), None);
    }
}

//= R-SMBD-64, R-SMBD-68
#[test]
fn the_first_message_of_a_client_grants_all_that_is_requested() {
    for (max, requested) in [(255, 255), (255, 10), (10, 255), (1, 255), (255, 1)] {
        let response = NegotiateResponse { credits_requested: requested, ..RESPONSE };
        let mut conn = active(config(max), &response);
        let sent = all(&mut conn, START);
        assert_eq!(sent.len(), 1);
        // At least two, since the peer may have to grant in turn.
        assert_eq!(sent[0].header().credits_granted, max.min(requested).max(2));
    }
}

//= R-SMBD-59
#[test]
fn nothing_is_sent_without_credits() {
    let mut conn = passive(Config::default(), &REQUEST);
    conn.send(vec![1], None).unwrap();
    assert!(next(&mut conn, START).is_none());
    deliver(&mut conn, 1, 1);
    assert!(next(&mut conn, START).is_some());
}

//= R-SMBD-60, R-SMBD-66
#[test]
fn the_last_credit_is_used_only_to_grant() {
    let mut conn = passive_with_credits(config(4), 2);
    // The peer has used one of four.
    post(&mut conn);
    for byte in 0..3 {
        conn.send(vec![byte], None).unwrap();
    }
    let sent = all(&mut conn, START);
    let granted: Vec<_> = sent.iter().map(|sent| sent.header().credits_granted).collect();
    // All that is open, and then the receive in reserve.
    assert_eq!(granted, [1, 1]);
}

//= R-SMBD-60
#[test]
fn the_last_credit_is_kept_until_a_receive_is_posted() {
    let mut conn = passive_with_credits(config(4), 1);
    // One receive is left in reserve; without it there is nothing to grant.
    let mut conn_without = {
        let mut conn = crate::support::asked(config(4), &crate::support::request_bytes(&REQUEST));
        conn.receives_posted(4);
        next(&mut conn, START).unwrap();
        deliver(&mut conn, 1, 1);
        conn
    };
    for conn in [&mut conn, &mut conn_without] {
        conn.send(vec![1], None).unwrap();
    }
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 1);
    assert!(next(&mut conn_without, START).is_none());
    conn_without.receives_posted(1);
    assert_eq!(next(&mut conn_without, START).unwrap().header().credits_granted, 1);
}

//= R-SMBD-61
#[test]
fn each_message_takes_one_credit() {
    let mut conn = passive_with_credits(Config::default(), 5);
    post(&mut conn);
    conn.send(vec![0; 20_000], None).unwrap();
    assert_eq!(all(&mut conn, START).len(), 5);
    deliver(&mut conn, 1, 3);
    post(&mut conn);
    assert_eq!(all(&mut conn, START).len(), 3);
}

//= R-SMBD-45
#[test]
fn credits_of_several_messages_add_up() {
    let mut conn = passive(Config::default(), &REQUEST);
    deliver(&mut conn, 3, 2);
    post(&mut conn);
    conn.send(vec![0; 20_000], None).unwrap();
    assert_eq!(all(&mut conn, START).len(), 6);
}

//= R-SMBD-65, R-SMBD-67
#[test]
fn no_more_is_granted_than_is_posted_requested_and_configured() {
    for (max, requested, posted) in [(10, 255, 255), (255, 10, 255), (255, 255, 10)] {
        let request = NegotiateRequest { credits_requested: requested, ..REQUEST };
        let mut conn = crate::support::asked(config(max), &crate::support::request_bytes(&request));
        conn.receives_posted(posted);
        let response = NegotiateResponse::parse(&next(&mut conn, START).unwrap().bytes).unwrap();
        assert_eq!(response.credits_granted, 10);
        // Seven are used; as many are granted again as receives are posted.
        let used = DataTransfer { credits_requested: requested, credits_granted: 255, ..EMPTY };
        for _ in 0..7 {
            receive(&mut conn, &data_bytes(&used, &[]), None);
        }
        conn.receives_posted(if posted == 10 { 2 } else { 0 });
        conn.send(vec![1], None).unwrap();
        let granted = next(&mut conn, START).unwrap().header().credits_granted;
        assert_eq!(granted, if posted == 10 { 2 } else { 7 });
    }
}

//= R-SMBD-44, R-SMBD-67
#[test]
fn the_target_follows_each_message_of_the_peer() {
    let mut conn = passive(config(20), &NegotiateRequest { credits_requested: 4, ..REQUEST });
    receive(
        &mut conn,
        &data_bytes(&DataTransfer { credits_requested: 12, credits_granted: 9, ..EMPTY }, &[]),
        None,
    );
    post(&mut conn);
    // Three of four are left.
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 9);
    receive(&mut conn, &data_bytes(&DataTransfer { credits_requested: 2, ..EMPTY }, &[]), None);
    conn.send(vec![1], None).unwrap();
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 0);
}

//= R-SMBD-68, R-SMBD-69
#[test]
fn credits_alone_are_sent_once_half_of_them_are_used() {
    let mut conn = passive_with_credits(config(10), 100);
    post(&mut conn);
    for used in 2..=5 {
        deliver(&mut conn, 1, 0);
        post(&mut conn);
        assert!(next(&mut conn, START).is_none(), "{used} used");
    }
    deliver(&mut conn, 1, 0);
    post(&mut conn);
    let sent = all(&mut conn, START);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].header().credits_granted, sent[0].payload().len()), (6, 0));
}

//= R-SMBD-68
#[test]
fn credits_wait_for_a_receive_to_be_posted() {
    let mut conn = crate::support::asked(config(2), &crate::support::request_bytes(&REQUEST));
    conn.receives_posted(2);
    next(&mut conn, START).unwrap();
    deliver(&mut conn, 2, 4);
    assert!(next(&mut conn, START).is_none());
    conn.receives_posted(1);
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 1);
}

//= R-SMBD-64
#[test]
fn a_message_with_payload_grants_what_is_open() {
    let mut conn = passive_with_credits(config(10), 100);
    deliver(&mut conn, 2, 0);
    post(&mut conn);
    conn.send(vec![1], None).unwrap();
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 3);
}

//= R-SMBD-72
#[test]
fn a_peer_that_used_its_last_credit_without_granting_is_granted_new_ones() {
    let mut conn = passive_with_credits(config(2), 1);
    post(&mut conn);
    receive(&mut conn, &fragment(b"last", 0), None);
    post(&mut conn);
    // One credit of the peer is left here, for a message that grants.
    assert_eq!(next(&mut conn, START).unwrap().header().credits_granted, 2);
    assert_eq!(conn.state(), State::Established);
}

//= R-SMBD-71
#[test]
fn a_message_that_gets_no_credit_in_time_ends_the_connection() {
    let timeout = Duration::from_secs(30);
    let config = Config { credit_timeout: timeout, ..Config::default() };
    let mut conn = passive(config, &REQUEST);
    assert_eq!(conn.next_deadline(), Some(START + config.keepalive_interval));
    conn.send(vec![1], None).unwrap();
    assert!(next(&mut conn, START).is_none());
    assert_eq!(conn.next_deadline(), Some(START + timeout));
    // Messages that grant nothing do not prolong it.
    deliver(&mut conn, 1, 0);
    assert!(next(&mut conn, START + timeout / 2).is_none());
    conn.handle_timeout(just_before(START + timeout));
    assert_eq!(conn.state(), State::Established);
    conn.handle_timeout(START + timeout);
    assert_eq!(conn.take_unsent(), Some(vec![1]));
    assert_ended(&mut conn, Reason::CreditTimeout);
}

//= R-SMBD-71
#[test]
fn a_credit_stops_the_timer() {
    let config = Config { credit_timeout: Duration::from_secs(30), ..Config::default() };
    let mut conn = passive(config, &REQUEST);
    conn.send(vec![1], None).unwrap();
    assert!(next(&mut conn, START).is_none());
    deliver(&mut conn, 1, 1);
    assert!(next(&mut conn, START).is_some());
    assert_eq!(conn.next_deadline(), Some(START + config.keepalive_interval));
}
