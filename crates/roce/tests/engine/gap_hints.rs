// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that a responder misses besides the expected one: acknowledgements name them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use roce::{CompletionStatus, SendFlags, SendOperation};
use roce_wire::icrc::Crc;
use roce_wire::{AethRepr, Ext, Headers, Operation, Packet, Syndrome, Template};

use crate::threats::forger::Forger;
use crate::two_hosts::{Memory, Options, TwoHosts, pattern};

const MTU: usize = 1024;
const PACKETS: usize = 400;
const ROUND_TRIP: Duration = Duration::from_micros(100);

/// A host whose first WRITE to the other one has lost two packets, one after the other, so that either knows how the other repeats, and memory
/// for WRITEs.
struct Writes {
    hosts: TwoHosts,
    source: Memory,
    sink: Memory,
    data: Vec<u8>,
    /// Acknowledgements with a gap hint.
    hints: Rc<Cell<u64>>,
}

impl Writes {
    fn new() -> Self {
        let options = Options { rate: Some(10_000_000_000), latency: ROUND_TRIP / 2, ..Options::default() };
        let mut hosts = TwoHosts::connected(options);
        let [alice, bob] = &hosts.sides;
        let data = pattern(PACKETS * MTU, 1);
        let (source, sink) = (alice.source(&data), bob.shared(data.len()));
        // The round trip is measured.
        alice.write(1, &[source.sge(0, MTU)], &sink, 0);
        hosts.run();
        hosts.sides[0].completions();
        let mut writes = Self { hosts, source, sink, data, hints: Rc::default() };
        writes.write(|number| number == 30 || number == 300);
        assert_eq!(writes.hints.get(), 0, "one packet is missing at a time");
        writes
    }

    /// Writes all while the packets with these numbers, in the order of their transmission, are lost. Returns the time that it took.
    fn write(&mut self, lost: impl Fn(u64) -> bool + 'static) -> Duration {
        let Self { hosts, source, sink, data, hints } = self;
        let (mut sent, hints) = (0, hints.clone());
        hosts.filter = Some(Box::new(move |_, frame| {
            let packet = Packet::parse(frame).unwrap();
            hints.set(hints.get() + u64::from(packet.bth().gap_hint() != 0));
            if packet.info().operation == Operation::Write {
                sent += 1;
                return !lost(sent - 1);
            }
            true
        }));
        sink.write(&vec![0; data.len()]);
        let start = hosts.now;
        hosts.sides[0].write(2, &[source.all()], sink, 0);
        hosts.run_until("the completion", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::Success)]);
        assert_eq!(sink.read(), *data);
        assert_eq!(hosts.sides[0].stat("timeouts"), 0);
        hosts.now.duration_since(start)
    }

    fn retransmissions(&self) -> u64 {
        self.hosts.sides[0].stat("retransmissions")
    }
}

/// Three losses of a flight: the NAK names the first one, hints the two others, and none waits for the repair of another.
//= rocev2 §6
//= rocev2 §7
#[test]
fn losses_of_a_flight_are_repaired_at_once() {
    let mut writes = Writes::new();
    let without = writes.write(|_| false);
    let (before, hints) = (writes.retransmissions(), writes.hints.get());
    let with = writes.write(|number| [10, 20, 30].contains(&number));
    assert_eq!(writes.hints.get() - hints, 2, "all but the one of the NAK");
    let again = writes.retransmissions() - before;
    assert!((3..=6).contains(&again), "{again} packets sent again for 3: NAKs may name them, too");
    assert!(with < without + ROUND_TRIP * 2, "{with:?}, {without:?} without losses");
}

