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
        self.inner.lock().abort(self.provider());
        self.defer_callbacks();
    }
}

impl Inner {
    /// Flushes the queue pair, which ends an established connection: the engine reports that. Anything else ends here.
    fn abort(&mut self, provider: &ProviderState) {
        if let Some(qp) = &self.qp {
            provider.engine.flush(qp.pair());
        }
        self.fail(provider, STATUS_CONNECTION_ABORTED);
    }

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

#[cfg(test)]
#[allow(unsafe_code, reason = "an adapter is opened and closed by its pointer")]
mod tests {
    use super::*;
    use crate::base::calls::pended_call::PendedRequest;
    use crate::base::environment::{Environment, Link, Path, ResolveError};
    use crate::base::object::{Borrow, Ref};
    use crate::objects::adapter::Adapter;
    use crate::{Config, Provider};
    use core::net::IpAddr;
    use ndk_abi::ndk::NDK_VERSION;
    use nt::{DriverObject, Owner};

    /// A host without a network.
    struct Alone;

    impl Environment for Alone {
        fn transmit(&self, _: u32, _: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {}

        fn known_path(&self, _: IpAddr, _: IpAddr) -> Result<Option<Path>, ResolveError> {
            Ok(None)
        }

        fn resolve(&self, _: IpAddr, _: IpAddr) -> Result<Path, ResolveError> {
            Err(ResolveError::HostUnreachable)
        }

        fn is_local(&self, _: IpAddr) -> bool {
            false
        }

        fn link(&self) -> Link {
            Link { mac: [2, 0, 0, 0, 0, 1], mtu: 1500, scope: 0 }
        }

        fn is_present(&self) -> bool {
            true
        }

        fn driver(&self) -> DriverObject {
            DriverObject::new(core::ptr::null_mut())
        }

        fn owner(&self) -> Owner {
            Owner::new(core::ptr::null_mut())
        }
    }

    /// Returns the state after the event, and the status of the pending request if it is decided.
    fn after(adapter: &Ref<Adapter>, state: State, event: &ConnEvent) -> (State, Option<NTSTATUS>, NTSTATUS) {
        let created = Connector::new(adapter, None, state).ok().unwrap();
        let this = created.reference();
        let (outcome, pending) = {
            let mut inner = this.inner.lock();
            inner.pending = Some(PendedRequest::new(this.clone(), None));
            inner.on_event(this.provider(), event);
            (inner.outcome, inner.pending.take())
        };
        drop(pending);
        let inner = this.inner.lock();
        (inner.state, outcome, inner.command(Event::Complete).err().unwrap())
    }

    //= R-CONN-29, R-CONN-30, R-CONN-84
    #[test]
    fn event_decides_the_pending_request_and_the_next_command() {
        let provider = Provider::try_new(Alone, Config::default()).unwrap();
        let opened = provider.open(NDK_VERSION { Major: 2, Minor: 1 }).unwrap();
        {
            // SAFETY: the adapter was opened above and is closed after the borrow.
            let adapter = unsafe { Borrow::<Adapter>::new(opened) }.unwrap();
            let (aborted, timed_out) = (STATUS_CONNECTION_ABORTED, STATUS_IO_TIMEOUT);
            let invalid = ndk_abi::nt::STATUS_CONNECTION_INVALID;
            for (state, event, expected) in [
                // Another processor delivers the event before it, `Established`, later.
                (State::Accepting, ConnEvent::Disconnected, (State::Ended, Some(aborted), invalid)),
                (State::Disconnecting, ConnEvent::Disconnected, (State::Disconnecting, None, invalid)),
                (State::ReplyReceived, ConnEvent::Aborted, (State::Aborted, Some(aborted), aborted)),
                (State::ReplyReceived, ConnEvent::TimedOut, (State::Aborted, Some(timed_out), timed_out)),
            ] {
                assert_eq!(after(&adapter, state, &event), expected, "{state:?}, {event:?}");
            }
        }
        // SAFETY: opened above, and closed once.
        unsafe { provider.close(opened) };
    }
}
