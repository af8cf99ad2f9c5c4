// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections with a scripted peer.

use std::time::Duration;

use smb_direct::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};
use smb_direct::{Config, Connection, Event, Reason, State, Token, Transmit};

pub type Conn = Connection<Vec<u8>>;

/// The time at which connections of these tests are created.
pub const START: Duration = Duration::from_secs(1000);

/// A millisecond before `time`.
pub fn just_before(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_millis(1))
}

/// Request of a client that behaves as Windows does.
pub const REQUEST: NegotiateRequest = NegotiateRequest {
    min_version: 0x0100,
    max_version: 0x0100,
    credits_requested: 255,
    preferred_send_size: 1364,
    max_receive_size: 8192,
    max_fragmented_size: 1_048_576,
};

/// Answer of a server that behaves as Windows does.
pub const RESPONSE: NegotiateResponse = NegotiateResponse {
    min_version: 0x0100,
    max_version: 0x0100,
    negotiated_version: 0x0100,
    credits_requested: 255,
    credits_granted: 255,
    status: 0,
    max_read_write_size: 8_388_608,
    preferred_send_size: 1364,
    max_receive_size: 1364,
    max_fragmented_size: 1_048_576,
};

/// A Data Transfer message without payload that grants nothing.
pub const EMPTY: DataTransfer = DataTransfer {
    credits_requested: 255,
    credits_granted: 0,
    flags: 0,
    remaining_data_length: 0,
    data_offset: 0,
    data_length: 0,
};

pub fn request_bytes(request: &NegotiateRequest) -> Vec<u8> {
    let mut bytes = [0; NegotiateRequest::LEN];
    request.emit(&mut bytes);
    bytes.to_vec()
}

pub fn response_bytes(response: &NegotiateResponse) -> Vec<u8> {
    let mut bytes = [0; NegotiateResponse::LEN];
    response.emit(&mut bytes);
    bytes.to_vec()
}

/// The bytes of a header as it is, and of `rest` behind it.
pub fn data_bytes(header: &DataTransfer, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [0; DataTransfer::LEN];
    header.emit(&mut bytes);
    [&bytes, rest].concat()
}

/// A Data Transfer message with `payload`, after which `remaining` bytes follow.
pub fn fragment(payload: &[u8], remaining: u32) -> Vec<u8> {
    let header = DataTransfer {
        remaining_data_length: remaining,
        data_offset: 24,
        data_length: payload.len() as u32,
        ..EMPTY
    };
    data_bytes(&header, &[&[0; 4], payload].concat())
}

/// Posts all receives that the connection wants.
pub fn post(conn: &mut Conn) {
    let (receives, _) = conn.wanted_receives();
    conn.receives_posted(receives);
}

/// A message that a connection sends, with its bytes.
pub struct Sent {
    pub bytes: Vec<u8>,
    pub transmit: Transmit<Vec<u8>>,
}

impl Sent {
    pub fn header(&self) -> DataTransfer {
        DataTransfer::parse(&self.bytes).unwrap().0
    }

    pub fn payload(&self) -> &[u8] {
        DataTransfer::parse(&self.bytes).unwrap().1
    }
}

/// The next message that the connection sends.
pub fn next(conn: &mut Conn, now: Duration) -> Option<Sent> {
    let mut buffer = vec![0xEE; 16384];
    let transmit = conn.poll_transmit(now, &mut buffer)?;
    buffer.truncate(transmit.length);
    Some(Sent { bytes: buffer, transmit })
}

/// All messages that the connection sends now.
pub fn all(conn: &mut Conn, now: Duration) -> Vec<Sent> {
    std::iter::from_fn(|| next(conn, now)).collect()
}

/// An active connection whose request was sent.
pub fn requested(config: Config) -> Conn {
    let mut conn = Conn::active(config, START).unwrap();
    post(&mut conn);
    conn.connected();
    assert_eq!(next(&mut conn, START).unwrap().bytes.len(), NegotiateRequest::LEN);
    assert_eq!(conn.state(), State::AwaitingResponse);
    conn
}

/// An established active connection whose receives are posted and whose first credits are not yet granted.
pub fn active(config: Config, response: &NegotiateResponse) -> Conn {
    let mut conn = requested(config);
    assert!(conn.receive(START, &response_bytes(response), None).is_none());
    assert!(matches!(conn.poll_event(), Some(Event::Established(_))), "{conn:?}");
    post(&mut conn);
    conn
}

/// A passive connection that has received a request.
pub fn asked(config: Config, request: &[u8]) -> Conn {
    let mut conn = Conn::passive(config, START).unwrap();
    post(&mut conn);
    assert!(conn.receive(START, request, None).is_none());
    conn
}

/// An established passive connection.
pub fn passive(config: Config, request: &NegotiateRequest) -> Conn {
    let mut conn = asked(config, &request_bytes(request));
    post(&mut conn);
    assert_eq!(next(&mut conn, START).unwrap().bytes.len(), NegotiateResponse::LEN);
    assert!(matches!(conn.poll_event(), Some(Event::Established(_))), "{conn:?}");
    conn
}

/// An established passive connection with `credits` credits.
pub fn passive_with_credits(config: Config, credits: u16) -> Conn {
    let mut conn = passive(config, &REQUEST);
    receive(&mut conn, &data_bytes(&DataTransfer { credits_granted: credits, ..EMPTY }, &[]), None);
    conn
}

/// Delivers a message. Returns the upper-layer message that is complete, and its token.
pub fn receive(conn: &mut Conn, bytes: &[u8], token: Option<Token>) -> Option<(Vec<u8>, Option<Token>)> {
    let received = conn.receive(START, bytes, token)?;
    Some((received.payload.bytes().to_vec(), received.invalidated))
}

/// Asserts that the connection ended for `reason`, sends nothing and accepts nothing.
#[track_caller]
pub fn assert_ended(conn: &mut Conn, reason: Reason) {
    assert_eq!(conn.poll_event(), Some(Event::Disconnect { reason, is_graceful: false }));
    assert_eq!(conn.state(), State::Closing);
    assert!(next(conn, START).is_none());
    assert_eq!(conn.next_deadline(), None);
    assert!(conn.send(vec![1], None).is_err());
    assert!(conn.receive(START, &fragment(b"late", 0), None).is_none());
    conn.disconnected();
    assert_eq!(conn.poll_event(), Some(Event::Closed(reason)));
    assert_eq!(conn.poll_event(), None);
}
