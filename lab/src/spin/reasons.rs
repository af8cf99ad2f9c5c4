// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events that a driver may write to the system log after what a script has done, and the order in which they follow each other:
//! each reset and each removal has a reason in the log.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use device_sim::virtio_net::UsedQuirk;
use viordma_inf::events::{self as table, Event, Message};

use super::{
    misbehavior::Misbehavior,
    script::Setup,
    step::{Act, Side},
};

const RESET_LATE: u32 = table::RESET_LATE.number();
const BROKEN_RING: u32 = table::BROKEN_RING.number();
const QUEUE_CORRUPT: u32 = table::QUEUE_CORRUPT.number();
const NEEDS_RESET: u32 = table::NEEDS_RESET.number();
const CHANGED: u32 = table::CHANGED.number();
const GIVEN_UP: u32 = table::GIVEN_UP.number();
const UNSTEADY_CONFIG: u32 = table::UNSTEADY_CONFIG.number();
const COMMAND_LATE: u32 = table::COMMAND_LATE.number();
const COMMAND_REFUSED: u32 = table::COMMAND_REFUSED.number();
const TRANSMIT_STALLED: u32 = table::TRANSMIT_STALLED.number();
const RECOVERED: u32 = table::RECOVERED.number();
const QUEUE_RESET: u32 = table::QUEUE_RESET.number();
const START_DELAYED: u32 = table::START_DELAYED.number();
const QUEUE_RESET_LATE: u32 = table::QUEUE_RESET_LATE.number();
const FEWER_PAIRS: u32 = table::FEWER_PAIRS.number();
const FEWER_BUFFERS: u32 = table::FEWER_BUFFERS.number();
/// Mistakes of consumers, from this one on: the consumer loses its adapter, or memory, in the middle of its calls.
const CONSUMER: u32 = table::CONSUMER_WRONG_IRQL.number();
/// Of an adapter that does not start, and of a device that is gone or does not reset: any error, for all registers read as ones.
const OF_MISSING_RESOURCES: [u32; 3] =
    numbers([table::NO_RESOURCES, table::CONFIGURATION, table::NDIS_REFUSED]);
const OF_MISSING_DEVICE: [u32; 12] = numbers([
    table::REMOVED,
    table::NO_CAPABILITIES,
    table::BROKEN_CAPABILITIES,
    table::MISSING_STRUCTURE,
    table::RESET_LATE,
    table::NO_VERSION_1,
    table::FEATURES_REJECTED,
    table::NO_QUEUE,
    table::BAD_QUEUE_SIZE,
    table::VECTOR_REFUSED,
    table::NEEDS_RESET,
    table::CHANGED,
]);

/// Events of what is waited for, or done without: no reasons for a reset of the device, nor for a removal.
const OF_SLOWNESS: [u32; 7] = [
    RESET_LATE,
    COMMAND_LATE,
    COMMAND_REFUSED,
    TRANSMIT_STALLED,
    QUEUE_RESET,
    QUEUE_RESET_LATE,
    START_DELAYED,
];

/// Microseconds from which on a command is late, and milliseconds from which on a reset is.
const LATE_COMMAND: u32 = 2_000_000;
const LATE_RESET: u32 = 1000;

/// Reasons for a reset that are no proof that the device cannot be used: none for a removal.
const OF_NO_REMOVAL: [u32; 2] = [NEEDS_RESET, UNSTEADY_CONFIG];

/// Consequence when the driver and its device have different views of the buffers in a ring.
const OF_WRONG_ID: [u32; 5] = [QUEUE_CORRUPT, BROKEN_RING, NEEDS_RESET, TRANSMIT_STALLED, QUEUE_RESET];

const fn numbers<const N: usize>(events: [Event; N]) -> [u32; N] {
    let mut numbers = [0; N];
    let mut at = 0;
    while at < N {
        numbers[at] = events[at].number();
        at += 1;
    }
    numbers
}

/// Returns an event in the words of the table.
fn text(number: u32) -> String {
    format!("event {number} ({})", Message::of(number).map_or("unknown", Message::sentence))
}

/// The reasons that a script has given a driver since the last check.
#[derive(Debug)]
pub struct Reasons {
    /// Events that the setup leads to at each start.
    of_setup: Vec<u32>,
    allowed: BTreeSet<u32>,
    /// The device has returned a buffer in place of another one. The driver may notice that only when the device returns the buffer
    /// itself, long after a check.
    has_wrong_id: bool,
    /// Events that were judged.
    judged: usize,
}

