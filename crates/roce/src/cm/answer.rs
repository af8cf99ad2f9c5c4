// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers about no connection of ours, or that leave it as it is.
//!
//! Kept as what they say, not as datagrams, and bounded: what does not fit is left out, for the peer to ask
//! again.

use roce_wire::{
    Mad, Path, PathMtu,
    cm::{
        About, CmMessage, CommId, DrepRepr, MraRepr, RejReason, RejRepr, ServiceId, SidrRepRepr, SidrStatus,
    },
};

/// Answers that may wait for the wire.
pub(super) const MAX_ANSWERS: usize = 32;

/// A message that is sent once, to where the question came from.
pub(super) struct Answer {
    pub(super) path: Path,
    /// Of the question.
    pub(super) transaction: u64,
    /// The asker's identifier.
    pub(super) theirs: CommId,
    pub(super) says: Says,
}

/// What an [`Answer`] says.
pub(super) enum Says {
    /// REJ.
    No { about: About, reason: RejReason, mtu: Option<PathMtu> },
    /// MRA.
    Patience { mine: CommId, about: About },
    /// DREP.
    Drep { mine: CommId },
    /// SIDR_REP: datagrams are not for consumers.
    NoDatagrams { service_id: ServiceId },
}

impl Answer {
    pub(super) fn emit(&self, service_timeout: u8, mad: &mut [u8; Mad::LEN]) {
        let remote_comm_id = self.theirs;
        let message = match self.says {
            Says::No { about, reason, mtu } => {
                let mut information = [0; 72];
                if let ([first, ..], Some(mtu)) = (&mut information, mtu) {
                    *first = mtu.code().0 << 4;
                }
                CmMessage::Rej(RejRepr {
                    local_comm_id: CommId(0),
                    remote_comm_id,
                    about,
                    information_len: u8::from(mtu.is_some()),
                    reason,
                    information,
                    private_data: [0; 148],
                })
            }
            Says::Patience { mine, about } => CmMessage::Mra(MraRepr {
                local_comm_id: mine,
                remote_comm_id,
                about,
                service_timeout,
                private_data: [0; 222],
            }),
            Says::Drep { mine } => {
                CmMessage::Drep(DrepRepr { local_comm_id: mine, remote_comm_id, private_data: [0; 224] })
            }
            Says::NoDatagrams { service_id } => {
                let unsupported = SidrRepRepr::refusal(remote_comm_id, SidrStatus::UNSUPPORTED, service_id);
                return unsupported.emit_datagram(self.transaction, mad);
            }
        };
        message.emit(self.transaction, mad);
    }
}
