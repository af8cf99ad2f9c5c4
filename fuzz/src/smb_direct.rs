// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `smb-direct`: an SMB Direct connection with a peer that sends any messages.
//!
//! The first record is the configuration. Negotiation messages are those of a peer that keeps the rules, unless the script sends others. A model beside the
//! connection counts credits in both directions and reassembles what it receives.

use std::time::Duration;

use smb_direct::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};
use smb_direct::{Config, Connection, Event, Reason, State};

use crate::record::Record;

/// Maximum number of records of a script.
const STEPS: usize = 96;

/// Size of receive buffers of both sides in bytes.
const SIZE: u32 = 1364;

/// Longest message that is reassembled, in bytes.
const FRAGMENTED: u32 = 131_072;

/// Values of the first byte of a record.
pub mod action {
    pub const RECEIVE: u8 = 0;
    pub const RAW: u8 = 120;
    pub const SEND: u8 = 150;
    pub const POST: u8 = 180;
    pub const TRANSMIT: u8 = 205;
    pub const TIME: u8 = 235;
    pub const CONTROL: u8 = 248;
}

/// Offsets of the fields of a record.
pub mod field {
    /// Bits of the first record.
    pub const ROLE: usize = 1;
    /// Credits of the first record: own, requested, granted.
    pub const CREDITS: usize = 2;
    /// Of a received message: credits requested and granted.
    pub const REQUESTED: usize = 1;
    pub const GRANTED: usize = 2;
    pub const FLAGS: usize = 3;
    /// Two bytes: payload in bytes, of a received message or of one to send.
    pub const LENGTH: usize = 4;
    /// Two bytes: bytes that remain, if the lowest bit of `KIND` is set. Otherwise what the sequence requires.
    pub const REMAINING: usize = 6;
    pub const KIND: usize = 8;
    /// Offset of the payload: 24 if 0.
    pub const OFFSET: usize = 9;
    pub const TOKEN: usize = 10;
    pub const FILL: usize = 11;
}

/// Runs the script.
pub fn run(input: &[u8]) {
    let records = Record::all(input, STEPS);
    let Some((first, steps)) = records.split_first() else { return };
    let mut session = Session::new(first);
    for record in steps {
        session.step(record);
        session.check();
    }
    session.finish();
}

struct Session {
    conn: Connection<Vec<u8>>,
    now: Duration,
    posted: u32,
    /// Credits of the peer.
    granted: u32,
    /// Credits of the connection.
    credits: u64,
    /// The message that the peer sends in fragments, and what is missing.
    partial: Vec<u8>,
    missing: u32,
    /// Messages that the connection has accepted, and the bytes of them that it has sent.
    accepted: Vec<Vec<u8>>,
    sent: Vec<u8>,
    returned: Vec<Vec<u8>>,
    ended: Option<Reason>,
}

impl Session {
    fn new(first: &Record) -> Self {
        let credits = |at| u16::from(first.byte(at).max(1));
        let config = Config {
            receive_credit_max: credits(field::CREDITS),
            send_credit_target: credits(field::CREDITS + 1),
            max_send_size: SIZE,
            max_receive_size: SIZE,
            max_fragmented_receive_size: FRAGMENTED,
            send_queue_length: 8,
            ..Config::default()
        };
        let is_active = first.flag(field::ROLE, 0);
        let conn = if is_active {
            Connection::active(config, Duration::ZERO)
        } else {
            Connection::passive(config, Duration::ZERO)
        };
        let mut session = Self {
            conn: conn.expect("a valid configuration"),
            now: Duration::ZERO,
            posted: 0,
            granted: 0,
            credits: 0,
            partial: Vec::new(),
            missing: 0,
            accepted: Vec::new(),
            sent: Vec::new(),
            returned: Vec::new(),
            ended: None,
        };
        session.post(u32::MAX);
        session.conn.connected();
        if !first.flag(field::ROLE, 1) {
            session.negotiate(credits(field::CREDITS + 2));
        }
        session
    }

