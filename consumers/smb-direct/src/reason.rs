// SPDX-License-Identifier: MIT OR Apache-2.0

//! Why a connection ends, and how often that happened.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        /// Why a connection ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)+ }

        impl Reason {
            /// All reasons, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the reason as words of a log line.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// A message is shorter than its fixed part.
    Truncated = "message shorter than its header";
    /// A message is longer than the negotiated `MaxReceiveSize`.
    TooLong = "message longer than MaxReceiveSize";
    /// A message arrived before its turn: a Data Transfer message before the negotiation is complete.
    Early = "message before the end of the negotiation";
    /// The peer does not support version 1.0.
    Version = "no common version";
    /// The Negotiate Response has a `Status` that is no success.
    Status = "negotiation failed by the peer";
    /// A size in a negotiation message is outside its limits.
    Size = "size outside its limits";
    /// A number of credits that must not be zero is zero.
    ZeroCredits = "zero credits requested or granted";
    /// `DataOffset` is not a multiple of 8.
    Misaligned = "data not aligned";
    /// Payload lies within the header.
    Overlap = "data overlap the header";
    /// Payload ends behind the end of the message.
    OutOfBounds = "data exceed the message";
    /// A fragmented message is longer than `MaxFragmentedSize`.
    FragmentedTooLong = "fragmented message longer than MaxFragmentedSize";
    /// A fragment does not continue the message that is being reassembled.
    FragmentMismatch = "fragment does not fit the sequence";
    /// A message announces more data but has none.
    EmptyFragment = "fragment without data";
    /// The peer sent without a credit.
    CreditsOverdrawn = "peer sent without credit";
    /// The negotiation took too long.
    NegotiationTimeout = "negotiation timed out";
    /// The peer was silent for the keepalive interval and did not answer.
    KeepaliveTimeout = "keepalive timed out";
    /// The peer granted no credit for a queued message in time.
    CreditTimeout = "no credit in time";
    /// The consumer posted no receive that could be granted.
    NoReceives = "no receive posted";
    /// Memory for the reassembly of a message is exhausted.
    NoMemory = "out of memory";
    /// A send or receive failed, which ends the RDMA connection.
    Transport = "RDMA transport failed";
    /// The peer, or the network, ended the RDMA connection.
    Disconnected = "disconnected by the peer";
    /// The consumer closed the connection.
    Closed = "closed locally";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Reason {}

/// Number of connections that ended, by reason. Shared by all connections of an endpoint; usable from any thread.
#[derive(Debug)]
pub struct ReasonCounts([AtomicU64; Reason::ALL.len()]);

impl ReasonCounts {
    /// Returns counts of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Reason::ALL.len()])
    }

    /// Counts the end of a connection.
    pub fn count(&self, reason: Reason) {
        if let Some(count) = self.0.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections that ended for `reason`.
    #[must_use]
    pub fn get(&self, reason: Reason) -> u64 {
        self.0.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Default for ReasonCounts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_apart() {
        let counts = ReasonCounts::new();
        for (&reason, times) in Reason::ALL.iter().zip(1..) {
            (0..times).for_each(|_| counts.count(reason));
        }
        for (&reason, times) in Reason::ALL.iter().zip(1..) {
            assert_eq!(counts.get(reason), times, "{reason}");
        }
    }
}
