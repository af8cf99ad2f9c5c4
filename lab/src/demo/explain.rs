// SPDX-License-Identifier: MIT OR Apache-2.0

//! Explains the figures of a demo that are not zero, for readers who do not know RoCE.

use crate::copy::{End, Outcome};

/// Returns one sentence or two for each figure that may surprise a reader.
#[must_use]
pub fn notes(outcome: &Outcome) -> Vec<String> {
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or(0);
    let wire = &outcome.wire;
    let mut notes = Vec::new();
    let is_faulty = wire.lost + wire.delayed + wire.duplicated + wire.corrupted > 0;
    let is_cut = matches!(outcome.end, End::PeerLost { .. });
    let resent = counter("retransmissions");
    if resent > 0 {
        notes.push(if is_cut {
            format!("{} after the peer stopped answering, until the retry count was used up.", sent_again(resent))
        } else if wire.lost + wire.corrupted > 0 {
            let lost = plural(wire.lost + wire.corrupted, "frame");
            format!(
                "{} to make up for {lost} that did not arrive: {}. A single loss can cost more than one packet, because \
                 READ responses and packets behind the loss may be sent again, too.",
                sent_again(resent),
                per(resent, wire.lost + wire.corrupted, "per loss")
            )
        } else if wire.delayed > 0 {
            format!("{}: frames that arrive out of order can look like losses.", sent_again(resent))
        } else {
            format!(
                "{} although the wire lost no frame: a simulated host did not get a processor in time to send or to \
                 process an acknowledgement. A probe sends one packet again then, and a timeout up to all that are not \
                 acknowledged. The receiver drops such duplicates ({}). In virtual time, with --seed, there are none.",
                sent_again(resent),
                counter("rx_duplicates")
            )
        });
    }
    let timeouts = counter("timeouts");
    if timeouts > 0 {
        let reason = if is_faulty || is_cut {
            "the last packet of a burst or its acknowledgement was lost, so no later packet reported the loss"
        } else {
            "an acknowledgement came late"
        };
        notes.push(format!("{}: {reason}.", plural(timeouts, "timeout")));
    }
    let flushed: u64 = outcome.operations.values().map(|operation| operation.flushed).sum();
    if flushed > 0 {
        notes.push(format!(
            "{} canceled (\"flushed\"): still posted when the connection ended, which is normal for receives.",
            plural_was(flushed, "request")
        ));
    }
    let failed: u64 = outcome.operations.values().map(|operation| operation.failed).sum();
    if failed > 0 {
        notes.push(format!("{} failed, which a complete copy never shows.", plural(failed, "request")));
    }
    let out_of_sequence = counter("drop_sequence");
    if out_of_sequence > 0 {
        notes.push(format!(
            "{} dropped because a packet before was missing; the requester sends them again.",
            plural_was(out_of_sequence, "packet")
        ));
    }
    let dropped = outcome
        .counters
        .iter()
        .filter(|(name, _)| name.starts_with("drop_"))
        .map(|(_, count)| count)
        .sum::<u64>()
        .saturating_sub(out_of_sequence);
    if dropped > 0 {
        notes.push(format!(
            "{} dropped on arrival as invalid: damaged on the wire, or for a connection that had ended.",
            plural_was(dropped, "frame")
        ));
    }
    notes
}

fn sent_again(packets: u64) -> String {
    format!("{} sent again", plural_was(packets, "packet"))
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn plural_was(count: u64, noun: &str) -> String {
    format!("{} {}", plural(count, noun), if count == 1 { "was" } else { "were" })
}

fn per(count: u64, of: u64, unit: &str) -> String {
    format!("{:.1} {unit}", count as f64 / of as f64)
}
