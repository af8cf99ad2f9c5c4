// SPDX-License-Identifier: MIT OR Apache-2.0

//! Losses of several packets in a row: what is sent again is the run that was lost, not the window.

use roce::{CompletionStatus, SendFlags, SendOperation};
use roce_wire::{Opcode, Packet};

use crate::two_hosts::{Options, TwoHosts, pattern};

const MESSAGE: usize = 1 << 20;

/// Drops the first copy of the packets with these numbers, counted from the first packet to side 1.
fn lose_packets(hosts: &mut TwoHosts, lost: impl Fn(u32) -> bool + 'static) {
    let mut first = None;
    let mut seen = std::collections::HashSet::new();
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        if to != 1 || packet.bth().opcode() == Opcode::ACKNOWLEDGE {
            return true;
        }
        let psn = packet.bth().psn();
        let number = psn.distance_from(*first.get_or_insert(psn)).cast_unsigned();
        !(lost(number) && seen.insert(number))
    }));
}

/// Sends `messages` messages of 1 MiB while packets are lost. Returns the number of packets sent again, and of timeouts, tail probes included.
fn resent(
    options: Options,
    operation: Opcode,
    messages: u64,
    lost: impl Fn(u32) -> bool + 'static,
) -> (u64, u64) {
    let mut hosts = TwoHosts::connected(options);
    let [alice, bob] = &hosts.sides;
    let data = pattern(MESSAGE, 1);
    let (source, target) = (alice.source(&data), bob.shared(MESSAGE));
    // Measures the round trip.
    alice.write(1, &[source.sge(0, 4096)], &target, 0);
    hosts.run();
    hosts.sides[0].completions();
    let before = ["retransmissions", "tail_probes", "timeouts"].map(|name| hosts.sides[0].stat(name));
    lose_packets(&mut hosts, lost);
    for context in 0..messages {
        let [alice, bob] = &hosts.sides;
        if operation == Opcode::SEND_FIRST {
            bob.recv(context, &[target.all()]);
            alice.post(context, SendOperation::Send, SendFlags::empty(), &[source.all()]).unwrap();
        } else {
            alice.write(context, &[source.all()], &target, 0);
        }
    }
    hosts.run();
    let done = hosts.sides[0].outcomes();
    assert_eq!(done.len() as u64, messages);
    assert!(done.iter().all(|(_, status)| *status == CompletionStatus::Success));
    assert_eq!(target.read(), data);
    let after = ["retransmissions", "tail_probes", "timeouts"].map(|name| hosts.sides[0].stat(name));
    (after[0] - before[0], after[1] + after[2] - before[1] - before[2])
}

fn rated() -> Options {
    Options { rate: Some(10_000_000_000), ..Options::default() }
}

//= rocev2 §7
#[test]
fn a_burst_of_losses_resends_a_run_and_not_the_window() {
    for operation in [Opcode::WRITE_FIRST, Opcode::SEND_FIRST] {
        for options in [Options::default(), rated()] {
            for burst in [1, 2, 4, 8] {
                let (packets, timeouts) =
                    resent(options.clone(), operation, 1, move |number| (300..300 + burst).contains(&number));
                // Runs of 1, 2, 4, 8 packets, each with one packet behind it.
                let most = 2 * burst - 1 + burst.ilog2() + 1;
                assert!(packets <= u64::from(most), "{operation:?}, burst of {burst}: {packets} resent");
                assert_eq!(timeouts, 0, "{operation:?}, burst of {burst}");
            }
        }
    }
}

//= rocev2 §7
#[test]
fn separate_losses_resend_two_packets_each() {
    for gap in [2, 3, 50] {
        let (packets, timeouts) =
            resent(rated(), Opcode::WRITE_FIRST, 1, move |number| number == 300 || number == 300 + gap);
        assert!(packets <= 4 && timeouts == 0, "{gap} apart: {packets} resent, {timeouts} timeouts");
    }
}

/// A queue that overflows drops the end of what a window sends; packets behind it show the loss.
//= rocev2 §7
#[test]
fn a_dropped_tail_of_a_window_resends_a_run() {
    for dropped in [2, 4, 8] {
        let (packets, timeouts) =
            resent(rated(), Opcode::WRITE_FIRST, 1, move |number| (128 - dropped..128).contains(&number));
        assert!(packets <= u64::from(2 * dropped + 4), "{dropped} dropped: {packets} resent");
        assert_eq!(timeouts, 0);
    }
}

/// Nothing behind a dropped end of a message shows the loss: a probe does, and what is sent again then was lost.
//= rocev2 §7
#[test]
fn a_dropped_end_of_a_message_resends_what_was_lost() {
    for dropped in [1, 2, 4, 8] {
        let (packets, timeouts) =
            resent(rated(), Opcode::WRITE_FIRST, 1, move |number| (1024 - dropped..1024).contains(&number));
        assert!(packets <= u64::from(dropped) + 3, "{dropped} dropped: {packets} resent");
        assert_eq!(timeouts, 1);
    }
}

/// The packets of the next message cannot be stored and are sent again once, not once for each run.
//= rocev2 §7
#[test]
fn a_dropped_end_of_a_message_with_another_behind_it_resends_at_most_two_windows() {
    for dropped in [1, 2, 4, 8] {
        let (packets, timeouts) =
            resent(rated(), Opcode::WRITE_FIRST, 2, move |number| (1024 - dropped..1024).contains(&number));
        assert!(packets <= 2 * 128 + u64::from(2 * dropped), "{dropped} dropped: {packets} resent");
        assert_eq!(timeouts, 0);
    }
}

/// Two losses in a row may happen again to what is sent again.
//= rocev2 §7
#[test]
fn a_resent_run_that_is_lost_again_is_found() {
    let mut hosts = TwoHosts::connected(rated());
    let [alice, bob] = &hosts.sides;
    let data = pattern(MESSAGE, 1);
    let (source, target) = (alice.source(&data), bob.shared(MESSAGE));
    alice.write(1, &[source.all()], &target, 0);
    let (mut first, mut copies) = (None, [0; 4]);
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        if to != 1 || packet.bth().opcode() == Opcode::ACKNOWLEDGE {
            return true;
        }
        let psn = packet.bth().psn();
        let number = psn.distance_from(*first.get_or_insert(psn));
        match usize::try_from(number - 300).ok().and_then(|number| copies.get_mut(number)) {
            Some(copy) => {
                *copy += 1;
                *copy > 2
            }
            None => true,
        }
    }));
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(target.read(), data);
    let [packets, probes, timeouts] =
        ["retransmissions", "tail_probes", "timeouts"].map(|name| hosts.sides[0].stat(name));
    assert!(
        packets <= 32 && probes + timeouts <= 4,
        "{packets} resent, {probes} probes, {timeouts} timeouts"
    );
}
