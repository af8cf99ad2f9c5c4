//! The consumer's view of a connection, as a table. The engine has its own, of messages.

use crate::machine::machine;

machine! {
    /// The life of a connector, as its consumer sees it.
    pub enum State {
        /// Made by the consumer, nothing asked yet.
        Idle,
        /// Connect pends: the way to the peer is being looked for.
        Resolving,
        /// Connect pends: the peer has been asked.
        Connecting,
        /// Connect is done: the peer has accepted, the consumer has to complete or to reject.
        Answered,
        /// Made by the provider: a peer asks, the consumer has to accept or to reject.
        Indicated,
        /// Accept pends: the peer has to complete.
        Accepting,
        /// Both sides may send.
        Connected,
        /// Disconnect pends.
        Disconnecting,
        /// The peer has gone, or the connection broke; the consumer has not answered yet.
        Parted,
        /// The peer has gone before the consumer completed or accepted.
        Lost,
        /// Over, one way or the other.
        Ended,
        /// The consumer has asked to close the connector.
        Closed,
    }
    /// What happens to it.
    pub enum Event {
        /// The consumer connects.
        Connect,
        /// The way to the peer is found.
        Resolve,
        /// The peer accepts.
        Reply,
        /// The consumer completes.
        Complete,
        /// The consumer accepts.
        Accept,
        /// The peer has completed.
        Establish,
        /// The consumer rejects.
        Reject,
        /// The network, the peer or the engine says no, or nothing.
        Fail,
        /// The peer disconnects, or the connection breaks.
        Part,
        /// The consumer disconnects.
        Disconnect,
        /// Both sides have disconnected.
        Finish,
        /// The consumer closes the connector.
        Close,
    }
    Idle + Connect => Resolving,
    Resolving + Resolve => Connecting,
    Resolving + Fail => Ended,
    Connecting + Reply => Answered,
    Connecting + Fail => Ended,
    Answered + Complete => Connected,
    Answered + Reject => Ended,
    Answered + Fail => Lost,
    Indicated + Accept => Accepting,
    Indicated + Reject => Ended,
    Indicated + Fail => Lost,
    Accepting + Establish => Connected,
    Accepting + Fail => Ended,
    Connected + Part => Parted,
    Connected + Disconnect => Disconnecting,
    Disconnecting + Finish => Ended,
    Disconnecting + Fail => Ended,
    Parted + Disconnect => Ended,
    Idle + Close => Closed,
    Resolving + Close => Closed,
    Connecting + Close => Closed,
    Answered + Close => Closed,
    Indicated + Close => Closed,
    Accepting + Close => Closed,
    Connected + Close => Closed,
    Disconnecting + Close => Closed,
    Parted + Close => Closed,
    Lost + Close => Closed,
    Ended + Close => Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_connector() {
        insta::assert_snapshot!(crate::machine::print(State::TABLE));
    }
}
