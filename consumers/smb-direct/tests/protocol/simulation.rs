// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connections over a channel that loses and reorders nothing, but delays messages and postings of receives as it likes.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use smb_direct::{Config, Event, Reason, SendErrorKind, State, Token};

use crate::support::{Conn, START};

/// Seeds of each test.
const SEEDS: u64 = 3000;

/// A message on its way, with the token that it invalidates.
type InFlight = (Vec<u8>, Option<Token>);

/// One side: a consumer with its connection.
struct Side {
    conn: Conn,
    /// Receives that are posted, in bytes.
    receives: VecDeque<u32>,
    inbox: VecDeque<InFlight>,
    /// Upper-layer messages that the connection has accepted.
    accepted: Vec<InFlight>,
    /// Upper-layer messages that the connection has returned, sent or not.
    returned: Vec<Vec<u8>>,
    received: Vec<InFlight>,
    /// Messages sent without payload.
    empty: usize,
    event: Option<Event>,
}

impl Side {
    fn new(conn: Conn) -> Self {
        Self {
            conn,
            receives: VecDeque::new(),
            inbox: VecDeque::new(),
            accepted: Vec::new(),
            returned: Vec::new(),
            received: Vec::new(),
            empty: 0,
            event: None,
        }
    }

    fn post(&mut self, at_most: u32) -> bool {
        let (wanted, size) = self.conn.wanted_receives();
        let count = wanted.min(at_most);
        self.receives.extend((0..count).map(|_| size));
        self.conn.receives_posted(count);
        count > 0
    }

    fn transmit(&mut self, now: Duration) -> Option<InFlight> {
        let mut buffer = vec![0; 2048];
        let transmit = self.conn.poll_transmit(now, &mut buffer)?;
        buffer.truncate(transmit.length);
        self.returned.extend(transmit.finished);
        self.empty += usize::from(transmit.length == 20);
        Some((buffer, transmit.invalidate))
    }

    fn deliver(&mut self, now: Duration) -> bool {
        let Some((bytes, token)) = self.inbox.pop_front() else { return false };
        let size = self.receives.pop_front().expect("the peer sent without a posted receive");
        assert!(bytes.len() <= size as usize, "{} bytes for a receive of {size}", bytes.len());
        if let Some(received) = self.conn.receive(now, &bytes, token) {
            self.received.push((received.payload.bytes().to_vec(), received.invalidated));
        }
        true
    }

    fn send(&mut self, rng: &mut Rng) {
        let length = if rng.u8(..) < 4 { 131_072 } else { rng.usize(1..5000) };
        let message: Vec<u8> = (0..length).map(|at| at as u8 ^ rng.clone().u8(..)).collect();
        let token = rng.bool().then(|| rng.u32(..));
        rng.u8(..);
        match self.conn.send(message.clone(), token) {
            Ok(()) => self.accepted.push((message, token)),
            Err(error) => assert_eq!(error.kind, SendErrorKind::QueueFull),
        }
    }

    fn poll(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            self.event = Some(event);
        }
    }
}

struct TwoHosts {
    sides: [Side; 2],
    now: Duration,
}

/// A configuration with few credits, as a rule.
fn config(rng: &mut Rng) -> Config {
    let credits = [1, 1, 2, 2, 3, 4, 5, 8, 255];
    Config {
        receive_credit_max: *rng.choice(&credits).unwrap(),
        send_credit_target: *rng.choice(&credits).unwrap(),
        max_send_size: rng.u32(128..=1364),
        max_receive_size: rng.u32(128..=1364),
        max_fragmented_receive_size: 131_072,
        send_queue_length: rng.u16(1..6),
        ..Config::default()
    }
}

impl TwoHosts {
    fn new(rng: &mut Rng) -> Self {
        let active = config(rng);
        // A client refuses a server that prefers larger messages than it can receive.
        let mut passive = config(rng);
        passive.max_send_size = passive.max_send_size.min(active.max_receive_size);
        let mut sides = [
            Side::new(Conn::active(active, START).unwrap()),
            Side::new(Conn::passive(passive, START).unwrap()),
        ];
        for side in &mut sides {
            assert!(side.post(u32::MAX));
        }
        sides[0].conn.connected();
        let mut hosts = Self { sides, now: START };
        hosts.settle(100);
        assert!(hosts.sides.iter_mut().all(|side| {
            side.poll();
            matches!(side.event.take(), Some(Event::Established(_)))
        }));
        hosts
    }

    fn transmit(&mut self, from: usize) -> bool {
        let Some(message) = self.sides[from].transmit(self.now) else { return false };
        self.sides[1 - from].inbox.push_back(message);
        true
    }

