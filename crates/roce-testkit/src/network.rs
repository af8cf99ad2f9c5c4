// SPDX-License-Identifier: MIT OR Apache-2.0

//! The loop of a simulation: hosts transmit, then the clock steps to the next event.

use std::time::Duration;

use roce::Instant;

use crate::options::Options;
use crate::side::Side;
use crate::wire::Wire;

/// Hosts, and what connects them.
pub(crate) trait Network {
    fn parts(&mut self) -> Parts<'_>;

    /// Sends a frame that a host transmits.
    fn send(&mut self, from: usize, frame: Vec<u8>);
}

/// The parts of a network that the loop needs.
pub(crate) struct Parts<'a> {
    pub(crate) sides: &'a mut [Side],
    pub(crate) wire: &'a mut Wire,
    pub(crate) now: &'a mut Instant,
    pub(crate) options: &'a Options,
}

/// Transmits and takes events on all hosts that are not stopped, as a driver does after any input.
pub(crate) fn drive(network: &mut impl Network) {
    for from in 0..network.parts().sides.len() {
        if network.parts().wire.is_dead(from) {
            continue;
        }
        let mut more = true;
        while more {
            let Parts { sides, wire, now, options } = network.parts();
            let frames;
            (frames, more) = wire.transmit(from, &sides[from], *now, options);
            for frame in frames {
                network.send(from, frame);
            }
        }
        network.parts().sides[from].take_events();
    }
}

/// Runs until `done` returns true.
///
/// # Panics
/// Panics if that takes longer than 300 s of virtual time.
pub(crate) fn run_until<N: Network>(network: &mut N, what: &str, done: impl Fn(&N) -> bool) {
    assert!(run_within(network, Duration::from_secs(300), done), "{what}: not within 300 s");
}

/// Runs until `done` returns true, for at most `time`. Returns whether `done` did.
pub(crate) fn run_within<N: Network>(network: &mut N, time: Duration, done: impl Fn(&N) -> bool) -> bool {
    let limit = *network.parts().now + time;
    loop {
        drive(network);
        if done(network) {
            return true;
        }
        let Parts { sides, wire, now, options } = network.parts();
        match wire.next_event(sides, options) {
            Some(next) if next <= limit => wire.step(sides, now, options),
            _ => return false,
        };
    }
}
