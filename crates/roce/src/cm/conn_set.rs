// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections and their life: each transition with all that follows from it for peer, consumer and listener.

use super::{
    config::CmConfig,
    conn::{Conn, DisconnectProgress, Pending},
    listener::Listeners,
    messages,
    prf::Prf,
    slots::Slots,
    state::{Input, State},
};
use crate::{
    conn::{ConnId, DisconnectOutcome, ListenerId},
    error::ConnError,
    random::Random,
    time::Instant,
    trace::{ConnectionChange, Ends, Trace, TraceEvent, TraceRecord},
};
use core::net::SocketAddr;
use roce_wire::cm::{CmMessage, RejReason, ServiceId, SidrRepRepr, SidrStatus, private_data};
use roce_wire::{Attribute, Psn};
use state_table::Symbol as _;

/// Maximum retries of a DREQ. When they are used up, the consumer of a vanished peer gets the receives of its
/// queue pair back: within 10 s by default.
const MAX_DREQ_RETRIES: u8 = 7;

/// The connections of a connection manager, and the listeners that requests wait for.
pub(super) struct ConnSet {
    pub(super) config: CmConfig,
    pub(super) random: Random,
    pub(super) listeners: Listeners,
    pub(super) slots: Slots,
}

impl ConnSet {
    pub(super) fn new(config: CmConfig, random: Random) -> Self {
        let slots = Slots::new(Prf::new(&config.seed, config.number_prefix));
        Self { config, random, listeners: Listeners::default(), slots }
    }

    /// Makes the transition of `input`. Returns `false` and changes nothing if the state has none.
    pub(super) fn advance(&mut self, now: Instant, index: u32, input: Input) -> bool {
        let Some(conn) = self.slots.get_mut(index) else { return false };
        let Ok(state) = conn.state.on(input) else { return false };
        let (before, time_wait) = (conn.state, conn.time_wait);
        conn.state = state;
        if let Some(trace) = &self.config.trace {
            report_change(trace, conn, before, input);
        }
        conn.was_established |= state == State::Established;
        if before == State::ReqReceived
            && let Some(listener) = conn.listener
        {
            self.listeners.request_dequeued(listener);
            if !conn.owned {
                // The request was not reported to the consumer yet, and no longer has to be.
                conn.pending = Pending::empty();
                self.slots.pending_events.remove(index);
            }
        }
        if before == State::ReqReceived && state == State::TimeWait {
            // No queue pair of this side was connected: the peer may request another connection with its own.
            //= R-QP-74
            self.slots.forget_qpn(index);
        }
        self.slots.account(now, index, before);
        match state {
            State::TimeWait => self.slots.deadlines.set(index, Some(now + time_wait)),
            State::Idle => {
                self.slots.deadlines.set(index, None);
                self.slots.outbox.remove(index);
                self.slots.forget(index);
            }
            _ => self.slots.deadlines.set(index, None),
        }
        true
    }

    /// Makes the transition of `input`, if there is one, and reports `what` to the consumer.
    pub(super) fn advance_and_notify(&mut self, now: Instant, index: u32, input: Input, what: Pending) {
        let Some(conn) = self.slots.get_mut(index) else { return };
        if conn.state.on(input).is_ok() {
            conn.notify(what);
            self.slots.queue_event(index);
            self.advance(now, index, input);
        }
    }

    /// Makes the transition of `input`, if there is one, and sends `message` to the peer.
    pub(super) fn advance_and_send(
        &mut self,
        now: Instant,
        index: u32,
        input: Input,
        message: &CmMessage,
    ) -> bool {
        if !self.advance(now, index, input) {
            return false;
        }
        let transaction = match message {
            //= rocev2 §11
            CmMessage::Dreq(_) => self.random.next_u64(),
            _ => self.slots.get(index).map_or(0, |conn| conn.transaction),
        };
        if let Some(conn) = self.slots.get_mut(index) {
            let retries = match conn.state {
                State::RepSent => conn.retries,
                //= R-CONN-81
                State::DreqSent => {
                    // The peer chose the interval of the REP; this side chooses the interval of its DREQ.
                    conn.interval = conn.interval.min(self.config.interval());
                    self.config.max_retries.min(MAX_DREQ_RETRIES)
                }
                _ => self.config.max_retries,
            };
            conn.set_message(message, transaction, retries);
        }
        self.slots.queue_message(now, index);
        true
    }

    /// Handles the deadline of a connection: a retry, or the end of what it waits for.
    pub(super) fn expire(&mut self, now: Instant, index: u32) {
        self.slots.deadlines.set(index, None);
        let Some(conn) = self.slots.get_mut(index) else { return };
        if conn.state == State::TimeWait {
            self.advance(now, index, Input::Expire);
        } else if let Some(retries) = conn.retries.checked_sub(1) {
            //= rocev2 §12
            conn.retries = retries;
            self.slots.queue_message(now, index);
        } else {
            let what = if conn.state == State::DreqSent {
                self.disconnect_done(index, DisconnectOutcome::TimedOut)
            } else {
                Pending::TIMED_OUT
            };
            self.advance_and_notify(now, index, Input::GiveUp, what);
        }
    }

