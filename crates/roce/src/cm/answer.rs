// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stateless answers: those that belong to no connection or do not change its state.
//!
//! Kept in parsed form and bounded in number. When the queue is full an answer is dropped, and the peer's retry
//! asks for it again.

use crate::ignored::Ignored;
use fallible::Fifo;
use roce_wire::{
    Mad, Path, PathMtu,
    cm::{
        CmMessage, CommId, DrepRepr, MraRepr, RejReason, RejRepr, RespondedMessage, ServiceId, SidrRepRepr,
        SidrStatus,
    },
};

/// Maximum number of answers that wait for a transmit slot.
pub(super) const MAX_ANSWERS: usize = 32;

/// Answers that wait for a transmit slot, the oldest first.
pub(super) struct Answers(Fifo<Answer>);

impl Answers {
    pub(super) const fn new() -> Self {
        Self(Fifo::new())
    }

    /// Queues an answer.
    ///
    /// # Errors
    /// [`Ignored::NoRoom`].
    pub(super) fn push(&mut self, answer: Answer) -> Result<(), Ignored> {
        let room = self.0.len() < MAX_ANSWERS && self.0.reserve_for(MAX_ANSWERS).is_ok();
        if room && self.0.push(answer) { Ok(()) } else { Err(Ignored::NoRoom) }
    }

    /// Takes the oldest answer.
    pub(super) fn pop(&mut self) -> Option<Answer> {
        self.0.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A message that is sent once, to the source of the message that it answers.
pub(super) struct Answer {
    pub(super) path: Path,
    /// Transaction ID of the message that it answers.
    pub(super) transaction: u64,
    /// Communication ID of the peer.
    pub(super) remote_id: CommId,
    pub(super) kind: AnswerKind,
}

/// Message of an [`Answer`].
pub(super) enum AnswerKind {
    /// REJ, with the MTU to use instead as additional rejection information.
    Rej { message: RespondedMessage, reason: RejReason, mtu: Option<PathMtu> },
    /// MRA: the consumer has not answered yet.
    Mra { local_id: CommId, message: RespondedMessage },
    /// DREP.
    Drep { local_id: CommId },
    /// SIDR_REP without queue pair.
    SidrRefused { status: SidrStatus, service_id: ServiceId },
}

impl Answer {
    /// Writes the message into `mad`.
    pub(super) fn emit(&self, service_timeout: u8, mad: &mut [u8; Mad::LEN]) {
        let remote_comm_id = self.remote_id;
        let message = match self.kind {
            AnswerKind::Rej { message, reason, mtu } => {
                let mut information = [0; 72];
                if let ([first, ..], Some(mtu)) = (&mut information, mtu) {
                    *first = mtu.code().0 << 4;
                }
                CmMessage::Rej(RejRepr {
                    local_comm_id: CommId(0),
                    remote_comm_id,
                    message_rejected: message,
                    information_len: u8::from(mtu.is_some()),
                    reason,
                    information,
                    private_data: [0; 148],
                })
            }
            AnswerKind::Mra { local_id, message } => CmMessage::Mra(MraRepr {
                local_comm_id: local_id,
                remote_comm_id,
                message_mraed: message,
                service_timeout,
                private_data: [0; 222],
            }),
            AnswerKind::Drep { local_id } => {
                CmMessage::Drep(DrepRepr { local_comm_id: local_id, remote_comm_id, private_data: [0; 224] })
            }
            AnswerKind::SidrRefused { status, service_id } => {
                let refusal = SidrRepRepr::refusal(remote_comm_id, status, service_id);
                return refusal.emit_datagram(self.transaction, mad);
            }
        };
        message.emit(self.transaction, mad);
    }
}
