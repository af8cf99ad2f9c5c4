// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs into the same memory, which wait for each other after a loss: how often their responses are requested.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use roce::{CompletionStatus, ReadLimits};
use roce_wire::Packet;

use crate::two_hosts::{Options, TwoHosts, pattern};

const MTU: usize = 1024;
const PACKETS: usize = 8;

/// Three READs into the same memory, of which one response is lost `copies` times, and a fourth one that is posted once the loss is known.
/// Returns how many responses the reader has received or lost.
fn responses(copies: u32) -> usize {
    let reads = ReadLimits { inbound: 16, outbound: 16 };
    let (rate, latency) = (Some(10_000_000_000), Duration::from_micros(50));
    let mut hosts = TwoHosts::connected(Options { reads, rate, latency, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let data = pattern(PACKETS * MTU, 1);
    let (source, sink) = (bob.shared(data.len()), alice.sink(data.len()));
    source.write(&data);
    alice.read(0, &[sink.all()], &source, 0);
    hosts.run();
    hosts.sides[0].completions();

    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    let (mut first, mut lost) = (None, 0);
    hosts.filter = Some(Box::new(move |to, frame| {
        if to != 0 {
            return true;
        }
        counted.set(counted.get() + 1);
        let psn = Packet::parse(frame).unwrap().bth().psn();
        let is_hit = psn.distance_from(*first.get_or_insert(psn)) == 2 && lost < copies;
        lost += u32::from(is_hit);
        !is_hit
    }));
    for context in 1..=3 {
        hosts.sides[0].read(context, &[sink.all()], &source, 0);
    }
    let requested = hosts.sides[0].stat("retransmissions");
    hosts.run_until("the loss", |hosts| hosts.sides[0].stat("retransmissions") > requested);
    hosts.sides[0].read(4, &[sink.all()], &source, 0);
    hosts.run();
    let outcomes: Vec<_> = (1..=4).map(|context| (context, CompletionStatus::Success)).collect();
    assert_eq!(hosts.sides[0].outcomes(), outcomes);
    assert_eq!(sink.read(), data);
    assert_eq!(hosts.sides[0].stat("timeouts"), 0);
    count.get()
}

/// While an earlier READ misses responses, a later one is requested once more, which shows if they are lost again, but not once more with
/// each loss, and one that was never requested is not requested.
//= R-CQ-57
#[test]
fn reads_that_must_wait_for_a_lost_response_are_requested_in_vain_once_at_most() {
    let posted = 4 * PACKETS;
    assert_eq!(responses(1), posted + 1 + 2 * PACKETS);
    assert_eq!(responses(2), posted + 2 + 4 * PACKETS);
    // A tail probe finds the third loss, and asks for what is behind it, too.
    assert_eq!(responses(3), posted + 2 + (PACKETS - 2) + 4 * PACKETS);
}
