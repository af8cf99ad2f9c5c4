// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modifications of queue pairs.

use std::sync::Arc;

use roce::{DatagramSpec, PeerSpec, QpChange, RequesterSpec, UnreliableSpec};
use roce_wire::{Psn, Qpn};

use super::QueuePair;
use super::address_handle::path_of;
use super::attributes::{QpAttributes, QpState, Service};
use super::transitions::{Mask, check};
use crate::error::Error;
use crate::limits;

impl QueuePair {
    /// Changes the state and the attributes that `mask` names, to those of `new`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the state does not allow the change, an attribute is missing, not allowed or out of range;
    /// [`Error::Unsupported`] for what is not offered; [`Error::OutOfMemory`]. The queue pair is as before.
    pub fn modify(&self, new: &QpAttributes, mask: Mask) -> Result<(), Error> {
        let mut attributes = self.attributes.lock();
        let from = self.state();
        let to = if mask.contains(Mask::STATE) { new.state } else { from };
        if mask.contains(Mask::CURRENT_STATE) && new.current_state != from {
            return Err(Error::Invalid);
        }
        check(self.spec.service, from, to, mask)?;
        let merged = merged(&attributes, new, mask)?;
        let change = match (from, to) {
            (_, QpState::Reset) => Some(QpChange::Reset),
            (_, QpState::Error) => Some(QpChange::Error),
            (QpState::Reset, QpState::Init) => Some(QpChange::Initialize),
            (_, QpState::Init) => None,
            (QpState::Init, QpState::ReadyToReceive) => Some(self.ready_to_receive(&merged)?),
            (QpState::ReadyToReceive | QpState::SendError, QpState::ReadyToSend) => {
                self.check_unchanged(&attributes, &merged)?;
                Some(self.ready_to_send(&merged))
            }
            _ => {
                self.check_unchanged(&attributes, &merged)?;
                None
            }
        };
        if let Some(change) = change {
            self.spec.pd.device().engine().modify_qp(&self.qp, &change)?;
        }
        if to == QpState::Reset {
            self.discard_completions();
        }
        *attributes = if to == QpState::Reset { QpAttributes::default() } else { merged };
        attributes.state = to;
        drop(attributes);
        if to == QpState::Error && from != QpState::Error {
            self.entered_error(None);
        }
        self.adapter().follow_up();
        Ok(())
    }

    /// Drops the unread completions of before a reset.
    fn discard_completions(&self) {
        self.spec.send_cq.discard(self.id);
        if !Arc::ptr_eq(&self.spec.send_cq, &self.spec.receive_cq) {
            self.spec.receive_cq.discard(self.id);
        }
    }

    /// Puts the queue pair in error, in any state.
    ///
    /// # Errors
    /// None is possible.
    pub fn fail(&self) -> Result<(), Error> {
        self.modify(&QpAttributes { state: QpState::Error, ..QpAttributes::default() }, Mask::STATE)
    }

    /// The engine takes these attributes with the change to ReadyToReceive only.
    fn check_unchanged(&self, before: &QpAttributes, after: &QpAttributes) -> Result<(), Error> {
        let unchanged = match self.spec.service {
            Service::Reliable => (before.access, before.rnr_timer) == (after.access, after.rnr_timer),
            Service::Unreliable => before.access == after.access,
            Service::Datagram => before.q_key == after.q_key,
        };
        if unchanged { Ok(()) } else { Err(Error::Unsupported) }
    }

    fn ready_to_receive(&self, attributes: &QpAttributes) -> Result<QpChange, Error> {
        let device = self.spec.pd.device();
        Ok(match self.spec.service {
            Service::Datagram => {
                QpChange::OpenDatagrams(DatagramSpec { q_key: attributes.q_key, mtu: device.active_mtu() })
            }
            Service::Unreliable => QpChange::OpenUnreliable(UnreliableSpec {
                path: path_of(device, &attributes.path)?,
                qpn: Qpn::new(attributes.destination),
                mtu: attributes.path_mtu,
                receive_psn: Psn::new(attributes.receive_psn),
                access: attributes.access,
            }),
            Service::Reliable => QpChange::ReadyToReceive(PeerSpec {
                path: path_of(device, &attributes.path)?,
                qpn: Qpn::new(attributes.destination),
                mtu: attributes.path_mtu,
                receive_psn: Psn::new(attributes.receive_psn),
                inbound_reads: attributes.inbound_reads,
                rnr_timer: attributes.rnr_timer,
                access: attributes.access,
            }),
        })
    }

    fn ready_to_send(&self, attributes: &QpAttributes) -> QpChange {
        match self.spec.service {
            Service::Datagram | Service::Unreliable => {
                QpChange::SendUnreliably(Psn::new(attributes.send_psn))
            }
            Service::Reliable => QpChange::ReadyToSend(RequesterSpec {
                send_psn: Psn::new(attributes.send_psn),
                outbound_reads: attributes.outbound_reads,
                retries: attributes.retries,
                rnr_retries: attributes.rnr_retries,
                ack_timeout: attributes.timeout,
            }),
        }
    }
}

/// Returns the attributes after a modification.
fn merged(old: &QpAttributes, new: &QpAttributes, mask: Mask) -> Result<QpAttributes, Error> {
    let mut merged = *old;
    macro_rules! merge {
        ($($flag:ident $field:ident $valid:expr;)+) => {$(
            if mask.contains(Mask::$flag) {
                #[allow(clippy::redundant_closure_call, reason = "each attribute has its own")]
                if !($valid)(new.$field) {
                    return Err(Error::Invalid);
                }
                merged.$field = new.$field;
            }
        )+};
    }
    merge! {
        ACCESS access |_| true;
        PKEY_INDEX pkey_index |index| index == 0;
        PORT port |port| port == 1;
        Q_KEY q_key |_| true;
        PATH path |_| true;
        PATH_MTU path_mtu |_| true;
        TIMEOUT timeout |code| code <= 31;
        RETRIES retries |count| count <= 7;
        RNR_RETRIES rnr_retries |count| count <= 7;
        RECEIVE_PSN receive_psn |_| true;
        SEND_PSN send_psn |_| true;
        OUTBOUND_READS outbound_reads |count| count <= limits::READS;
        INBOUND_READS inbound_reads |count| count <= limits::READS;
        RNR_TIMER rnr_timer |code| code <= 31;
        DESTINATION destination |qpn: u32| qpn >> 24 == 0;
    }
    merged.receive_psn &= 0x00FF_FFFF;
    merged.send_psn &= 0x00FF_FFFF;
    Ok(merged)
}