    /// Ends a DREQ exchange and returns the event to report, if the consumer requested the disconnect.
    pub(super) fn disconnect_done(&mut self, index: u32, outcome: DisconnectOutcome) -> Pending {
        match self.slots.get_mut(index) {
            Some(conn) if conn.disconnect_progress == DisconnectProgress::Requested => {
                conn.disconnect_progress = DisconnectProgress::Reported;
                conn.disconnect_outcome = outcome;
                Pending::DISCONNECT_DONE
            }
            _ => Pending::empty(),
        }
    }

    /// Disconnects: sends a DREQ, or a DREP if the peer has sent a DREQ.
    ///
    /// # Errors
    /// Those of [`Cm::disconnect`](super::Cm::disconnect).
    pub(super) fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.slots.resolve(id)?;
        if !conn.was_established || conn.disconnect_progress != DisconnectProgress::None {
            return Err(ConnError::State);
        }
        let first = conn.state == State::Established;
        let message = match conn.state {
            State::Established => Some(messages::dreq(conn)),
            State::DreqReceived => Some(messages::drep(conn)),
            _ => None,
        };
        if let Some(conn) = self.slots.get_mut(index) {
            conn.disconnect_progress = DisconnectProgress::Requested;
        }
        let sent = message.is_some_and(|m| self.advance_and_send(now, index, Input::Disconnect, &m));
        //= R-CONN-81, R-CONN-91
        if !first {
            let outcome = if sent { DisconnectOutcome::Graceful } else { DisconnectOutcome::Aborted };
            self.notify_disconnect_done(index, outcome);
        }
        Ok(())
    }

    /// Begins the disconnect of a connection whose queue pair has failed. If it is established, the abort that follows ends the
    /// disconnect.
    ///
    /// # Errors
    /// Those of [`Cm::disconnect`](super::Cm::disconnect).
    pub(super) fn disconnect_failing(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.slots.resolve(id)?;
        if conn.state != State::Established {
            return self.disconnect(now, id);
        }
        if conn.disconnect_progress != DisconnectProgress::None {
            return Err(ConnError::State);
        }
        if let Some(conn) = self.slots.get_mut(index) {
            conn.disconnect_progress = DisconnectProgress::Requested;
        }
        Ok(())
    }

    /// Releases a connection, which is torn down in the background.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    //= R-CONN-89
    //= R-CONN-96
    pub(super) fn release(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.slots.resolve(id)?;
        let state = conn.state;
        if let Some(conn) = self.slots.get_mut(index) {
            conn.owned = false;
            conn.pending = Pending::empty();
        }
        self.slots.pending_events.remove(index);
        match state {
            State::Idle => self.slots.forget(index),
            State::DreqReceived => {
                if let Some(message) = self.slots.get(index).map(messages::drep) {
                    self.advance_and_send(now, index, Input::Disconnect, &message);
                }
            }
            _ => self.abort(now, index),
        }
        self.slots.update_reclaimable(index);
        Ok(())
    }

    /// Aborts a connection in any state: notifies the peer, and the consumer unless it has released it.
    pub(super) fn abort(&mut self, now: Instant, index: u32) {
        let is_established = self.slots.get(index).is_some_and(|conn| conn.state == State::Established);
        self.end(now, index, Input::Abort, RejReason::CONSUMER);
        if is_established {
            // A disconnect was requested while the queue pair was failing.
            self.notify_disconnect_done(index, DisconnectOutcome::Aborted);
        }
    }

    /// Aborts a connection whose local address was removed. The message to the peer is sent once.
    //= R-CONN-101
    pub(super) fn abort_without_address(&mut self, now: Instant, index: u32) {
        let done = self.disconnect_done(index, DisconnectOutcome::AddressRemoved);
        self.end(now, index, Input::LoseAddress, RejReason::CONSUMER);
        if let Some(conn) = self.slots.get_mut(index) {
            conn.notify(done);
            self.slots.queue_event(index);
        }
    }

    /// Ends a connection by `input`; notifies the consumer and the peer unless they know. `reason` is for the REJ
    /// to a peer that is still connecting.
    pub(super) fn end(&mut self, now: Instant, index: u32, input: Input, reason: RejReason) {
        let Some(conn) = self.slots.get_mut(index) else { return };
        if conn.state.on(input).is_err() {
            return;
        }
        conn.reason = reason;
        let message = match conn.state {
            State::Established => Some(messages::dreq(conn)),
            State::DreqReceived => Some(messages::drep(conn)),
            _ if conn.datagrams => None,
            //= rocev2 §12
            State::ReqSent => Some(messages::timeout_rej(conn, self.config.ca_guid)),
            State::ReqReceived | State::RepReceived | State::RepSent => {
                Some(messages::rej(conn, reason, &[]))
            }
            _ => None,
        };
        if !matches!(conn.state, State::DreqSent | State::DreqReceived) {
            conn.notify(Pending::ABORTED);
            self.slots.queue_event(index);
        }
        match message {
            Some(message) => self.advance_and_send(now, index, input, &message),
            None => self.end_resolution(now, index, input) || self.advance(now, index, input),
        };
    }

    /// Refuses a request or a reply.
    pub(super) fn refuse(&mut self, now: Instant, index: u32, reason: RejReason, data: &[u8]) {
        let Some(conn) = self.slots.get_mut(index) else { return };
        conn.reason = reason;
        if conn.datagrams {
            self.refuse_resolution(now, index, Input::Reject, data);
            return;
        }
        conn.keep_answer();
        let message = messages::rej(conn, reason, data);
        self.advance_and_send(now, index, Input::Reject, &message);
    }

    /// Refuses the requests for a listener that were not reported to the consumer yet.
    pub(super) fn refuse_unreported(&mut self, now: Instant, listener: ListenerId) {
        for index in 0..self.slots.capacity() as u32 {
            if self.slots.get(index).is_some_and(|conn| {
                conn.state == State::ReqReceived && conn.listener == Some(listener) && !conn.owned
            }) {
                self.refuse(now, index, RejReason::INVALID_SERVICE_ID, &[]);
            }
        }
    }

    /// Reports the end of a disconnect that needs no answer of the peer.
    fn notify_disconnect_done(&mut self, index: u32, outcome: DisconnectOutcome) {
        let what = self.disconnect_done(index, outcome);
        if let Some(conn) = self.slots.get_mut(index) {
            conn.notify(what);
            self.slots.queue_event(index);
        }
    }
}

