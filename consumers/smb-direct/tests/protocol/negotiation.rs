// SPDX-License-Identifier: MIT OR Apache-2.0

//! The first two messages.

use std::time::Duration;

use smb_direct::wire::{NegotiateRequest, NegotiateResponse, status};
use smb_direct::{
    ACTIVE_NEGOTIATION_TIMEOUT, Config, CreateError, Event, NEGOTIATION_RECEIVE_SIZE,
    PASSIVE_NEGOTIATION_TIMEOUT, Parameters, Reason, State,
};

use crate::support::{
    Conn, EMPTY, REQUEST, RESPONSE, START, active, all, asked, assert_ended, data_bytes, just_before, next,
    passive, post, receive, request_bytes, requested, response_bytes,
};

//= R-SMBD-1, R-SMBD-7, R-SMBD-8, R-SMBD-11
#[test]
fn the_active_side_sends_its_request_first_once_connected() {
    let config = Config { send_credit_target: 0x1234, max_receive_size: 0x2345, ..Config::default() };
    let mut conn = Conn::active(config, START).unwrap();
    assert!(next(&mut conn, START).is_none(), "not connected");
    conn.connected();
    let sent = next(&mut conn, START).unwrap();
    let expected = [
        &[0x00, 0x01, 0x00, 0x01, 0, 0, 0x34, 0x12][..],
        &1364u32.to_le_bytes(),
        &0x2345u32.to_le_bytes(),
        &1_048_576u32.to_le_bytes(),
    ];
    assert_eq!(sent.bytes, expected.concat());
    assert!(next(&mut conn, START).is_none(), "one request");
}

//= R-SMBD-1, R-SMBD-12, R-SMBD-64
#[test]
fn the_passive_side_answers_with_its_sizes_and_the_receives_it_has_posted() {
    let config = Config { receive_credit_max: 100, send_credit_target: 0x1234, ..Config::default() };
    let mut conn = asked(config, &request_bytes(&REQUEST));
    conn.receives_posted(7);
    let sent = next(&mut conn, START).unwrap();
    let expected = [
        &[0x00, 0x01, 0x00, 0x01, 0x00, 0x01, 0, 0, 0x34, 0x12, 7, 0, 0, 0, 0, 0][..],
        &8_388_608u32.to_le_bytes(),
        &1364u32.to_le_bytes(),
        &1364u32.to_le_bytes(),
        &1_048_576u32.to_le_bytes(),
    ];
    assert_eq!(sent.bytes, expected.concat());
}

//= R-SMBD-2
#[test]
fn reserved_fields_and_bytes_behind_the_message_are_ignored() {
    let mut bytes = request_bytes(&REQUEST);
    bytes[4..6].fill(0xFF);
    bytes.extend([0xFF; 12]);
    assert_eq!(asked(Config::default(), &bytes).state(), State::Responding);

    let mut bytes = response_bytes(&RESPONSE);
    bytes[6..8].fill(0xFF);
    bytes.extend([0xFF; 12]);
    let mut conn = requested(Config::default());
    conn.receive(START, &bytes, None);
    assert_eq!(conn.state(), State::Established);
}

//= R-SMBD-9
#[test]
fn one_receive_of_512_bytes_is_wanted_before_the_negotiation() {
    let small = Config { max_receive_size: 128, ..Config::default() };
    for mut conn in [Conn::active(small, START).unwrap(), Conn::passive(small, START).unwrap()] {
        assert_eq!(conn.wanted_receives(), (1, NEGOTIATION_RECEIVE_SIZE));
        conn.receives_posted(1);
        assert_eq!(conn.wanted_receives().0, 0);
    }
    assert_eq!(Conn::active(Config::default(), START).unwrap().wanted_receives(), (1, 8192));
}

//= R-SMBD-10
#[test]
fn a_negotiation_that_takes_too_long_ends_the_connection() {
    let connecting = Conn::active(Config::default(), START).unwrap();
    let accepted = Conn::passive(Config::default(), START).unwrap();
    let responding = asked(Config::default(), &request_bytes(&REQUEST));
    let cases = [
        (connecting, ACTIVE_NEGOTIATION_TIMEOUT, 120),
        (requested(Config::default()), ACTIVE_NEGOTIATION_TIMEOUT, 120),
        (accepted, PASSIVE_NEGOTIATION_TIMEOUT, 5),
        (responding, PASSIVE_NEGOTIATION_TIMEOUT, 5),
    ];
    for (mut conn, timeout, seconds) in cases {
        assert_eq!(timeout, Duration::from_secs(seconds));
        assert_eq!(conn.next_deadline(), Some(START + timeout));
        conn.handle_timeout(just_before(START + timeout));
        assert_eq!(conn.poll_event(), None);
        conn.handle_timeout(START + timeout);
        assert_ended(&mut conn, Reason::NegotiationTimeout);
    }
}

