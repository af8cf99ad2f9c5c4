// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a queue pair.

state_table::state_table! {
    /// State of a queue pair.
    ///
    /// Source: rocev2 §9.
    pub enum State {
        /// Created; nothing can be posted.
        Reset,
        /// Receives may be posted. Packets are dropped.
        Init,
        /// Ready to receive: requests of the peer are served. Nothing can be sent.
        Rtr,
        /// Ready to send: connected in both directions.
        Rts,
        /// Datagrams of any peer are received, and sent to any: the queue pair has no peer of its own.
        Datagrams,
        /// Every request completes as flushed, and packets are dropped. The last state of a queue pair that connection management
        /// has connected.
        Error,
    }
    /// Events of a queue pair.
    pub enum Event {
        /// The queue pair is created.
        Initialize: Reset => Init;
        /// The peer, the path and the peer's first PSN are known.
        PeerKnown: Init => Rtr;
        /// The connection is established.
        Established: Rtr => Rts;
        /// A request failed, or the owner flushed or destroyed the queue pair.
        /// The owner opens the queue pair for unreliable datagrams.
        Open: Init => Datagrams;
        Fail: Reset | Init | Rtr | Rts | Datagrams => Error;
        /// The owner resets a queue pair that it connects without connection management.
        Reset: Init | Rtr | Rts | Datagrams | Error => Reset;
    }
}

impl State {
    /// Returns whether the queue pair processes requests and responses of the peer.
    #[inline]
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §9
    #[test]
    fn queue_pair_states() {
        insta::assert_snapshot!(State::table(), @r"
        Reset      Initialize   -> Init
        Reset      Fail         -> Error
        Init       PeerKnown    -> Rtr
        Init       Open         -> Datagrams
        Init       Fail         -> Error
        Init       Reset        -> Reset
        Rtr        Established  -> Rts
        Rtr        Fail         -> Error
        Rtr        Reset        -> Reset
        Rts        Fail         -> Error
        Rts        Reset        -> Reset
        Datagrams  Fail         -> Error
        Datagrams  Reset        -> Reset
        Error      Reset        -> Reset
        ");
    }
}
