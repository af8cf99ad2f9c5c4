// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection as its consumer sees it, as a table. The engine has its own table of CM messages.

use state_table::state_table;

state_table! {
    /// State of a connector.
    pub enum State {
        /// Created by the consumer; no command yet.
        Idle,
        /// Connect pends: the path to the peer is being resolved.
        Resolving,
        /// Connect pends: the CM REQ is sent.
        Connecting,
        /// Connect has completed: the peer has accepted; the consumer must complete or reject.
        ReplyReceived,
        /// Created by the provider for a CM REQ; the consumer must accept or reject.
        RequestReceived,
        /// Accept pends: the CM REP is sent.
        Accepting,
        /// Both sides may send.
        Connected,
        /// Disconnect pends.
        Disconnecting,
        /// The peer has disconnected or the connection broke; the consumer has not disconnected yet.
        PeerDisconnected,
        /// A connect failed; the consumer may connect again.
        Failed,
        /// The connection ended before the consumer completed, accepted or rejected.
        Aborted,
        /// The connection is over, or was never made.
        Ended,
        /// The consumer has closed the connector.
        Closed,
    }
    /// Events of a connector.
    pub enum Event {
        /// The consumer connects.
        //= R-CONN-93
        Connect: Idle | Failed => Resolving;
        /// The path to the peer is resolved.
        Resolve: Resolving => Connecting;
        /// The peer accepts (CM REP).
        Reply: Connecting => ReplyReceived;
        /// The consumer completes the connect.
        Complete: ReplyReceived => Connected;
        /// The consumer accepts.
        Accept: RequestReceived => Accepting;
        /// The peer has completed the connect (CM RTU).
        Establish: Accepting => Connected;
        /// The consumer rejects.
        Reject: ReplyReceived | RequestReceived => Ended;
        /// Resolution fails, or the peer or the engine refuses, aborts or times out.
        Fail: Resolving | Connecting => Failed, Accepting | Disconnecting => Ended, ReplyReceived | RequestReceived => Aborted;
        /// The peer disconnects (CM DREQ), or the connection breaks.
        PeerDisconnect: Connected => PeerDisconnected;
        /// The consumer disconnects.
        Disconnect: Connected => Disconnecting, PeerDisconnected => Ended;
        /// Both sides have disconnected.
        DisconnectDone: Disconnecting => Ended;
        /// The consumer closes the connector.
        Close: Idle | Resolving | Connecting | ReplyReceived | RequestReceived | Accepting | Connected
            | Disconnecting | PeerDisconnected | Failed | Aborted | Ended => Closed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connector_lifecycle() {
        insta::assert_snapshot!(State::table());
    }
}