//= R-SMBD-10, R-SMBD-24
#[test]
fn an_established_connection_has_the_idle_timer_alone() {
    let config = Config { keepalive_interval: Duration::from_secs(77), ..Config::default() };
    for conn in [active(config, &RESPONSE), passive(config, &REQUEST)] {
        assert_eq!(conn.state(), State::Established);
        assert_eq!(conn.next_deadline(), Some(START + Duration::from_secs(77)));
    }
}

/// A changed request, the reason for which it ends the connection, and the status of the answer.
type RequestCase = (fn(&mut NegotiateRequest), Reason, Option<u32>);

//= R-SMBD-13, R-SMBD-16, R-SMBD-17, R-SMBD-18, R-SMBD-19
#[test]
fn requests_outside_the_limits_are_refused() {
    let cases: [RequestCase; 6] = [
        (|r| r.max_version = 0x00FF, Reason::Version, Some(status::NOT_SUPPORTED)),
        (|r| r.min_version = 0x0101, Reason::Version, Some(status::NOT_SUPPORTED)),
        (|r| (r.min_version, r.max_version) = (0x0200, 0x0300), Reason::Version, Some(status::NOT_SUPPORTED)),
        (|r| r.credits_requested = 0, Reason::ZeroCredits, None),
        (|r| r.max_receive_size = 127, Reason::Size, None),
        (|r| r.max_fragmented_size = 131_071, Reason::Size, None),
    ];
    for (change, reason, status) in cases {
        let mut request = REQUEST;
        change(&mut request);
        let mut conn = asked(Config::default(), &request_bytes(&request));
        let Some(status) = status else {
            assert_ended(&mut conn, reason);
            continue;
        };
        post(&mut conn);
        let sent = next(&mut conn, START).unwrap();
        let mut expected = [0; NegotiateResponse::LEN];
        expected[..4].copy_from_slice(&[0, 1, 0, 1]);
        expected[12..16].copy_from_slice(&status.to_le_bytes());
        assert_eq!(sent.bytes, expected);
        assert_eq!(conn.poll_event(), Some(Event::Disconnect { reason, is_graceful: true }));
        assert!(next(&mut conn, START).is_none());
        conn.disconnected();
        assert_eq!(conn.poll_event(), Some(Event::Closed(reason)));
    }
}

//= R-SMBD-16, R-SMBD-17, R-SMBD-18, R-SMBD-19
#[test]
fn requests_at_the_limits_are_accepted() {
    let cases: [fn(&mut NegotiateRequest); 5] = [
        |r| r.min_version = 0,
        |r| r.max_version = 0xFFFF,
        |r| r.credits_requested = 1,
        |r| r.max_receive_size = 128,
        |r| r.max_fragmented_size = 131_072,
    ];
    for change in cases {
        let mut request = REQUEST;
        change(&mut request);
        assert_eq!(
            asked(Config::default(), &request_bytes(&request)).state(),
            State::Responding,
            "{request:?}"
        );
    }
}

//= R-SMBD-15
#[test]
fn a_short_request_ends_the_connection() {
    for length in 0..NegotiateRequest::LEN {
        let mut conn = asked(Config::default(), &request_bytes(&REQUEST)[..length]);
        assert_ended(&mut conn, Reason::Truncated);
    }
}

//= R-SMBD-25
#[test]
fn a_short_response_ends_the_connection() {
    for length in 0..NegotiateResponse::LEN {
        let mut conn = requested(Config::default());
        conn.receive(START, &response_bytes(&RESPONSE)[..length], None);
        assert_ended(&mut conn, Reason::Truncated);
    }
}

/// A changed response and the reason for which it ends the connection.
type ResponseCase = (fn(&mut NegotiateResponse), Reason);

