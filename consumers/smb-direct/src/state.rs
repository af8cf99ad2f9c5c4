// SPDX-License-Identifier: MIT OR Apache-2.0

//! The states of a connection.

use state_table::state_table;

//= R-SMBD-7
state_table! {
    /// State of a connection. `Role` of [MS-SMBD] 3.1.1.1 is `ACTIVE` in the first three, `PASSIVE` in the next four.
    pub enum State {
        /// The RDMA connection is being made.
        Connecting,
        /// The Negotiate Request is to be sent.
        Requesting,
        /// The Negotiate Response is awaited.
        AwaitingResponse,
        /// The Negotiate Request is awaited.
        AwaitingRequest,
        /// The Negotiate Response is to be sent.
        Responding,
        /// A Negotiate Response is to be sent that refuses.
        Refusing,
        /// The negotiation is complete: both sides send Data Transfer messages.
        Established,
        /// The connection has failed or was closed: the RDMA connection is to be ended.
        Closing,
        /// The RDMA connection has ended.
        Closed,
    }
    /// Event of a connection.
    pub enum Event {
        /// The RDMA connection is made.
        Connect: Connecting => Requesting;
        /// The Negotiate Request is sent.
        SendRequest: Requesting => AwaitingResponse;
        /// A Negotiate Response is acceptable.
        AcceptResponse: AwaitingResponse => Established;
        /// A Negotiate Request is acceptable.
        AcceptRequest: AwaitingRequest => Responding;
        /// A Negotiate Request is refused with a status, or no receive is posted.
        Refuse: AwaitingRequest | Responding => Refusing;
        /// A Negotiate Response with success is sent.
        SendResponse: Responding => Established;
        /// A Negotiate Response with a failure is sent.
        SendRefusal: Refusing => Closing;
        /// The peer breaks the protocol, a timer expires, a send fails, or the consumer closes.
        End: Connecting | Requesting | AwaitingResponse | AwaitingRequest | Responding | Refusing | Established
            => Closing;
        /// The RDMA connection has ended.
        Disconnect: Connecting | Requesting | AwaitingResponse | AwaitingRequest | Responding | Refusing
            | Established | Closing => Closed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-SMBD-7
    #[test]
    fn table_of_a_connection() {
        insta::assert_snapshot!(State::table(), @r"
        Connecting        Connect         -> Requesting
        Connecting        End             -> Closing
        Connecting        Disconnect      -> Closed
        Requesting        SendRequest     -> AwaitingResponse
        Requesting        End             -> Closing
        Requesting        Disconnect      -> Closed
        AwaitingResponse  AcceptResponse  -> Established
        AwaitingResponse  End             -> Closing
        AwaitingResponse  Disconnect      -> Closed
        AwaitingRequest   AcceptRequest   -> Responding
        AwaitingRequest   Refuse          -> Refusing
        AwaitingRequest   End             -> Closing
        AwaitingRequest   Disconnect      -> Closed
        Responding        Refuse          -> Refusing
        Responding        SendResponse    -> Established
        Responding        End             -> Closing
        Responding        Disconnect      -> Closed
        Refusing          SendRefusal     -> Closing
        Refusing          End             -> Closing
        Refusing          Disconnect      -> Closed
        Established       End             -> Closing
        Established       Disconnect      -> Closed
        Closing           Disconnect      -> Closed
        ");
    }
}