/// Service ID resolution.
impl ConnSet {
    /// Makes the transition of `input`, if there is one, and sends the message that `emit` writes, with retries.
    pub(super) fn advance_and_emit(
        &mut self,
        now: Instant,
        index: u32,
        input: Input,
        (attribute, retries): (Attribute, u8),
        emit: impl FnOnce(&mut Conn),
    ) -> bool {
        if !self.advance(now, index, input) {
            return false;
        }
        if let Some(conn) = self.slots.get_mut(index) {
            emit(conn);
            conn.sent = Some(attribute);
            conn.retries = retries;
        }
        self.slots.queue_message(now, index);
        true
    }

    /// Answers a request by `input` with a refusal that `change` turns into the answer. Returns `false` and changes nothing if the state does not allow
    /// it.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        index: u32,
        input: Input,
        change: impl FnOnce(&mut SidrRepRepr),
    ) -> bool {
        if let Some(conn) = self.slots.get_mut(index)
            && conn.state.on(input).is_ok()
        {
            conn.keep_answer();
        }
        self.advance_and_emit(now, index, input, (Attribute::CM_SIDR_REP, 0), |conn| {
            let service_id = ServiceId::datagram_port(conn.local_port);
            let mut reply = SidrRepRepr::refusal(conn.remote_id, SidrStatus::REJECTED, service_id);
            change(&mut reply);
            reply.emit_datagram(conn.transaction, &mut conn.message);
        })
    }

    /// Refuses a request by `input`, for the reason that is recorded. Returns whether the state allows it.
    pub(super) fn refuse_resolution(&mut self, now: Instant, index: u32, input: Input, data: &[u8]) -> bool {
        let reason = self.slots.get(index).map(|conn| conn.reason);
        self.reply(now, index, input, |reply| {
            reply.status = match reason {
                Some(RejReason::INVALID_SERVICE_ID) => SidrStatus::UNSUPPORTED,
                Some(RejReason::NO_RESOURCES) => SidrStatus::NO_QP,
                _ => SidrStatus::REJECTED,
            };
            reply.private_data = private_data(data).unwrap_or([0; 136]);
        })
    }

    /// Ends a request by `input`: refuses one of the peer. Returns `false` and changes nothing if it is none of the peer.
    pub(super) fn end_resolution(&mut self, now: Instant, index: u32, input: Input) -> bool {
        let is_waiting =
            self.slots.get(index).is_some_and(|conn| conn.datagrams && conn.state == State::ReqReceived);
        is_waiting && self.refuse_resolution(now, index, input, &[])
    }
}

/// Reports the transition of a connection from the state `from`, which `input` has made.
#[cold]
#[inline(never)]
fn report_change(trace: &Trace, conn: &Conn, from: State, input: Input) {
    let ends = Ends {
        local: SocketAddr::new(conn.path.local_ip, conn.local_port),
        remote: SocketAddr::new(conn.path.remote_ip, conn.remote_port),
    };
    let reason = match (conn.state, input) {
        // The address was removed, or the connection has failed: a REJ to a peer that is still connecting.
        (State::TimeWait, Input::Abort | Input::LoseAddress) if from != State::Established => {
            Some(conn.reason)
        }
        (_, Input::Reject | Input::ReceiveRej) => Some(conn.reason),
        _ => None,
    };
    let (from, to) = (from.name(), conn.state.name());
    let change = ConnectionChange { ends, from, to, input: input.name(), reason };
    let record =
        TraceRecord { qpn: conn.local.qpn, psn: Psn::default(), event: TraceEvent::Connection(change) };
    (trace.sink)(trace.context, &record);
}