//= R-SMBD-26, R-SMBD-27, R-SMBD-28, R-SMBD-29, R-SMBD-30
#[test]
fn responses_outside_the_limits_end_the_connection() {
    let cases: [ResponseCase; 8] = [
        (|r| r.negotiated_version = 0x0101, Reason::Version),
        (|r| r.negotiated_version = 0, Reason::Version),
        (|r| r.max_receive_size = 127, Reason::Size),
        (|r| r.max_fragmented_size = 131_071, Reason::Size),
        (|r| r.credits_granted = 0, Reason::ZeroCredits),
        (|r| r.credits_requested = 0, Reason::ZeroCredits),
        (|r| r.preferred_send_size = 8193, Reason::Size),
        (|r| r.status = status::NOT_SUPPORTED, Reason::Status),
    ];
    for (change, reason) in cases {
        let mut response = RESPONSE;
        change(&mut response);
        let mut conn = requested(Config::default());
        conn.receive(START, &response_bytes(&response), None);
        assert_ended(&mut conn, reason);
    }
}

//= R-SMBD-27, R-SMBD-28, R-SMBD-29
#[test]
fn responses_at_the_limits_are_accepted() {
    let cases: [fn(&mut NegotiateResponse); 6] = [
        |r| r.max_receive_size = 128,
        |r| r.max_fragmented_size = 131_072,
        |r| r.credits_granted = 1,
        |r| r.credits_requested = 1,
        |r| r.preferred_send_size = 8192,
        // Of no effect if the negotiated version is right.
        |r| (r.min_version, r.max_version) = (0, 0),
    ];
    for change in cases {
        let mut response = RESPONSE;
        change(&mut response);
        active(Config::default(), &response);
    }
}

//= R-SMBD-14, R-SMBD-20, R-SMBD-21, R-SMBD-22, R-SMBD-81
#[test]
fn the_passive_side_takes_the_smaller_sizes() {
    // Own sizes to send and receive, the peer's, and the result.
    let cases = [
        ((1364, 8192), (1364, 8192), (1364, 1364)),
        ((1364, 8192), (8000, 1000), (1000, 8000)),
        ((1364, 8192), (9000, 9000), (1364, 8192)),
        ((1364, 8192), (127, 128), (128, 128)),
        ((1364, 8192), (0, 128), (128, 128)),
    ];
    for ((max_send_size, max_receive_size), (preferred, receive), expected) in cases {
        let config = Config { max_send_size, max_receive_size, ..Config::default() };
        let request = NegotiateRequest {
            preferred_send_size: preferred,
            max_receive_size: receive,
            max_fragmented_size: 200_000,
            ..REQUEST
        };
        let mut conn = asked(config, &request_bytes(&request));
        assert_eq!(conn.parameters(), None);
        post(&mut conn);
        let response = NegotiateResponse::parse(&next(&mut conn, START).unwrap().bytes).unwrap();
        assert!(response.preferred_send_size <= request.max_receive_size);
        assert_eq!((response.preferred_send_size, response.max_receive_size), expected);
        let parameters = Parameters {
            max_send_size: expected.0,
            max_receive_size: expected.1,
            max_fragmented_send_size: 200_000,
            max_fragmented_receive_size: config.max_fragmented_receive_size,
            max_read_write_size: config.max_read_write_size,
            keepalive_interval: config.keepalive_interval,
        };
        assert_eq!(conn.poll_event(), Some(Event::Established(parameters)));
        assert_eq!(conn.parameters(), Some(parameters));
        assert_eq!(conn.wanted_receives().1, expected.1);
    }
}

//= R-SMBD-22, R-SMBD-31, R-SMBD-32, R-SMBD-81
#[test]
fn the_active_side_takes_the_smaller_sizes() {
    let cases = [
        ((1364, 8192), (1364, 8192), (1364, 1364)),
        ((1364, 8192), (8000, 1000), (1000, 8000)),
        ((1364, 8192), (100, 128), (128, 128)),
    ];
    for ((max_send_size, max_receive_size), (preferred, receive), expected) in cases {
        for (own, peer) in [(1 << 20, 1 << 23), (1 << 23, 1 << 20)] {
            let config =
                Config { max_send_size, max_receive_size, max_read_write_size: own, ..Config::default() };
            let response = NegotiateResponse {
                preferred_send_size: preferred,
                max_receive_size: receive,
                max_read_write_size: peer,
                max_fragmented_size: 200_000,
                ..RESPONSE
            };
            let parameters = active(config, &response).parameters().unwrap();
            assert_eq!((parameters.max_send_size, parameters.max_receive_size), expected);
            assert_eq!(parameters.max_fragmented_send_size, 200_000);
            assert_eq!(parameters.max_read_write_size, 1 << 20);
        }
    }
}

