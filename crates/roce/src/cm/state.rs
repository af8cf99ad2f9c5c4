// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a connection (IBTA Volume 1, chapter 12).
//!
//! An input without transition in the present state is refused if it is a command of the consumer, and ignored
//! if it is a message of the peer.

//= rocev2 §12
state_table::state_table! {
    /// State of a connection, as this side sees it.
    pub enum State {
        /// Not begun, or over and past TIMEWAIT.
        Idle,
        /// Active side: the REQ was sent and is retried until answered.
        ReqSent,
        /// Active side: the peer's REP has arrived; the consumer completes or rejects.
        RepReceived,
        /// Passive side: a REQ has arrived; the consumer accepts or rejects.
        ReqReceived,
        /// Passive side: the REP was sent and is retried until answered.
        RepSent,
        /// Both sides may send.
        Established,
        /// This side disconnects: the DREQ was sent and is retried until answered.
        DreqSent,
        /// The peer disconnects; the consumer disconnects or releases.
        DreqReceived,
        /// Over; late messages and packets may still arrive.
        TimeWait,
    }
    /// Inputs to a connection.
    pub enum Input {
        /// The consumer connects: REQ.
        Connect: Idle => ReqSent;
        /// A REQ arrives for a listener.
        ReceiveReq: Idle => ReqReceived;
        /// The peer accepts: REP.
        ReceiveRep: ReqSent => RepReceived;
        /// The consumer accepts: REP.
        Accept: ReqReceived => RepSent;
        /// The consumer names the queue pair of a datagram service: SIDR_REP.
        Answer: ReqReceived => TimeWait;
        /// The peer names the queue pair of a datagram service: SIDR_REP.
        Resolve: ReqSent => Idle;
        /// The consumer completes: RTU.
        Complete: RepReceived => Established;
        /// The peer completes: RTU.
        ReceiveRtu: RepSent => Established;
        /// A packet arrives on the queue pair, in place of a lost RTU.
        Traffic: RepSent => Established;
        /// The consumer refuses: REJ.
        Reject: ReqReceived | RepReceived => TimeWait;
        /// The peer refuses or gives up: REJ.
        ReceiveRej: ReqSent => Idle, ReqReceived | RepReceived | RepSent | Established | DreqSent => TimeWait;
        /// The consumer disconnects: DREQ, or DREP if the peer was first.
        Disconnect: Established => DreqSent, DreqReceived => TimeWait;
        /// The peer disconnects: DREQ. If both sides do, each DREQ answers the other.
        ReceiveDreq: Established | RepSent => DreqReceived, RepReceived | DreqSent => TimeWait;
        /// The peer answers the DREQ: DREP.
        ReceiveDrep: DreqSent => TimeWait;
        /// The queue pair failed: DREQ if it is established, else REJ.
        Abort: Established => DreqSent, ReqSent | RepReceived | ReqReceived | RepSent => TimeWait;
        /// The local address was removed: DREQ if it is established, else REJ, without retries.
        LoseAddress: ReqSent | RepReceived | ReqReceived | RepSent | Established | DreqSent | DreqReceived => TimeWait;
        /// All retries were used up without answer.
        GiveUp: ReqSent => Idle, RepSent | DreqSent => TimeWait;
        /// TIMEWAIT is over: late messages can no longer arrive.
        Expire: TimeWait => Idle;
    }
}

impl State {
    /// Returns `true` if this side retries its last message until it is answered.
    pub(super) const fn repeats(self) -> bool {
        matches!(self, Self::ReqSent | Self::RepSent | Self::DreqSent)
    }

    /// Returns `true` if the connection counts against the limit per peer.
    pub(super) const fn is_live(self) -> bool {
        !matches!(self, Self::Idle | Self::TimeWait)
    }

    /// Returns `true` if the peer began the connection and has not completed it.
    pub(super) const fn is_half_open(self) -> bool {
        matches!(self, Self::ReqReceived | Self::RepSent)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use state_table::StateMachine as _;

    #[test]
    fn connection_states() {
        insta::assert_snapshot!(State::table());
    }

    #[test]
    fn every_state_is_reachable_and_leads_back_to_idle() {
        let mut forward = BTreeSet::from([State::Idle]);
        let mut backward = BTreeSet::from([State::Idle]);
        for _ in State::ALL {
            for &(from, _, to) in State::TRANSITIONS {
                if forward.contains(&from) {
                    forward.insert(to);
                }
                if backward.contains(&to) {
                    backward.insert(from);
                }
            }
        }
        assert_eq!(forward, State::ALL.iter().copied().collect::<BTreeSet<_>>());
        assert_eq!(backward, State::ALL.iter().copied().collect::<BTreeSet<_>>());
    }
}
