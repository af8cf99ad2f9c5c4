// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exchanges in which each message is lost, duplicated or delayed, and the resulting events.
//!
//! An exchange says what the consumer of either side does at which time. It runs once without faults, then again
//! for each message of that run and each fate. The snapshot shows the exchange, and lists the runs with other
//! events.

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
    /// A side is established: it may send.
    Established,
    Disconnected,
}

/// An action of a consumer.
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

/// Returns milliseconds in microseconds.
const fn ms(millis: u64) -> u64 {
    millis * 1000
}

/// Returns a side's actions at an event, each with its delay in microseconds.
type Plan = fn(Side, Moment) -> Vec<(u64, Act)>;

/// Default actions of consumers.
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
        // B is established one latency later, and A's DREQ has not arrived yet.
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
    ("A completes and disconnects at once", |side, moment| match (side, moment) {
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

/// Result of an exchange.
struct Outcome {
    /// Every message sent.
    sent: Vec<(Side, Attribute)>,
    /// Events of the consumers of A and B.
    observed: [Vec<String>; 2],
}

struct Stage {
    hosts: TwoHosts,
    plan: Plan,
    agenda: Vec<(Instant, Side, Act)>,
    conns: [Option<ConnId>; 2],
    observed: [Vec<String>; 2],
}

impl Stage {
    fn moment(&mut self, side: Side, moment: Moment) {
        let now = self.hosts.now;
        self.agenda.extend(
            (self.plan)(side, moment)
                .into_iter()
                .map(|(micros, act)| (now + Duration::from_micros(micros), side, act)),
        );
    }

    /// Executes an action of the consumer of `side`, if it still has a connection.
    fn act(&mut self, side: Side, act: Act) {
        if act == Act::Connect {
            self.conns[0] = Some(self.hosts.connect());
            return;
        }
        let Some(conn) = self.conns[side as usize] else { return };
        if act == Act::Accept {
            // Fails if the peer gave up; the consumer then also gets an event.
            let _ = self.hosts.try_accept(conn, b"welcome", READS);
            return;
        }
        let done = self.hosts.command(side, |cm, now| match act {
            Act::Complete => cm.complete(now, conn),
            Act::Reject => cm.reject(now, conn, b"no"),
            Act::Disconnect => cm.disconnect(now, conn),
            Act::Abort => cm.abort(now, conn),
            _ => cm.release(now, conn),
        });
        if act == Act::Release {
            self.conns[side as usize] = None;
            self.observed[side as usize].push("(leaves)".into());
        }
        if act == Act::Complete && done.is_ok() {
            self.moment(side, Moment::Established);
        }
    }

    fn listen_to_events(&mut self) {
        for side in [Side::A, Side::B] {
            while let Some(event) = self.hosts.host(side).events.pop_front() {
                let (word, moment) = match event.kind {
                    CmEventKind::Request { .. } => ("Request".into(), Some(Moment::Request)),
                    CmEventKind::Replied { .. } => ("Replied".into(), Some(Moment::Replied)),
                    CmEventKind::Established => ("Established".into(), Some(Moment::Established)),
                    CmEventKind::Disconnected => ("Disconnected".into(), Some(Moment::Disconnected)),
                    CmEventKind::Refused { reason, .. } => (format!("Refused({})", reason.0), None),
                    CmEventKind::Aborted => ("Aborted".into(), None),
                    CmEventKind::TimedOut => ("TimedOut".into(), None),
                    CmEventKind::DisconnectDone(DisconnectOutcome::Graceful) => ("Done".into(), None),
                    CmEventKind::DisconnectDone(outcome) => (format!("Done({outcome:?})"), None),
                };
                self.conns[side as usize] = Some(event.conn);
                self.observed[side as usize].push(word);
                if let Some(moment) = moment {
                    self.moment(side, moment);
                } else {
                    // The connection is over.
                    let conn = self.conns[side as usize].take().unwrap();
                    self.hosts.command(side, |cm, now| cm.release(now, conn)).unwrap();
                }
            }
        }
    }
}

/// Runs an exchange, with a special fate for one message.
fn run(plan: Plan, special: Option<(usize, Fate)>) -> Outcome {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let trace = Rc::clone(&sent);
    hosts.set_fate(move |side, message| {
        let mut trace = trace.borrow_mut();
        trace.push((side, message));
        match special {
            Some((number, fate)) if number + 1 == trace.len() => fate,
            _ => Fate::Deliver,
        }
    });
    let mut stage =
        Stage { hosts, plan, agenda: Vec::new(), conns: [None; 2], observed: [Vec::new(), Vec::new()] };
    let end = stage.hosts.now + Duration::from_mins(10);
    stage.moment(Side::A, Moment::Start);
    loop {
        let next = stage.agenda.iter().map(|(at, _, _)| *at).min().unwrap_or(end);
        stage.hosts.collect();
        stage.listen_to_events();
        let next = stage.agenda.iter().map(|(at, _, _)| *at).min().map_or(next, |at| at.min(next));
        if stage.hosts.step(next.min(end)) {
            continue;
        }
        if next >= end {
            break;
        }
        stage.hosts.now = next;
        let due = stage.agenda.iter().position(|(at, _, _)| *at <= next).unwrap();
        let (_, side, act) = stage.agenda.remove(due);
        stage.act(side, act);
    }
    assert_eq!(stage.conns, [None; 2], "an end was not reported: {:?}", stage.observed);
    stage.hosts.nothing_left();
    Outcome { sent: sent.take(), observed: stage.observed }
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
fn every_message_of_every_exchange_may_be_lost_duplicated_or_delayed() {
    let mut table = String::new();
    for (what, plan) in EXCHANGES {
        let good = run(plan, None);
        writeln!(table, "{what}").unwrap();
        let messages: Vec<_> =
            good.sent.iter().map(|(side, message)| format!("{side:?} {}", name(*message))).collect();
        writeln!(table, "    {}", messages.join(", ")).unwrap();
        let show = |observed: &[Vec<String>; 2]| {
            format!("A: {}; B: {}", observed[0].join(" "), observed[1].join(" "))
        };
        writeln!(table, "    {}", show(&good.observed)).unwrap();
        for (number, message) in messages.iter().enumerate() {
            for fate in [Fate::Lose, Fate::Duplicate, Fate::Delay] {
                let bad = run(plan, Some((number, fate)));
                if bad.observed != good.observed {
                    writeln!(table, "  {fate:?} {message}").unwrap();
                    writeln!(table, "    {}", show(&bad.observed)).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}