    /// The peer negotiates as the rules say.
    fn negotiate(&mut self, credits: u16) {
        self.transmit();
        if self.conn.state() == State::AwaitingRequest {
            let mut bytes = [0; NegotiateRequest::LEN];
            let request = NegotiateRequest {
                min_version: 0x0100,
                max_version: 0x0100,
                credits_requested: credits,
                preferred_send_size: SIZE,
                max_receive_size: SIZE,
                max_fragmented_size: FRAGMENTED,
            };
            request.emit(&mut bytes);
            self.receive(&bytes, None);
        } else {
            let mut bytes = [0; NegotiateResponse::LEN];
            let response = NegotiateResponse {
                min_version: 0x0100,
                max_version: 0x0100,
                negotiated_version: 0x0100,
                credits_requested: credits,
                credits_granted: credits,
                status: 0,
                max_read_write_size: 1 << 20,
                preferred_send_size: SIZE,
                max_receive_size: SIZE,
                max_fragmented_size: FRAGMENTED,
            };
            response.emit(&mut bytes);
            self.receive(&bytes, None);
        }
        self.post(u32::MAX);
        self.transmit();
    }

    fn step(&mut self, record: &Record) {
        match record.byte(0) {
            ..action::RAW => self.receive(&self.message(record), token(record)),
            action::RAW..action::SEND => {
                let bytes = record.0.repeat(3);
                let length = usize::from(record.byte(field::LENGTH)) % bytes.len();
                self.receive(&bytes[..length], token(record));
            }
            action::SEND..action::POST => self.send(record),
            action::POST..action::TRANSMIT => self.post(u32::from(record.byte(1))),
            action::TRANSMIT..action::TIME => {
                for _ in 0..record.byte(1) {
                    if !self.transmit() {
                        break;
                    }
                }
            }
            action::TIME..action::CONTROL => {
                self.now += Duration::from_millis(u64::from(record.word(1)) * 4);
                self.conn.handle_timeout(self.now);
            }
            action::CONTROL.. => match record.byte(1) % 8 {
                0 => self.conn.close(),
                1 => self.conn.transport_failed(),
                2 => self.conn.disconnected(),
                _ => self.conn.connected(),
            },
        }
    }

    /// The message of the peer that the record describes.
    fn message(&self, record: &Record) -> Vec<u8> {
        let length = record.word(field::LENGTH) % (SIZE as u16 + 8);
        let kind = record.byte(field::KIND);
        let correct = self.missing.saturating_sub(u32::from(length));
        let remaining = match kind % 8 {
            1 => u32::from(record.word(field::REMAINING)),
            3 => u32::from(record.word(field::REMAINING)) << 16,
            5 => u32::MAX - u32::from(record.word(field::REMAINING)),
            _ => correct,
        };
        let data_offset = match (record.byte(field::OFFSET), length) {
            (0, 0) => 0,
            (0, _) => 24,
            (offset, _) => u32::from(offset),
        };
        let header = DataTransfer {
            credits_requested: u16::from(record.byte(field::REQUESTED)),
            credits_granted: u16::from(record.byte(field::GRANTED)),
            flags: u16::from(record.byte(field::FLAGS)),
            remaining_data_length: remaining,
            data_offset,
            data_length: u32::from(length),
        };
        let mut bytes = [0; DataTransfer::LEN];
        header.emit(&mut bytes);
        let mut bytes = bytes.to_vec();
        let end = data_offset + u32::from(length);
        bytes.resize((end as usize).max(DataTransfer::LEN), record.byte(field::FILL));
        // Some lengths lie.
        if kind & 0xF0 == 0xF0 {
            bytes.truncate(usize::from(record.byte(field::OFFSET)));
        }
        bytes
    }

