// SPDX-License-Identifier: MIT OR Apache-2.0

//! Effects of the engine's events on a connector: replies, refusals, disconnects, aborts.

use super::connection_data::{ConnectParameters, Exchanged};
use super::object::{Connector, Inner};
use super::state::{Event, State};
use crate::base::object::removal::Abort;
use crate::base::state::provider_state::ProviderState;
use crate::base::status;
use ndk_abi::nt::{NTSTATUS, STATUS_CONNECTION_ABORTED, STATUS_IO_TIMEOUT, STATUS_SUCCESS};
use roce::{ConnEvent, ConnId, DisconnectOutcome, ReadLimits};

impl Connector {
    /// Processes an event of a connection of the engine and makes the callbacks that are due. On the provider's own stack.
    #[inline(never)]
    pub fn on_event(&self, connection: ConnId, event: &ConnEvent) {
        let mut inner = self.inner.lock();
        // An event of a connection that this connector has released is late.
        if inner.connection == Some(connection) {
            inner.on_event(self.provider(), event);
        }
        drop(inner);
        self.make_callbacks();
    }
}

impl Abort for Connector {
    /// Aborts the connection because the device or the local address was removed.
    //= R-PNP-8, R-PNP-10, R-CONN-101
    fn abort(&self) {
        let provider = self.provider();
        let mut inner = self.inner.lock();
        if let Some(qp) = &inner.qp {
            provider.engine.flush(qp.pair());
        }
        inner.on_event(provider, &ConnEvent::Aborted);
        inner.fail(provider, STATUS_CONNECTION_ABORTED);
        drop(inner);
        self.defer_callbacks();
    }
}

impl Inner {
    fn on_event(&mut self, provider: &ProviderState, event: &ConnEvent) {
        match *event {
            // Delivered to the listener.
            ConnEvent::Request(_) => {}
            //= R-CONN-11
            ConnEvent::Replied { reads, private_data } => {
                if self.enter(provider, Event::Reply) {
                    self.exchanged = Exchanged::Peer(ConnectParameters { reads, private_data });
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-6, R-CONN-38, R-CONN-39
            ConnEvent::Refused { reason, private_data } => {
                let connecting = self.state == State::Connecting;
                if connecting {
                    let reads = ReadLimits::default();
                    self.exchanged = Exchanged::Peer(ConnectParameters { reads, private_data });
                }
                self.fail(provider, status::refusal(reason, connecting));
            }
            //= R-CONN-11, R-CONN-22, R-CONN-25
            ConnEvent::Established { reads } => {
                if self.enter(provider, Event::Establish) {
                    if let Exchanged::Peer(parameters) = &mut self.exchanged {
                        parameters.reads = reads;
                    }
                    self.set_active(provider, true);
                    provider.counters.accept.add();
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-87, R-CONN-90, R-QP-72
            ConnEvent::Disconnected => {
                // If the consumer is disconnecting itself, `DisconnectDone` completes that. It always comes, after
                // the flush; another processor may deliver it before this event.
                //= R-CONN-84, R-CONN-94
                if self.state != State::Disconnecting && !self.peer_disconnected(provider) {
                    self.fail(provider, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-82, R-CONN-85, R-PERF-5
            ConnEvent::DisconnectDone(outcome) => {
                if self.enter(provider, Event::DisconnectDone) {
                    if outcome == DisconnectOutcome::Aborted {
                        provider.counters.connection_error.add();
                    }
                    self.finish_pending(status::disconnect(outcome));
                }
            }
            //= R-QP-60, R-QP-69, R-CONN-87
            ConnEvent::Aborted => {
                if self.peer_disconnected(provider) {
                    provider.counters.connection_error.add();
                } else if self.state != State::Disconnecting {
                    self.fail(provider, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-7, R-CONN-42
            ConnEvent::TimedOut => self.fail(provider, STATUS_IO_TIMEOUT),
        }
    }

    /// Raises the disconnect event if the connector is connected. Returns whether it is.
    fn peer_disconnected(&mut self, provider: &ProviderState) -> bool {
        let disconnected = self.enter(provider, Event::PeerDisconnect);
        self.disconnect_event_due |= disconnected;
        disconnected
    }

    /// Connecting, accepting or disconnecting has failed.
    //= R-CONN-10, R-PERF-4, R-PERF-13
    pub fn fail(&mut self, provider: &ProviderState, status: NTSTATUS) {
        let disconnecting = self.state == State::Disconnecting;
        if self.enter(provider, Event::Fail) {
            if !disconnecting {
                provider.counters.connect_failure.add();
                self.detach_qp();
            }
            self.aborted = status;
            self.finish_pending(status);
        }
    }
}
