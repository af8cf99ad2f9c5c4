// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a connection, as communication management defines them.
//!
//! What the table does not list does not happen: such an input is refused when it is the consumer's, and
//! ignored when it is the peer's.

//= rocev2 §12
state_table::state_table! {
    /// State of a connection, as this side sees it.
    pub enum State {
        /// Not begun, or over: nothing of it can be on the wire any more.
        Idle,
        /// Active: the REQ is on its way and repeated until answered.
        ReqSent,
        /// Active: the peer's REP has come; the consumer has to complete or to reject.
        RepReceived,
        /// Passive: a REQ has come; the consumer has to accept or to reject.
        ReqReceived,
        /// Passive: the REP is on its way and repeated until answered.
        RepSent,
        /// Both sides may send.
        Established,
        /// This side ends it: the DREQ is on its way and repeated until answered.
        DreqSent,
        /// The peer ends it; the consumer has to disconnect or to release.
        DreqReceived,
        /// Over, while late messages and packets may still arrive.
        TimeWait,
    }
    /// Inputs to a connection.
    pub enum Input {
        /// The consumer connects: REQ.
        Connect: Idle => ReqSent;
        /// A REQ comes in for a listener.
        ReceiveReq: Idle => ReqReceived;
        /// The peer accepts.
        ReceiveRep: ReqSent => RepReceived;
        /// The consumer accepts: REP.
        Accept: ReqReceived => RepSent;
        /// The consumer completes: RTU.
        Complete: RepReceived => Established;
        /// The peer has completed.
        ReceiveRtu: RepSent => Established;
        /// A packet on the queue pair, which stands for a lost RTU.
        Traffic: RepSent => Established;
        /// The consumer refuses: REJ.
        Reject: ReqReceived | RepReceived => TimeWait;
        /// The peer refuses, or has given up.
        ReceiveRej: ReqSent => Idle, ReqReceived | RepReceived | RepSent | Established | DreqSent => TimeWait;
        /// The consumer disconnects: DREQ, or DREP if the peer was first.
        Disconnect: Established => DreqSent, DreqReceived => TimeWait;
        /// The peer disconnects. When both do, either message answers the other.
        ReceiveDreq: Established | RepSent => DreqReceived, RepReceived | DreqSent => TimeWait;
        /// The peer has disconnected in turn.
        ReceiveDrep: DreqSent => TimeWait;
        /// The queue pair failed, or the connection was found to be stale: DREQ if it stood, else REJ.
        Abort: Established => DreqSent, ReqSent | RepReceived | ReqReceived | RepSent => TimeWait;
        /// The address of this side has gone: DREQ if it stood, else REJ, once.
        LoseAddress: ReqSent | RepReceived | ReqReceived | RepSent | Established | DreqSent | DreqReceived => TimeWait;
        /// The last repetition was not answered either.
        GiveUp: ReqSent => Idle, RepSent | DreqSent => TimeWait;
        /// Nothing late can arrive any more.
        Expire: TimeWait => Idle;
    }
}

impl State {
    /// Whether this side repeats its last message until it is answered.
    pub(super) const fn repeats(self) -> bool {
        matches!(self, Self::ReqSent | Self::RepSent | Self::DreqSent)
    }

    /// Whether something of the connection can still happen.
    pub(super) const fn is_live(self) -> bool {
        !matches!(self, Self::Idle | Self::TimeWait)
    }

    /// Whether a peer has begun the connection and not completed it.
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
