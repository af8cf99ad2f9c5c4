// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that a responder misses besides the expected one: acknowledgements name them.

use roce::{SendFlags, SendOperation};
use roce_wire::icrc::Crc;
use roce_wire::{AethRepr, Ext, Headers, Packet, Psn, Syndrome, Template};

use crate::threats::forger::Forger;
use crate::two_hosts::Options;

const MTU: usize = 1024;

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

/// Nothing is sent again without a loss.
#[test]
fn a_hint_without_a_loss_has_no_effect() {
    let mut forger = Forger::new(Options::default());
    let (source, target) =
        (forger.hosts.sides[1].source(&[1; 8 * MTU]), forger.hosts.sides[0].shared(8 * MTU));
    let operation = SendOperation::Write { address: target.address(0), key: target.key() };
    forger.hosts.sides[1].post(1, operation, SendFlags::empty(), &[source.all()]).unwrap();
    assert_eq!(forger.sent().len(), 8);
    let headers = |psn| Headers {
        opcode: roce_wire::Opcode::ACKNOWLEDGE,
        solicited: false,
        ack_req: false,
        psn,
        ext: Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 }),
    };
    let template = Template::new(&forger.path, forger.bob()).unwrap();
    for hint in [1, 3, 7, 8, 100] {
        let template = template.with_gap_hint(hint);
        let mut slot = [0; 200];
        let psn = Psn::new(forger.bobs.value().wrapping_sub(1));
        let length = template.begin(Crc::table(), &mut slot, &headers(psn), 0).unwrap().finish();
        forger.give(&slot[..length]);
        assert_eq!(forger.sent().len(), 0, "{hint}");
    }
}
