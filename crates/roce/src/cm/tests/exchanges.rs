// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every message of every exchange lost, doubled and late, and what consumers hear of it.
//!
//! An exchange says what either side's consumer does when. It is played once on a good wire, and then again
//! for each message of that run and each fate. The snapshot shows how the exchange goes, and lists the runs
//! in which a consumer heard something else.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use super::*;

/// When a consumer does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    Request,
    Replied,
    /// Of either side: it may send.
    Established,
    Disconnected,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Connect,
    Accept,
    Complete,
    Reject,
    Disconnect,
    Abort,
    Release,
}

/// In microseconds.
const fn ms(millis: u64) -> u64 {
    millis * 1000
}

/// After how many microseconds a side does what.
type Plan = fn(Side, Moment) -> Vec<(u64, Act)>;

/// What consumers do that have nothing special in mind.
fn usual(side: Side, moment: Moment) -> Vec<(u64, Act)> {
    match (side, moment) {
        (Side::A, Moment::Start) => vec![(0, Act::Connect)],
        (_, Moment::Request) => vec![(0, Act::Accept)],
        (_, Moment::Replied) => vec![(0, Act::Complete)],
        (_, Moment::Disconnected) => vec![(0, Act::Disconnect)],
        _ => vec![],
    }
}

const EXCHANGES: [(&str, Plan); 14] = [
    ("A disconnects", |side, moment| match (side, moment) {
        (Side::A, Moment::Established) => vec![(ms(20_000), Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("B disconnects", |side, moment| match (side, moment) {
        (Side::B, Moment::Established) => vec![(ms(20_000), Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("both disconnect at once", |side, moment| match moment {
        Moment::Established if side == Side::A => vec![(ms(20_000), Act::Disconnect)],
        // B was established a latency later, and has not heard A's DREQ yet.
        Moment::Established => vec![(ms(20_000) - 40, Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("A disconnects, and B's consumer takes 5 s", |side, moment| match (side, moment) {
        (Side::A, Moment::Established) => vec![(ms(20_000), Act::Disconnect)],
        (Side::B, Moment::Disconnected) => vec![(ms(5_000), Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("A disconnects, and B's consumer takes a minute", |side, moment| match (side, moment) {
        (Side::A, Moment::Established) => vec![(ms(20_000), Act::Disconnect)],
        (Side::B, Moment::Disconnected) => vec![(ms(60_000), Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("A completes and disconnects in one go", |side, moment| match (side, moment) {
        (Side::A, Moment::Established) => vec![(0, Act::Disconnect)],
        _ => usual(side, moment),
    }),
    ("A releases", |side, moment| match (side, moment) {
        (Side::A, Moment::Established) => vec![(ms(20_000), Act::Release)],
        _ => usual(side, moment),
    }),
    ("B's queue pair fails", |side, moment| match (side, moment) {
        (Side::B, Moment::Established) => vec![(ms(20_000), Act::Abort)],
        _ => usual(side, moment),
    }),
    ("B refuses", |side, moment| match moment {
        Moment::Request => vec![(0, Act::Reject), (0, Act::Release)],
        _ => usual(side, moment),
    }),
    ("A refuses what was accepted", |side, moment| match moment {
        Moment::Replied => vec![(0, Act::Reject), (0, Act::Release)],
        _ => usual(side, moment),
    }),
    ("A gives up before B answers", |side, moment| match (side, moment) {
        (Side::A, Moment::Start) => vec![(0, Act::Connect), (ms(2_500), Act::Release)],
        (Side::B, Moment::Request) => vec![(ms(5_000), Act::Accept)],
        _ => usual(side, moment),
    }),
    ("A gives up when B has answered", |side, moment| match (side, moment) {
        (Side::A, Moment::Start) => vec![(0, Act::Connect), (ms(2_500), Act::Release)],
        (Side::A, Moment::Replied) => vec![],
        _ => usual(side, moment),
    }),
    ("B accepts and leaves", |side, moment| match (side, moment) {
        (Side::B, Moment::Request) => vec![(0, Act::Accept), (0, Act::Release)],
        (Side::A, Moment::Replied) => vec![(ms(1_000), Act::Complete)],
        _ => usual(side, moment),
    }),
    ("both consumers take 20 s", |side, moment| match (side, moment) {
        (Side::B, Moment::Request) => vec![(ms(20_000), Act::Accept)],
        (Side::A, Moment::Replied) => vec![(ms(20_000), Act::Complete)],
        (Side::A, Moment::Established) => vec![(ms(20_000), Act::Disconnect)],
        _ => usual(side, moment),
    }),
];

/// How an exchange went.
struct Played {
    /// Every message sent.
    sent: Vec<(Side, Attribute)>,
    /// What the consumers of A and B heard.
    heard: [Vec<String>; 2],
}

struct Stage {
    pair: Pair,
    plan: Plan,
    agenda: Vec<(Instant, Side, Act)>,
    conns: [Option<ConnId>; 2],
    heard: [Vec<String>; 2],
}

impl Stage {
    fn moment(&mut self, side: Side, moment: Moment) {
        let now = self.pair.now;
        self.agenda.extend(
            (self.plan)(side, moment)
                .into_iter()
                .map(|(micros, act)| (now + Duration::from_micros(micros), side, act)),
        );
    }

    /// Does what the consumer of `side` has come to do, if it still has a connection.
    fn act(&mut self, side: Side, act: Act) {
        if act == Act::Connect {
            self.conns[0] = Some(self.pair.connect());
            return;
        }
        let Some(conn) = self.conns[side as usize] else { return };
        if act == Act::Accept {
            // Fails when the peer has left, which the consumer is told, too.
            let _ = self.pair.try_accept(conn, b"welcome", READS);
            return;
        }
        let done = self.pair.command(side, |cm, now| match act {
            Act::Complete => cm.complete(now, conn),
            Act::Reject => cm.reject(now, conn, b"no"),
            Act::Disconnect => cm.disconnect(now, conn),
            Act::Abort => cm.abort(now, conn),
            _ => cm.release(now, conn),
        });
        if act == Act::Release {
            self.conns[side as usize] = None;
            self.heard[side as usize].push("(leaves)".into());
        }
        if act == Act::Complete && done.is_ok() {
            self.moment(side, Moment::Established);
        }
    }

    fn listen_to_events(&mut self) {
        for side in [Side::A, Side::B] {
            while let Some(event) = self.pair.host(side).events.pop_front() {
                let (word, moment) = match event.kind {
                    EventKind::Request { .. } => ("Request".into(), Some(Moment::Request)),
                    EventKind::Replied { .. } => ("Replied".into(), Some(Moment::Replied)),
                    EventKind::Established => ("Established".into(), Some(Moment::Established)),
                    EventKind::Disconnected => ("Disconnected".into(), Some(Moment::Disconnected)),
                    EventKind::Refused { reason, .. } => (format!("Refused({})", reason.0), None),
                    EventKind::Aborted => ("Aborted".into(), None),
                    EventKind::TimedOut => ("TimedOut".into(), None),
                    EventKind::DisconnectDone { graceful: true } => ("Done".into(), None),
                    EventKind::DisconnectDone { graceful: false } => ("Done(alone)".into(), None),
                };
                self.conns[side as usize] = Some(event.conn);
                self.heard[side as usize].push(word);
                if let Some(moment) = moment {
                    self.moment(side, moment);
                } else {
                    // It is over.
                    let conn = self.conns[side as usize].take().unwrap();
                    self.pair.command(side, |cm, now| cm.release(now, conn)).unwrap();
                }
            }
        }
    }
}

/// Plays an exchange, with another fate for one message.
fn play(plan: Plan, special: Option<(usize, Fate)>) -> Played {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let mut pair = Pair::new();
    pair.listen();
    let trace = Rc::clone(&sent);
    pair.meddle(move |side, message| {
        let mut trace = trace.borrow_mut();
        trace.push((side, message));
        match special {
            Some((number, fate)) if number + 1 == trace.len() => fate,
            _ => Fate::Deliver,
        }
    });
    let mut stage =
        Stage { pair, plan, agenda: Vec::new(), conns: [None; 2], heard: [Vec::new(), Vec::new()] };
    let end = stage.pair.now + Duration::from_mins(10);
    stage.moment(Side::A, Moment::Start);
    loop {
        let next = stage.agenda.iter().map(|(at, _, _)| *at).min().unwrap_or(end);
        stage.pair.collect();
        stage.listen_to_events();
        let next = stage.agenda.iter().map(|(at, _, _)| *at).min().map_or(next, |at| at.min(next));
        if stage.pair.step(next.min(end)) {
            continue;
        }
        if next >= end {
            break;
        }
        stage.pair.now = next;
        let due = stage.agenda.iter().position(|(at, _, _)| *at <= next).unwrap();
        let (_, side, act) = stage.agenda.remove(due);
        stage.act(side, act);
    }
    assert_eq!(stage.conns, [None; 2], "an end was not told: {:?}", stage.heard);
    stage.pair.nothing_left();
    Played { sent: sent.take(), heard: stage.heard }
}

fn name(message: Attribute) -> &'static str {
    match message {
        Attribute::CM_REQ => "REQ",
        Attribute::CM_MRA => "MRA",
        Attribute::CM_REJ => "REJ",
        Attribute::CM_REP => "REP",
        Attribute::CM_RTU => "RTU",
        Attribute::CM_DREQ => "DREQ",
        _ => "DREP",
    }
}

//= rocev2 §12
//= rocev2 §17
#[test]
fn every_message_of_every_exchange_may_be_lost_doubled_or_late() {
    let mut table = String::new();
    for (what, plan) in EXCHANGES {
        let good = play(plan, None);
        writeln!(table, "{what}").unwrap();
        let messages: Vec<_> =
            good.sent.iter().map(|(side, message)| format!("{side:?} {}", name(*message))).collect();
        writeln!(table, "    {}", messages.join(", ")).unwrap();
        let show = |heard: &[Vec<String>; 2]| format!("A: {}; B: {}", heard[0].join(" "), heard[1].join(" "));
        writeln!(table, "    {}", show(&good.heard)).unwrap();
        for (number, message) in messages.iter().enumerate() {
            for fate in [Fate::Lose, Fate::Double, Fate::Delay] {
                let bad = play(plan, Some((number, fate)));
                if bad.heard != good.heard {
                    writeln!(table, "  {fate:?} {message}").unwrap();
                    writeln!(table, "    {}", show(&bad.heard)).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}
