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
        /// Send queue drained (SQD): requests that have begun are completed, and no others are begun. The peer is served.
        Sqd,
        /// Of an unreliable service, datagrams (UD) or an unreliable connection (UC): messages are received. Nothing can be sent.
        UnreliableRtr,
        /// The same: messages are received and sent.
        UnreliableRts,
        /// The same in state SQD: messages are received. A message that has begun is sent, and no other is begun.
        UnreliableSqd,
        /// The same in state SQE (send queue error): messages are received. Requests complete as flushed.
        UnreliableSqe,
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
        /// The owner drains the send queue.
        Drain: Rts => Sqd, UnreliableRts => UnreliableSqd;
        /// The owner resumes the send queue.
        Resume: Sqd => Rts, UnreliableSqd => UnreliableRts;
        /// The owner opens the queue pair for an unreliable service.
        Open: Init => UnreliableRtr;
        /// The owner sets what the requester of an unreliable service needs, or ends the error of its send queue.
        Send: UnreliableRtr | UnreliableSqe => UnreliableRts;
        /// A request of an unreliable service failed.
        FailSends: UnreliableRts | UnreliableSqd => UnreliableSqe;
        /// A request failed, or the owner flushed or destroyed the queue pair.
        Fail: Reset | Init | Rtr | Rts | Sqd | UnreliableRtr | UnreliableRts | UnreliableSqd | UnreliableSqe => Error;
        /// The owner resets a queue pair that it connects without connection management.
        Reset: Init | Rtr | Rts | Sqd | UnreliableRtr | UnreliableRts | UnreliableSqd | UnreliableSqe | Error => Reset;
    }
}

impl State {
    /// Returns whether the queue pair processes requests and responses of the peer.
    #[inline]
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd)
    }

    /// Returns whether no new requests are begun, those that are begun being complete or not.
    #[must_use]
    pub const fn drains(self) -> bool {
        matches!(self, Self::Sqd | Self::UnreliableSqd)
    }

    /// Returns whether the queue pair receives messages of an unreliable service.
    #[must_use]
    pub const fn serves_unreliably(self) -> bool {
        matches!(self, Self::UnreliableRtr | Self::UnreliableRts | Self::UnreliableSqd | Self::UnreliableSqe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §9
    #[test]
    fn queue_pair_states() {
        insta::assert_snapshot!(State::table(), @r"
        Reset          Initialize   -> Init
        Reset          Fail         -> Error
        Init           PeerKnown    -> Rtr
        Init           Open         -> UnreliableRtr
        Init           Fail         -> Error
        Init           Reset        -> Reset
        Rtr            Established  -> Rts
        Rtr            Fail         -> Error
        Rtr            Reset        -> Reset
        Rts            Drain        -> Sqd
        Rts            Fail         -> Error
        Rts            Reset        -> Reset
        Sqd            Resume       -> Rts
        Sqd            Fail         -> Error
        Sqd            Reset        -> Reset
        UnreliableRtr  Send         -> UnreliableRts
        UnreliableRtr  Fail         -> Error
        UnreliableRtr  Reset        -> Reset
        UnreliableRts  Drain        -> UnreliableSqd
        UnreliableRts  FailSends    -> UnreliableSqe
        UnreliableRts  Fail         -> Error
        UnreliableRts  Reset        -> Reset
        UnreliableSqd  Resume       -> UnreliableRts
        UnreliableSqd  FailSends    -> UnreliableSqe
        UnreliableSqd  Fail         -> Error
        UnreliableSqd  Reset        -> Reset
        UnreliableSqe  Send         -> UnreliableRts
        UnreliableSqe  Fail         -> Error
        UnreliableSqe  Reset        -> Reset
        Error          Reset        -> Reset
        ");
    }
}
