// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Idle Connection Timer and `KeepaliveRequested` ([MS-SMBD] 3.1.2.2, 3.1.6.2).

use core::time::Duration;

use state_table::state_table;

state_table! {
    /// Whether the peer was asked for a sign of life: `KeepaliveRequested`.
    pub enum KeepaliveState {
        /// `NONE`: the peer is not asked.
        Idle,
        /// `PENDING`: the next message is to ask.
        Pending,
        /// `SENT`: a message has asked.
        Sent,
    }
    /// Event of the keepalive. An expiry without a transition ends the connection.
    pub enum KeepaliveEvent {
        /// The timer expires.
        Expire: Idle => Pending;
        /// A message is sent.
        Send: Pending => Sent;
        /// A message is received.
        Receive: Idle | Pending | Sent => Idle;
    }
}

/// The timer of one connection. Times are since an origin that the consumer chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    state: KeepaliveState,
    deadline: Duration,
    interval: Duration,
    timeout: Duration,
}

impl Keepalive {
    pub(crate) const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { state: KeepaliveState::Idle, deadline: Duration::MAX, interval, timeout }
    }

    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Whether the next message is to ask for an answer.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(self.state, KeepaliveState::Pending)
    }

    /// The connection is established, or a message was received.
    //= R-SMBD-52
    pub(crate) fn restart(&mut self, now: Duration) {
        if let Ok(state) = self.state.on(KeepaliveEvent::Receive) {
            self.state = state;
        }
        self.deadline = now.saturating_add(self.interval);
    }

    /// A message is being sent. Returns whether it asks for an answer.
    //= R-SMBD-62
    pub(crate) fn send(&mut self, now: Duration) -> bool {
        let Ok(state) = self.state.on(KeepaliveEvent::Send) else { return false };
        self.state = state;
        self.deadline = now.saturating_add(self.timeout);
        true
    }

    /// Returns whether the connection continues.
    //= R-SMBD-73, R-SMBD-74
    pub(crate) fn expire(&mut self, now: Duration) -> bool {
        if now < self.deadline {
            return true;
        }
        let Ok(state) = self.state.on(KeepaliveEvent::Expire) else { return false };
        self.state = state;
        self.deadline = now.saturating_add(self.timeout);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-SMBD-52, R-SMBD-62, R-SMBD-73, R-SMBD-74
    #[test]
    fn table_of_keepalive() {
        insta::assert_snapshot!(KeepaliveState::table(), @r"
        Idle     Expire   -> Pending
        Idle     Receive  -> Idle
        Pending  Send     -> Sent
        Pending  Receive  -> Idle
        Sent     Receive  -> Idle
        ");
    }
}
