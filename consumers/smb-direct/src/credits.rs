// SPDX-License-Identifier: MIT OR Apache-2.0

//! Credits of a connection, in both directions ([MS-SMBD] 3.1.5.9).
//!
//! A credit is the right to send one message, backed by a posted receive of the other side. Receives are posted first and granted
//! later. [`RESERVE`] of them are granted beyond the limit, in need: by a message that uses the last credit, and by one without
//! payload whose receiver may have to grant in turn.
//!
//! Never deadlocked: a side without credits has used its last one for a message that granted at least one. Its peer receives that
//! message and has no credit outstanding, so that it grants, for which the credit received suffices. The reserve is never
//! used up when it is needed: a message without payload leaves at most one beyond the limit granted and a last credit
//! one more, and before the next last credit a message was received, which has used one.

/// Receives to post beyond `ReceiveCreditMax`.
const RESERVE: u32 = 2;

/// Credits in both directions, in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    /// `ReceiveCreditMax`.
    max: u16,
    /// `ReceiveCreditTarget`: what the peer requested most recently.
    target: u16,
    /// Receives that are posted, granted or not.
    posted: u32,
    /// `ReceiveCredits`: of the posted receives, those that the peer may use.
    granted: u32,
    /// `SendCredits`: messages that the peer will receive.
    send: u32,
}

impl Credits {
    pub(crate) const fn new(max: u16) -> Self {
        Self { max, target: 1, posted: 0, granted: 0, send: 0 }
    }

    /// Number of receives to post for all that may be granted.
    pub(crate) const fn wanted(&self) -> u32 {
        (self.max as u32 + RESERVE).saturating_sub(self.posted)
    }

    /// Number of posted receives.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    //= R-SMBD-65
    pub(crate) const fn post(&mut self, receives: u32) {
        self.posted = self.posted.saturating_add(receives);
    }

    /// A receive of the negotiation completed, which no credit is for.
    pub(crate) const fn consume_receive(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// A receive completed. Returns whether the peer had a credit for it.
    //= R-SMBD-65, R-SMBD-70
    pub(crate) const fn consume_credit(&mut self) -> bool {
        self.consume_receive();
        let had_credit = self.granted > 0;
        self.granted = self.granted.saturating_sub(1);
        had_credit
    }

    /// The peer requested this number of credits in all.
    //= R-SMBD-44
    pub(crate) const fn set_target(&mut self, target: u16) {
        self.target = target;
    }

    /// The peer granted credits.
    //= R-SMBD-45
    pub(crate) const fn add_send(&mut self, credits: u16) {
        self.send = self.send.saturating_add(credits as u32);
    }

    fn limit(&self) -> u32 {
        u32::from(self.max.min(self.target)).max(1)
    }

    /// Number of credits to grant with the next message. If there is none but for its credits (`has_message`), it grants at least
    /// two: the peer may need one to grant in turn, and would be without credits again.
    pub(crate) fn grantable(&self, has_message: bool) -> u16 {
        //= R-SMBD-67
        let open = self.limit().saturating_sub(self.granted);
        //= R-SMBD-66, R-SMBD-69
        let wanted = match (has_message, self.send) {
            (true, 1) => open.max(1),
            (true, _) => open,
            (false, _) => open.max(2),
        };
        //= R-SMBD-64
        let spare = self.posted.saturating_sub(self.granted);
        u16::try_from(wanted.min(spare)).unwrap_or(u16::MAX)
    }

    /// Whether the peer has so few credits left that a message is sent for more.
    ///
    /// The threshold is below what the peer has left after a message that answers this one with credits alone: two sides never
    /// send such messages in turns.
    //= R-SMBD-68, R-SMBD-69, R-SMBD-72
    pub(crate) fn is_peer_low(&self) -> bool {
        self.granted <= (self.limit() - 1) / 2 && self.posted > self.granted
    }

    /// Takes a credit for a message that grants `grant` credits. Returns whether that is allowed now.
    pub(crate) const fn take(&mut self, grant: u16) -> bool {
        //= R-SMBD-59
        if self.send == 0 {
            return false;
        }
        //= R-SMBD-60
        if self.send == 1 && grant == 0 {
            return false;
        }
        //= R-SMBD-61
        self.send -= 1;
        self.grant(grant);
        true
    }

    /// Number of credits to grant with the answer to a Negotiate Request.
    pub(crate) fn initial(&self) -> u16 {
        u16::try_from(self.limit().min(self.posted)).unwrap_or(u16::MAX)
    }

    /// Credits are granted by a message of the negotiation, which needs no credit.
    pub(crate) const fn grant(&mut self, credits: u16) {
        self.granted = self.granted.saturating_add(credits as u32);
    }
}