//= R-SMBD-33
#[test]
fn the_active_side_may_send_as_many_messages_as_are_granted() {
    let mut conn = active(Config::default(), &NegotiateResponse { credits_granted: 4, ..RESPONSE });
    for _ in 0..9 {
        conn.send(vec![1; 10], None).unwrap();
    }
    // The last credit is for a message that grants, and there is nothing more to grant but the receive in reserve.
    assert_eq!(all(&mut conn, START).len(), 4);
}

//= R-SMBD-23
#[test]
fn a_server_without_receives_refuses_with_a_status() {
    let mut conn = asked(Config::default(), &request_bytes(&REQUEST));
    let sent = next(&mut conn, START).unwrap();
    let response = NegotiateResponse::parse(&sent.bytes).unwrap();
    assert_eq!((response.status, response.credits_granted), (status::INSUFFICIENT_RESOURCES, 0));
    let event = Event::Disconnect { reason: Reason::NoReceives, is_graceful: true };
    assert_eq!(conn.poll_event(), Some(event));
}

//= R-SMBD-34
#[test]
fn a_client_without_receives_ends_the_connection() {
    let mut conn = requested(Config::default());
    conn.receive(START, &response_bytes(&RESPONSE), None);
    assert!(matches!(conn.poll_event(), Some(Event::Established(_))));
    assert!(next(&mut conn, START).is_none());
    assert_ended(&mut conn, Reason::NoReceives);
}

//= R-SMBD-34
#[test]
fn a_server_whose_peer_used_all_receives_at_once_goes_on() {
    let mut conn = asked(Config::default(), &request_bytes(&REQUEST));
    conn.receives_posted(1);
    next(&mut conn, START).unwrap();
    receive(&mut conn, &data_bytes(&EMPTY, &[]), None);
    assert!(next(&mut conn, START).is_none());
    assert_eq!(conn.state(), State::Established);
}

//= R-SMBD-43
#[test]
fn a_message_before_the_response_ends_the_connection() {
    let mut conn = asked(Config::default(), &request_bytes(&REQUEST));
    conn.receive(START, &data_bytes(&EMPTY, &[]), None);
    assert_ended(&mut conn, Reason::Early);

    let mut conn = Conn::active(Config::default(), START).unwrap();
    conn.connected();
    conn.receive(START, &response_bytes(&RESPONSE), None);
    assert_ended(&mut conn, Reason::Early);
}

//= R-SMBD-35
#[test]
fn a_disconnect_is_an_event_in_every_state() {
    let connecting = Conn::active(Config::default(), START).unwrap();
    let mut requesting = Conn::active(Config::default(), START).unwrap();
    requesting.connected();
    let conns = [
        connecting,
        requesting,
        requested(Config::default()),
        active(Config::default(), &RESPONSE),
        Conn::passive(Config::default(), START).unwrap(),
        asked(Config::default(), &request_bytes(&REQUEST)),
        passive(Config::default(), &REQUEST),
    ];
    for mut conn in conns {
        let state = conn.state();
        conn.disconnected();
        assert_eq!(conn.poll_event(), Some(Event::Closed(Reason::Disconnected)), "{state:?}");
        assert_eq!((conn.poll_event(), conn.next_deadline()), (None, None));
        assert!(next(&mut conn, START).is_none());
        conn.disconnected();
        conn.close();
        assert_eq!(conn.poll_event(), None);
    }
}

//= R-SMBD-35
#[test]
fn a_close_ends_the_connection_once() {
    for mut conn in [requested(Config::default()), passive(Config::default(), &REQUEST)] {
        conn.close();
        conn.close();
        conn.transport_failed();
        let event = Event::Disconnect { reason: Reason::Closed, is_graceful: true };
        assert_eq!((conn.poll_event(), conn.poll_event()), (Some(event), None));
        conn.disconnected();
        assert_eq!(conn.poll_event(), Some(Event::Closed(Reason::Closed)));
    }
}

#[test]
fn configurations_outside_their_limits_are_refused() {
    let cases: [fn(&mut Config); 6] = [
        |c| c.receive_credit_max = 0,
        |c| c.send_credit_target = 0,
        |c| c.send_queue_length = 0,
        |c| c.max_send_size = 127,
        |c| c.max_receive_size = 127,
        |c| c.max_fragmented_receive_size = 131_071,
    ];
    for change in cases {
        let mut config = Config::default();
        change(&mut config);
        assert!(matches!(Conn::active(config, START), Err(CreateError::Config)), "{config:?}");
    }
}
