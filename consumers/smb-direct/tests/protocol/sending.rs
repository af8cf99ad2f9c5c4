// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data Transfer messages that are sent.

use smb_direct::wire::{NegotiateRequest, NegotiateResponse};
use smb_direct::{Config, Event, Reason, SendErrorKind};

use crate::support::{REQUEST, RESPONSE, START, active, all, asked, next, passive, request_bytes, requested};

/// Bytes that differ from place to place.
fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + (at >> 8)) as u8).collect()
}

//= R-SMBD-1, R-SMBD-2, R-SMBD-3, R-SMBD-6, R-SMBD-57
#[test]
fn a_short_message_is_one_fragment_behind_four_zeros() {
    let mut conn = active(Config { send_credit_target: 0x0A0B, ..Config::default() }, &RESPONSE);
    conn.send(vec![7; 5], None).unwrap();
    let sent = next(&mut conn, START).unwrap();
    let expected = [
        &[0x0B, 0x0A, 255, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 24, 0, 0, 0, 5, 0, 0, 0],
        &[0, 0, 0, 0, 7, 7, 7, 7, 7],
    ];
    assert_eq!(sent.bytes, expected.concat());
    assert_eq!(sent.transmit.finished, Some(vec![7; 5]));
}

//= R-SMBD-4, R-SMBD-5
#[test]
fn a_message_without_payload_is_a_header() {
    let mut conn = active(Config::default(), &RESPONSE);
    let sent = next(&mut conn, START).unwrap();
    assert_eq!(sent.bytes, [255, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((sent.transmit.finished, sent.transmit.invalidate), (None, None));
}

//= R-SMBD-55, R-SMBD-57, R-SMBD-61
#[test]
fn a_long_message_is_sent_in_fragments_that_fill_the_send_size() {
    for send_size in [128, 129, 1000, 1364] {
        let response = NegotiateResponse { max_receive_size: send_size, ..RESPONSE };
        for length in [1usize, 103, 104, 105, 208, 1340, 1341, 5000] {
            let mut conn = active(Config { receive_credit_max: 1, ..Config::default() }, &response);
            let expected = message(length);
            conn.send(expected.clone(), None).unwrap();
            let sent = all(&mut conn, START);
            let mut bytes = Vec::new();
            for (at, sent) in sent.iter().enumerate() {
                let (header, room) = (sent.header(), send_size as usize - 24);
                bytes.extend_from_slice(sent.payload());
                assert_eq!(header.remaining_data_length as usize, length - bytes.len());
                assert_eq!((header.data_offset, header.credits_requested), (24, 255));
                let is_last = bytes.len() == length;
                assert!(is_last || sent.payload().len() == room);
                assert_eq!(sent.transmit.finished.is_some(), is_last, "fragment {at}");
            }
            assert_eq!(bytes, expected);
            assert_eq!(sent.len(), length.div_ceil(send_size as usize - 24));
        }
    }
}

//= R-SMBD-55
#[test]
fn messages_are_sent_in_order_and_not_interleaved() {
    let mut conn = active(Config::default(), &RESPONSE);
    let messages: Vec<_> = [3000, 1, 1340, 4000].map(message).to_vec();
    for message in &messages {
        conn.send(message.clone(), None).unwrap();
    }
    let sent = all(&mut conn, START);
    let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.payload().to_vec()).collect();
    assert_eq!(bytes, messages.concat());
    let finished: Vec<_> = sent.into_iter().filter_map(|sent| sent.transmit.finished).collect();
    assert_eq!(finished, messages);
}

//= R-SMBD-58
#[test]
fn a_token_goes_with_one_fragment_of_its_message() {
    let mut conn = active(Config::default(), &RESPONSE);
    conn.send(message(3000), Some(0x11)).unwrap();
    conn.send(message(10), None).unwrap();
    conn.send(message(10), Some(0x22)).unwrap();
    let tokens: Vec<_> = all(&mut conn, START).iter().map(|sent| sent.transmit.invalidate).collect();
    assert_eq!(tokens, [None, None, Some(0x11), None, Some(0x22)]);
}

//= R-SMBD-56
#[test]
fn a_message_longer_than_the_peer_can_reassemble_is_not_accepted() {
    let response = NegotiateResponse { max_fragmented_size: 131_072, ..RESPONSE };
    let mut conn = active(Config::default(), &response);
    let error = conn.send(vec![0; 131_073], None).unwrap_err();
    assert_eq!((error.kind, error.message.len()), (SendErrorKind::TooLong, 131_073));
    conn.send(vec![0; 131_072], None).unwrap();
}

//= R-SMBD-56
#[test]
fn a_server_respects_the_size_of_the_request() {
    let mut conn = passive(Config::default(), &NegotiateRequest { max_fragmented_size: 131_072, ..REQUEST });
    assert_eq!(conn.send(vec![0; 131_073], None).unwrap_err().kind, SendErrorKind::TooLong);
}

#[test]
fn messages_that_cannot_be_queued_are_returned() {
    let refusal = |conn: &mut crate::support::Conn, bytes: Vec<u8>| {
        let error = conn.send(bytes.clone(), None).unwrap_err();
        assert_eq!(error.message, bytes);
        error.kind
    };
    let mut conn = active(Config { send_queue_length: 2, ..Config::default() }, &RESPONSE);
    assert_eq!(refusal(&mut conn, Vec::new()), SendErrorKind::Empty);
    conn.send(vec![1], None).unwrap();
    conn.send(vec![2], None).unwrap();
    assert_eq!(refusal(&mut conn, vec![3]), SendErrorKind::QueueFull);
    next(&mut conn, START).unwrap();
    conn.send(vec![3], None).unwrap();

    let unestablished = [requested(Config::default()), asked(Config::default(), &request_bytes(&REQUEST))];
    for mut conn in unestablished {
        assert_eq!(refusal(&mut conn, vec![1]), SendErrorKind::NotEstablished);
    }
}

//= R-SMBD-63
#[test]
fn messages_that_were_not_sent_are_returned_when_the_connection_ends() {
    let mut conn = active(Config::default(), &NegotiateResponse { credits_granted: 2, ..RESPONSE });
    for byte in 0..4 {
        conn.send(vec![byte; 2000], None).unwrap();
    }
    assert_eq!(conn.take_unsent(), None, "not while it may be sent");
    // Two fragments: the first message.
    let finished: Vec<_> =
        all(&mut conn, START).into_iter().filter_map(|sent| sent.transmit.finished).collect();
    assert_eq!(finished, [vec![0; 2000]]);
    conn.transport_failed();
    let event = Event::Disconnect { reason: Reason::Transport, is_graceful: false };
    assert_eq!(conn.poll_event(), Some(event));
    let unsent: Vec<_> = std::iter::from_fn(|| conn.take_unsent()).collect();
    assert_eq!(unsent, [vec![1; 2000], vec![2; 2000], vec![3; 2000]]);
}

#[test]
fn a_buffer_that_is_too_small_is_left_alone() {
    let mut conn = active(Config::default(), &RESPONSE);
    conn.send(vec![1; 200], None).unwrap();
    assert!(conn.poll_transmit(START, &mut [0; 127]).is_none());
    assert_eq!(conn.poll_transmit(START, &mut [0; 128]).unwrap().length, 128);
    assert_eq!(next(&mut conn, START).unwrap().payload(), [1; 96]);
}