    /// Delivers a message, for which a receive must be posted.
    fn receive(&mut self, bytes: &[u8], token: Option<u32>) {
        if self.posted == 0 {
            return;
        }
        self.posted -= 1;
        let was_established = self.conn.state() == State::Established;
        let received = self.conn.receive(self.now, bytes, token);
        let received = received.map(|received| (received.payload.bytes().to_vec(), received.invalidated));
        if !was_established {
            assert!(received.is_none(), "a message before the negotiation is complete");
            if self.conn.state() == State::Established {
                let response = NegotiateResponse::parse(bytes).expect("accepted");
                self.credits = u64::from(response.credits_granted);
            }
            return;
        }
        let had_credit = self.granted > 0;
        self.granted = self.granted.saturating_sub(1);
        if self.conn.state() != State::Established {
            assert!(received.is_none(), "a message that ends the connection is passed on");
            return;
        }
        assert!(had_credit, "the peer sent without a credit");
        let (header, payload) = DataTransfer::parse(bytes).expect("accepted");
        self.credits += u64::from(header.credits_granted);
        self.partial.extend_from_slice(payload);
        if !payload.is_empty() {
            self.missing = header.remaining_data_length;
        }
        assert!(self.partial.len() + self.missing as usize <= FRAGMENTED as usize);
        if self.missing > 0 || (payload.is_empty() && received.is_none()) {
            assert!(received.is_none(), "a message is passed on in part");
            return;
        }
        let (bytes, _) = received.expect("the message is complete");
        assert!(bytes == std::mem::take(&mut self.partial), "reassembled to other bytes");
    }

    fn send(&mut self, record: &Record) {
        let message = vec![record.byte(field::FILL); usize::from(record.word(field::LENGTH))];
        let is_established = self.conn.state() == State::Established;
        if self.conn.send(message.clone(), token(record)).is_ok() {
            assert!(is_established && !message.is_empty());
            self.accepted.push(message);
        }
    }

    fn post(&mut self, at_most: u32) {
        let (wanted, _) = self.conn.wanted_receives();
        let count = wanted.min(at_most);
        self.conn.receives_posted(count);
        self.posted += count;
    }

    /// Sends one message. Returns whether there was one.
    fn transmit(&mut self) -> bool {
        let mut buffer = [0xEE; SIZE as usize];
        let before = self.conn.state();
        let Some(transmit) = self.conn.poll_transmit(self.now, &mut buffer) else { return false };
        let bytes = &buffer[..transmit.length];
        match before {
            State::Requesting => assert_eq!(bytes.len(), NegotiateRequest::LEN),
            State::Responding | State::Refusing => {
                let response = NegotiateResponse::parse(bytes).expect("a whole response");
                self.granted = u32::from(response.credits_granted);
            }
            _ => {
                assert_eq!(before, State::Established);
                let (header, payload) = DataTransfer::parse(bytes).expect("a well-formed message");
                assert!(self.credits > 1 || (self.credits == 1 && header.credits_granted > 0));
                self.credits -= 1;
                self.granted += u32::from(header.credits_granted);
                self.sent.extend_from_slice(payload);
            }
        }
        assert!(self.granted <= self.posted, "a credit without a receive");
        self.returned.extend(transmit.finished);
        true
    }

    /// Checks what holds after every step.
    fn check(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            match event {
                Event::Established(_) => assert!(self.ended.is_none()),
                Event::Disconnect { reason, .. } => {
                    assert!(self.ended.replace(reason).is_none(), "two ends");
                }
                Event::Closed(reason) => {
                    assert!(self.ended.is_none_or(|ended| ended == reason), "another reason");
                    self.ended = Some(reason);
                }
            }
        }
        let is_over = matches!(self.conn.state(), State::Closing | State::Closed);
        assert_eq!(self.ended.is_some(), is_over, "an end without an event");
        if is_over {
            assert_eq!(self.conn.next_deadline(), None);
            assert!(!self.transmit(), "a message after the end");
        }
    }

    /// Ends the connection: every message is returned once, and what was sent is the beginning of what was accepted.
    fn finish(&mut self) {
        self.conn.disconnected();
        self.check();
        assert_eq!(self.conn.state(), State::Closed);
        while let Some(message) = self.conn.take_unsent() {
            self.returned.push(message);
        }
        assert!(self.returned == self.accepted, "a message is lost or returned twice");
        assert!(self.accepted.concat().starts_with(&self.sent), "other bytes were sent");
    }
}

fn token(record: &Record) -> Option<u32> {
    (record.byte(field::TOKEN) > 0).then(|| u32::from(record.byte(field::TOKEN)))
}