/// A requester that goes back sends all of them again anyway.
//= rocev2 §6
#[test]
fn a_peer_that_goes_back_gets_no_hints() {
    let mut forger = Forger::new(Options::default());
    let sink = forger.hosts.sides[1].shared(64 * MTU);
    let start = forger.psn;
    let mut write = |number: u32| {
        let reth =
            roce_wire::RethRepr { address: sink.address(0), r_key: sink.key(), length: 64 * MTU as u32 };
        let (opcode, ext) = match number {
            0 => (roce_wire::Opcode::WRITE_FIRST, Ext::Reth(reth)),
            _ => (roce_wire::Opcode::WRITE_MIDDLE, Ext::None),
        };
        let frame = forger.frame(opcode, start.add(number), ext, &[number as u8; MTU]);
        forger.give(&frame);
        let sent = forger.sent();
        sent.iter().filter(|frame| Packet::parse(frame).unwrap().bth().gap_hint() != 0).count()
    };
    let mut hints = 0;
    for lost in [[2, 7], [22, 27]] {
        let first = lost[0] - 2;
        hints += (first..first + 20).filter(|number| !lost.contains(number)).map(&mut write).sum::<usize>();
        hints += (lost[0]..first + 20).map(&mut write).sum::<usize>();
    }
    assert_eq!(hints, 0);
}

/// Each packet that a peer may have stored behind the missing one is sent again, but only 32 of them, and once in a round trip.
#[test]
fn a_flood_of_hints_repeats_at_most_32_packets_in_a_round_trip() {
    let mut forger = Forger::new(Options::default());
    let source = forger.hosts.sides[1].source(&vec![1; 64 * MTU]);
    let target = forger.hosts.sides[0].shared(64 * MTU);
    let operation = SendOperation::Write { address: target.address(0), key: target.key() };
    let write = |forger: &mut Forger| {
        forger.hosts.sides[1].post(1, operation, SendFlags::empty(), &[source.all()]).unwrap();
        assert_eq!(forger.sent().len(), 64);
    };
    // The peer misses a packet, and has stored those behind it.
    write(&mut forger);
    forger.give(&forger.answer(forger.bobs.add(5), Syndrome(0x60)));
    assert_eq!(forger.sent().len(), 2, "the missing one, and the newest");
    forger.hosts.now = forger.hosts.now + ROUND_TRIP;
    forger.give(&forger.answer(forger.bobs.add(63), Syndrome::ACK));
    forger.bobs = forger.bobs.add(64);
    write(&mut forger);
    forger.give(&forger.answer(forger.bobs, Syndrome(0x60)));
    let mut sent = forger.sent().len();
    for number in 0..1000 {
        forger.give(&hint(&forger, number % 63 + 1));
        sent += forger.sent().len();
    }
    assert!((30..=34).contains(&sent), "{sent} packets for 1000 hints");
}

/// Returns a forged acknowledgement of nothing new with this gap hint.
fn hint(forger: &Forger, distance: u16) -> Vec<u8> {
    let headers = Headers {
        opcode: roce_wire::Opcode::ACKNOWLEDGE,
        solicited: false,
        ack_req: false,
        psn: forger.bobs.sub(1),
        ext: Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 }),
    };
    let template = Template::new(&forger.path, forger.bob()).unwrap().with_gap_hint(distance);
    let mut slot = [0; 200];
    let length = template.begin(Crc::table(), &mut slot, &headers, 0).unwrap().finish();
    slot[..length].to_vec()
}

/// Nothing is sent again without a loss.
#[test]
fn a_hint_without_a_loss_has_no_effect() {
    let mut forger = Forger::new(Options::default());
    let (source, target) =
        (forger.hosts.sides[1].source(&[1; 8 * MTU]), forger.hosts.sides[0].shared(8 * MTU));
    let operation = SendOperation::Write { address: target.address(0), key: target.key() };
    forger.hosts.sides[1].post(1, operation, SendFlags::empty(), &[source.all()]).unwrap();
    assert_eq!(forger.sent().len(), 8);
    for distance in [1, 3, 7, 8, 100] {
        forger.give(&hint(&forger, distance));
        assert_eq!(forger.sent().len(), 0, "{distance}");
    }
}
