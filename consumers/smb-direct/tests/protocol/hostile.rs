// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that break the protocol after the negotiation.

use smb_direct::wire::DataTransfer;
use smb_direct::{Config, Reason, State};

use crate::support::{
    Conn, EMPTY, REQUEST, RESPONSE, active, assert_ended, data_bytes, fragment, next, passive, receive,
};

const CONFIG: Config = Config {
    receive_credit_max: 8,
    send_credit_target: 8,
    max_send_size: 1364,
    max_receive_size: 1364,
    max_fragmented_receive_size: 131_072,
    max_read_write_size: 1 << 20,
    keepalive_interval: std::time::Duration::from_secs(120),
    keepalive_timeout: std::time::Duration::from_secs(5),
    credit_timeout: std::time::Duration::from_secs(120),
    send_queue_length: 4,
};

/// Delivers messages to both sides; only the last may end the connection.
#[track_caller]
fn ends(messages: &[Vec<u8>], reason: Reason) {
    let mut client = active(CONFIG, &RESPONSE);
    next(&mut client, crate::support::START).unwrap();
    for mut conn in [client, passive(CONFIG, &REQUEST)] {
        for bytes in messages {
            assert_eq!(conn.state(), State::Established, "ended too early");
            assert_eq!(receive(&mut conn, bytes, None), None);
        }
        assert_ended(&mut conn, reason);
    }
}

fn with(change: impl Fn(&mut DataTransfer), rest: &[u8]) -> Vec<u8> {
    let mut header = EMPTY;
    change(&mut header);
    data_bytes(&header, rest)
}

//= R-SMBD-36
#[test]
fn a_message_shorter_than_its_header() {
    for length in 0..20 {
        ends(&[data_bytes(&EMPTY, &[])[..length].to_vec()], Reason::Truncated);
    }
}

//= R-SMBD-42
#[test]
fn a_message_longer_than_the_negotiated_size() {
    ends(&[fragment(&[0; 1341], 0)], Reason::TooLong);
}

//= R-SMBD-37
#[test]
fn a_message_that_requests_no_credits() {
    ends(&[with(|h| h.credits_requested = 0, &[])], Reason::ZeroCredits);
}

//= R-SMBD-38
#[test]
fn payload_that_is_not_aligned() {
    for offset in [1, 4, 20, 23, 25, 28] {
        ends(&[with(|h| (h.data_offset, h.data_length) = (offset, 1), &[0; 44])], Reason::Misaligned);
    }
    ends(&[with(|h| h.data_offset = 4, &[0; 44])], Reason::Misaligned);
}

//= R-SMBD-39
#[test]
fn payload_behind_the_end_of_the_message() {
    let rest = [0; 44];
    for (offset, length) in [
        (24, 41),
        (64, 1),
        (72, 0),
        (24, u32::MAX),
        (0xFFFF_FFF8, 0),
        (0xFFFF_FFF8, 8),
        (0xFFFF_FFF8, u32::MAX),
    ] {
        let bytes = with(|h| (h.data_offset, h.data_length) = (offset, length), &rest);
        ends(&[bytes], Reason::OutOfBounds);
    }
}

//= R-SMBD-40
#[test]
fn payload_that_overlaps_the_header() {
    for offset in [0, 8, 16] {
        ends(&[with(|h| (h.data_offset, h.data_length) = (offset, 30), &[0; 44])], Reason::Overlap);
    }
}

//= R-SMBD-41
#[test]
fn a_fragmented_message_that_is_too_long() {
    for remaining in [131_072, 131_072 + 1, u32::MAX - 1, u32::MAX] {
        ends(&[fragment(b"a", remaining)], Reason::FragmentedTooLong);
    }
    ends(&[with(|h| h.remaining_data_length = 131_073, &[])], Reason::FragmentedTooLong);
}

//= R-SMBD-49
#[test]
fn a_fragment_without_payload() {
    ends(&[with(|h| h.remaining_data_length = 1, &[])], Reason::EmptyFragment);
    ends(&[fragment(b"a", 3), with(|h| h.remaining_data_length = 3, &[])], Reason::EmptyFragment);
}

//= R-SMBD-47
#[test]
fn a_last_fragment_that_leaves_bytes_missing() {
    ends(&[fragment(b"a", 3), fragment(b"bc", 0)], Reason::FragmentMismatch);
}

//= R-SMBD-48
#[test]
fn a_fragment_that_does_not_continue_the_message() {
    ends(&[fragment(b"a", 3), fragment(b"bcde", 0)], Reason::FragmentMismatch);
    ends(&[fragment(b"a", 3), fragment(b"b", 3)], Reason::FragmentMismatch);
    ends(&[fragment(b"a", 3), fragment(b"b", 1)], Reason::FragmentMismatch);
    ends(&[fragment(b"a", 3), fragment(b"b", 2), fragment(b"c", 0)], Reason::FragmentMismatch);
}

//= R-SMBD-70
#[test]
fn more_messages_than_credits() {
    // Eight credits are granted, and no more as long as nothing is sent.
    ends(&vec![data_bytes(&EMPTY, &[]); 9], Reason::CreditsOverdrawn);
}

//= R-SMBD-70
#[test]
fn a_message_before_the_first_credit() {
    let mut conn = active(CONFIG, &RESPONSE);
    receive(&mut conn, &data_bytes(&EMPTY, &[]), None);
    assert_ended(&mut conn, Reason::CreditsOverdrawn);
}

//= R-SMBD-45
#[test]
fn grants_without_end_do_not_overflow() {
    let mut conn = passive(CONFIG, &REQUEST);
    for _ in 0..200_000 {
        receive(&mut conn, &with(|h| h.credits_granted = u16::MAX, &[]), None);
        next(&mut conn, crate::support::START);
        crate::support::post(&mut conn);
    }
    assert_eq!(conn.state(), State::Established);
}

#[test]
fn another_negotiation_is_taken_for_data_and_refused() {
    // A second request: DataOffset lies where MaxReceiveSize was.
    let request = crate::support::request_bytes(&REQUEST);
    ends(&[request], Reason::OutOfBounds);
}

#[test]
fn the_fault_of_one_connection_does_not_concern_another() {
    let mut faulty = passive(CONFIG, &REQUEST);
    let mut other: Conn = passive(CONFIG, &REQUEST);
    receive(&mut faulty, &fragment(b"a", u32::MAX), None);
    assert_eq!(receive(&mut other, &fragment(b"a", 0), None), Some((b"a".to_vec(), None)));
    assert_ended(&mut faulty, Reason::FragmentedTooLong);
    assert_eq!(other.state(), State::Established);
}
