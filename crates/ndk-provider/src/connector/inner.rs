//! What a connector's lock guards, and what the engine's events do to it.

use super::state::{Event, State};
use super::terms::{Said, Terms};
use super::{Connector, DisconnectEvent};
use crate::host::Path;
use crate::object::{Ref, Request};
use crate::ports::Endpoint;
use crate::provider::{Core, now};
use crate::qp::Qp;
use crate::shared_endpoint::SharedEndpoint;
use crate::status::{self, Answer};
use core::net::SocketAddr;
use ndk_abi::nt::{
    NTSTATUS, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_INVALID, STATUS_IO_TIMEOUT,
    STATUS_NETWORK_UNREACHABLE, STATUS_SUCCESS,
};
use roce::{ConnEvent, ConnId, ConnectSpec, ReadLimits};
use roce_wire::{MacAddr, PathMtu};

/// The state of a connector.
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) connection: Option<ConnId>,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) said: Said,
    /// Held from connect or accept on.
    //= R-CLOSE-14
    pub(super) qp: Option<Ref<Qp>>,
    /// The port of a plain connect.
    //= R-CONN-56, R-CONN-58
    pub(super) endpoint: Option<Endpoint>,
    /// The endpoint it shares with others.
    pub(super) shared: Option<Ref<SharedEndpoint>>,
    pub(super) pending: Option<Request<Connector>>,
    /// The pending request is over, with this.
    pub(super) outcome: Option<NTSTATUS>,
    pub(super) disconnect: Option<DisconnectEvent>,
    /// The disconnect event is to be raised.
    pub(super) disconnect_due: bool,
    /// Somebody is making callbacks.
    pub(super) delivering: bool,
    /// Counted as an active connection.
    pub(super) active: bool,
}

impl Inner {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            connection: None,
            local: None,
            remote: None,
            said: Said::Nothing,
            qp: None,
            endpoint: None,
            shared: None,
            pending: None,
            outcome: None,
            disconnect: None,
            disconnect_due: false,
            delivering: false,
            active: false,
        }
    }

    /// Where a consumer's command leads, and the connection it is about.
    pub(super) fn command(&self, event: Event) -> Answer<(State, ConnId)> {
        match (self.state.on(event), self.connection) {
            (Some(next), Some(connection)) => Ok((next, connection)),
            //= R-CONN-29, R-CONN-37, R-CONN-41
            _ if self.state == State::Lost => Err(STATUS_CONNECTION_ABORTED),
            _ => Err(STATUS_CONNECTION_INVALID),
        }
    }

    /// Sends the request to the peer.
    pub(super) fn ask(&self, core: &Core, way: &Path, context: u64) -> Answer<ConnId> {
        let (Some(local), Some(remote), Some(qp), Said::Here(terms)) =
            (self.local, self.remote, &self.qp, &self.said)
        else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let link = core.host.link();
        let macs = (MacAddr(link.mac), MacAddr(way.remote_mac));
        let spec = ConnectSpec {
            path: roce_wire::Path::new(macs.0, macs.1, local.ip(), remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
            mtu: PathMtu::largest_for(way.mtu.min(link.mtu) as usize).ok_or(STATUS_NETWORK_UNREACHABLE)?,
            reads: terms.reads,
            private_data: terms.private_data.as_slice(),
            context,
        };
        core.engine.connect(now(), qp.pair(), &spec).map_err(status::connection)
    }

    pub(super) fn on_event(&mut self, core: &Core, event: &ConnEvent) {
        match *event {
            // A listener's affair.
            ConnEvent::Request(_) => {}
            //= R-CONN-11
            ConnEvent::Replied { reads, private_data } => {
                if self.enter(core, Event::Reply) {
                    self.said = Said::There(Terms { reads, private_data });
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-6, R-CONN-38, R-CONN-39
            ConnEvent::Refused { reason, private_data } => {
                let asking = self.state == State::Connecting;
                if asking {
                    let reads = ReadLimits::default();
                    self.said = Said::There(Terms { reads, private_data });
                }
                self.fail(core, status::refusal(reason, asking));
            }
            //= R-CONN-11, R-CONN-22, R-CONN-25
            ConnEvent::Established { reads } => {
                if self.enter(core, Event::Establish) {
                    if let Said::There(terms) = &mut self.said {
                        terms.reads = reads;
                    }
                    self.set_active(core, true);
                    core.counters.accept.add();
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-87, R-CONN-90, R-QP-72
            ConnEvent::Disconnected => {
                // A consumer that is saying goodbye itself hears by `DisconnectDone`, which always follows
                // and comes after the flush.
                //= R-CONN-84, R-CONN-94
                if self.state != State::Disconnecting && !self.part(core) {
                    self.fail(core, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-80, R-CONN-81, R-CONN-94, R-CONN-95
            ConnEvent::DisconnectDone { graceful } => {
                if self.enter(core, Event::Finish) {
                    self.finish_pending(if graceful { STATUS_SUCCESS } else { STATUS_IO_TIMEOUT });
                }
            }
            //= R-QP-60, R-QP-69, R-CONN-81, R-CONN-87
            ConnEvent::Aborted => {
                if self.part(core) {
                    core.counters.connection_error.add();
                } else {
                    self.fail(core, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-7, R-CONN-30, R-CONN-42
            ConnEvent::TimedOut => self.fail(core, STATUS_IO_TIMEOUT),
        }
    }

    /// Takes a transition, if it is in the table.
    pub(super) fn enter(&mut self, core: &Core, event: Event) -> bool {
        let Some(next) = self.state.on(event) else { return false };
        self.state = next;
        if !matches!(next, State::Connected) {
            self.set_active(core, false);
        }
        true
    }

    /// The connection is gone without the consumer's doing.
    pub(super) fn part(&mut self, core: &Core) -> bool {
        let parted = self.enter(core, Event::Part);
        self.disconnect_due |= parted;
        parted
    }

    /// Connecting, accepting or disconnecting came to nothing.
    //= R-CONN-10, R-PERF-4, R-PERF-13
    pub(super) fn fail(&mut self, core: &Core, status: NTSTATUS) {
        let disconnecting = self.state == State::Disconnecting;
        if self.enter(core, Event::Fail) {
            if !disconnecting {
                core.counters.connect_failure.add();
                self.let_qp_go();
            }
            self.finish_pending(status);
        }
    }

    /// The queue pair may be used for another attempt.
    //= R-QP-74
    pub(super) fn let_qp_go(&self) {
        if let Some(qp) = &self.qp {
            qp.detach();
        }
    }

    pub(super) fn finish_pending(&mut self, status: NTSTATUS) {
        if self.pending.is_some() {
            self.outcome.get_or_insert(status);
        }
    }

    pub(super) fn take_finished(&mut self) -> Option<(Request<Connector>, NTSTATUS)> {
        let status = self.outcome.take()?;
        self.pending.take().map(|request| (request, status))
    }

    pub(super) fn take_disconnect(&mut self) -> Option<DisconnectEvent> {
        core::mem::take(&mut self.disconnect_due).then(|| self.disconnect.take()).flatten()
    }

    //= R-PERF-6
    pub(super) fn set_active(&mut self, core: &Core, active: bool) {
        if core::mem::replace(&mut self.active, active) != active {
            if active {
                core.counters.active.add();
            } else {
                core.counters.active.remove();
            }
        }
    }
}