    /// One random step of a random side.
    fn step(&mut self, rng: &mut Rng) {
        let at = rng.usize(..2);
        let side = &mut self.sides[at];
        match rng.u8(..10) {
            0 => side.send(rng),
            1..4 => {
                side.post(rng.u32(..3));
            }
            4..7 => {
                side.deliver(self.now);
            }
            _ => {
                self.transmit(at);
            }
        }
    }

    /// Posts, sends and delivers everything until nothing is left to do, in at most `limit` rounds.
    fn settle(&mut self, limit: usize) {
        for _ in 0..limit {
            let mut progress = false;
            for at in 0..2 {
                progress |= self.sides[at].post(u32::MAX);
                while self.transmit(at) {
                    progress = true;
                }
            }
            for side in &mut self.sides {
                while side.deliver(self.now) {
                    progress = true;
                }
            }
            if !progress {
                return;
            }
        }
        panic!("still messages after {limit} rounds: {:?}", self.sides.each_ref().map(|side| &side.conn));
    }

    /// Asserts that each side has received what the other has accepted, and that both continue.
    fn assert_delivered(&mut self) {
        for at in 0..2 {
            let (sender, receiver) = (&self.sides[at], &self.sides[1 - at]);
            assert_eq!(sender.accepted.len(), receiver.received.len(), "side {at}: {:?}", sender.conn);
            assert!(sender.accepted == receiver.received, "side {at} sent other bytes");
            assert!(sender.accepted.iter().map(|(message, _)| message).eq(&sender.returned));
            assert_eq!((sender.conn.state(), sender.event), (State::Established, None));
        }
    }
}

//= R-SMBD-45, R-SMBD-46, R-SMBD-55, R-SMBD-57, R-SMBD-60, R-SMBD-66, R-SMBD-68, R-SMBD-69
#[test]
fn no_shortage_of_credits_is_a_deadlock_and_no_exchange_is_endless() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut hosts = TwoHosts::new(&mut rng);
        for _ in 0..rng.usize(..400) {
            hosts.step(&mut rng);
            hosts.sides.iter_mut().for_each(Side::poll);
        }
        // A long message of 104 bytes each by single credits.
        hosts.settle(20_000);
        hosts.sides.iter_mut().for_each(Side::poll);
        hosts.assert_delivered();
    }
}

//= R-SMBD-53, R-SMBD-54, R-SMBD-62, R-SMBD-73
#[test]
fn idle_sides_ask_each_other_and_go_on() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut hosts = TwoHosts::new(&mut rng);
        for _ in 0..rng.usize(..100) {
            hosts.step(&mut rng);
        }
        hosts.settle(20_000);
        for _ in 0..4 {
            let before: usize = hosts.sides.iter().map(|side| side.empty).sum();
            hosts.now += Duration::from_secs(120);
            for side in &mut hosts.sides {
                side.conn.handle_timeout(hosts.now);
            }
            hosts.settle(20);
            let sent = hosts.sides.iter().map(|side| side.empty).sum::<usize>() - before;
            // Each asks at most once, and is answered; credits that run low are granted.
            assert!((1..=8).contains(&sent), "{sent} messages");
        }
        hosts.sides.iter_mut().for_each(Side::poll);
        hosts.assert_delivered();
    }
}

//= R-SMBD-35, R-SMBD-63
#[test]
fn a_disconnect_at_any_step_returns_every_message_once() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut hosts = TwoHosts::new(&mut rng);
        for _ in 0..rng.usize(..400) {
            hosts.step(&mut rng);
        }
        let closer = rng.usize(..2);
        hosts.sides[closer].conn.close();
        for _ in 0..rng.usize(..20) {
            hosts.step_after_close(&mut rng, closer);
        }
        let reasons = [Reason::Closed, Reason::Disconnected];
        for (at, reason) in [(closer, reasons[0]), (1 - closer, reasons[1])] {
            let side = &mut hosts.sides[at];
            side.conn.disconnected();
            side.poll();
            assert_eq!(side.event, Some(Event::Closed(reason)));
            while let Some(message) = side.conn.take_unsent() {
                side.returned.push(message);
            }
            assert!(side.accepted.iter().map(|(message, _)| message).eq(&side.returned));
            // What arrives late has no effect.
            side.conn.receive(hosts.now, &[0; 64], None);
            assert!(side.transmit(hosts.now).is_none());
        }
        for at in 0..2 {
            let (sender, receiver) = (&hosts.sides[at], &hosts.sides[1 - at]);
            assert!(sender.accepted.starts_with(&receiver.received));
        }
    }
}

impl TwoHosts {
    /// The RDMA connection is not ended yet: what is in flight arrives at both sides.
    fn step_after_close(&mut self, rng: &mut Rng, closer: usize) {
        let at = rng.usize(..2);
        if rng.bool() {
            self.sides[at].deliver(self.now);
        } else if at != closer {
            // The closed side has no receives to grant, but those that it has granted are posted.
            self.transmit(at);
        }
    }
}
