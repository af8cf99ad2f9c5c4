//! A connection as its consumer sees it, as a table. The engine has its own table of CM messages.

use crate::machine::machine;

machine! {
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
        Connect,
        /// The path to the peer is resolved.
        Resolve,
        /// The peer accepts (CM REP).
        Reply,
        /// The consumer completes the connect.
        Complete,
        /// The consumer accepts.
        Accept,
        /// The peer has completed the connect (CM RTU).
        Establish,
        /// The consumer rejects.
        Reject,
        /// Resolution fails, or the peer or the engine refuses, aborts or times out.
        Fail,
        /// The peer disconnects (CM DREQ), or the connection breaks.
        PeerDisconnect,
        /// The consumer disconnects.
        Disconnect,
        /// Both sides have disconnected.
        DisconnectDone,
        /// The consumer closes the connector.
        Close,
    }
    Idle + Connect => Resolving,
    Resolving + Resolve => Connecting,
    Resolving + Fail => Ended,
    Connecting + Reply => ReplyReceived,
    Connecting + Fail => Ended,
    ReplyReceived + Complete => Connected,
    ReplyReceived + Reject => Ended,
    ReplyReceived + Fail => Aborted,
    RequestReceived + Accept => Accepting,
    RequestReceived + Reject => Ended,
    RequestReceived + Fail => Aborted,
    Accepting + Establish => Connected,
    Accepting + Fail => Ended,
    Connected + PeerDisconnect => PeerDisconnected,
    Connected + Disconnect => Disconnecting,
    Disconnecting + DisconnectDone => Ended,
    Disconnecting + Fail => Ended,
    PeerDisconnected + Disconnect => Ended,
    Idle + Close => Closed,
    Resolving + Close => Closed,
    Connecting + Close => Closed,
    ReplyReceived + Close => Closed,
    RequestReceived + Close => Closed,
    Accepting + Close => Closed,
    Connected + Close => Closed,
    Disconnecting + Close => Closed,
    PeerDisconnected + Close => Closed,
    Aborted + Close => Closed,
    Ended + Close => Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connector_lifecycle() {
        insta::assert_snapshot!(crate::machine::print(State::TABLE));
    }
}