impl Reasons {
    /// Creates the reasons that the setup of a script gives the driver of a host.
    pub fn new(setup: &Setup, side: Side) -> Self {
        let mut of_setup = vec![table::ROCE_FRAME_SIZE.number()];
        if setup.messages == Some(0) {
            of_setup.push(table::LINE_INTERRUPT.number());
        }
        if side == Side::Alpha && setup.command_micros >= LATE_COMMAND {
            of_setup.push(COMMAND_LATE);
        }
        if side == Side::Alpha && setup.reset_millis >= LATE_RESET {
            of_setup.push(RESET_LATE);
        }
        if setup.has_invalid_keyword(side) {
            of_setup.push(table::INVALID_KEYWORD.number());
        }
        Self { of_setup, allowed: BTreeSet::new(), has_wrong_id: false, judged: 0 }
    }

    /// Notes what may follow from an act.
    pub fn note(&mut self, act: &Act) {
        let events: &[u32] = match act {
            Act::Fail => &[NEEDS_RESET, START_DELAYED],
            Act::Vanish | Act::Remove | Act::Stuck => {
                self.allowed.extend(OF_MISSING_DEVICE);
                &[COMMAND_LATE, UNSTEADY_CONFIG, TRANSMIT_STALLED, COMMAND_REFUSED]
            }
            Act::Unsteady(_) => &[UNSTEADY_CONFIG, START_DELAYED],
            Act::Stall(_) | Act::PauseSending(_) => &[TRANSMIT_STALLED, QUEUE_RESET],
            Act::PauseCommands(_) | Act::CommandTime(_) | Act::Misbehave(Misbehavior::Unanswered) => {
                &[COMMAND_LATE]
            }
            Act::ResetTime(_) => &[RESET_LATE],
            Act::QueueResetTime(_) => &[QUEUE_RESET_LATE],
            Act::Misbehave(Misbehavior::Corrupt(_, entry)) => {
                self.has_wrong_id |= *entry == UsedQuirk::IdTwice;
                &[QUEUE_CORRUPT, BROKEN_RING, TRANSMIT_STALLED, QUEUE_RESET, COMMAND_LATE, START_DELAYED]
            }
            Act::Misbehave(Misbehavior::Buffers(..)) => &[QUEUE_CORRUPT, BROKEN_RING, START_DELAYED],
            Act::Misbehave(Misbehavior::Refused(_)) => &[COMMAND_REFUSED],
            Act::Misbehave(Misbehavior::Withdrawn(_)) => &[CHANGED],
            Act::Shortage(_) | Act::FailNth(_) => {
                self.allowed.extend(OF_MISSING_RESOURCES);
                &[FEWER_PAIRS, FEWER_BUFFERS]
            }
            _ => &[],
        };
        self.allowed.extend(events);
    }

    /// Judges the events that are new of all that a driver has had, and forgets the reasons.
    ///
    /// # Errors
    /// An event has no reason, or a reset or a removal is not preceded by an event that names its reason.
    pub fn judge(&mut self, log: &[u32]) -> Result<()> {
        // Another failure may be logged before the reset after the first one has ended.
        let (mut named, mut last) = (0_u32, None);
        for &event in log.get(self.judged..).unwrap_or_default() {
            match event {
                RECOVERED | GIVEN_UP => {
                    let left = named.checked_sub(1);
                    named = left.with_context(|| {
                        format!("{} without one that names its reason: {log:?}", text(event))
                    })?;
                    let is_proven = last.is_none_or(|reason| !OF_NO_REMOVAL.contains(&reason));
                    ensure!(event != GIVEN_UP || is_proven, "{} without proof: {log:?}", text(event));
                }
                CONSUMER.. => {}
                event if self.of_setup.contains(&event) => {}
                reason => {
                    let is_late = self.has_wrong_id && OF_WRONG_ID.contains(&reason);
                    ensure!(
                        is_late || self.allowed.contains(&reason),
                        "{} without a reason: {log:?}",
                        text(reason)
                    );
                    let is_of_memory = [FEWER_PAIRS, FEWER_BUFFERS].contains(&reason);
                    if !OF_SLOWNESS.contains(&reason) && !is_of_memory {
                        (named, last) = (named + 1, Some(reason));
                    }
                }
            }
        }
        self.judged = log.len();
        self.allowed.clear();
        Ok(())
    }
}
