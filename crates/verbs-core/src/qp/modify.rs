// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modifications of queue pairs.

use std::sync::Arc;

use roce::{DatagramSpec, PeerSpec, QpChange, QpUpdate, RequesterSpec, UnreliableSpec};
use roce_wire::{Psn, Qpn};

use super::QueuePair;
use super::address_handle::path_of;
use super::attributes::{QpAttributes, QpState, Service};
use super::transitions::{Mask, check};
use crate::error::Error;
use crate::limits;

/// Code of the least ACK timeout, 67 ms: the peer may be a process that has no processor for a few time slices, and answers then.
const MIN_ACK_TIMEOUT: u8 = 14;

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
            (QpState::Init, QpState::ReadyToReceive) => Some(self.ready_to_receive(&merged)?),
            (QpState::ReadyToReceive | QpState::SendError, QpState::ReadyToSend) => {
                Some(self.ready_to_send(&merged))
            }
            (QpState::ReadyToSend, QpState::Drained) => {
                Some(QpChange::Drain { notify: mask.contains(Mask::DRAIN_EVENT) && new.drain_event })
            }
            (QpState::Drained, QpState::ReadyToSend) => Some(QpChange::Resume),
            _ => None,
        };
        if (from, to) == (QpState::Drained, QpState::ReadyToSend) && self.qp.is_draining() {
            return Err(Error::Invalid);
        }
        let engine = self.spec.pd.device().engine();
        // Before the change of state, which cannot fail after it: a modification that fails leaves everything as it was.
        if let Some(update) = self.update((from, to), &merged, mask)? {
            engine.modify_qp(&self.qp, &QpChange::Update(update))?;
        }
        if let Some(change) = change {
            engine.modify_qp(&self.qp, &change)?;
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

    /// Returns the attributes to change of a queue pair that has a peer, or is open for datagrams; `None` if the change of state
    /// takes all, or none is named.
    fn update(
        &self,
        (from, to): (QpState, QpState),
        attributes: &QpAttributes,
        mask: Mask,
    ) -> Result<Option<QpUpdate>, Error> {
        if matches!(from, QpState::Reset | QpState::Init)
            || matches!(to, QpState::Reset | QpState::Error)
            || !mask.intersects(Mask::UPDATED)
        {
            return Ok(None);
        }
        let named = |flags| mask.intersects(flags);
        // ReadyToSend takes them itself.
        let is_drained = (from, to) == (QpState::Drained, QpState::Drained);
        let path = if is_drained && named(Mask::PATH) {
            Some((path_of(self.spec.pd.device(), &attributes.path)?, Qpn::new(attributes.destination)))
        } else {
            None
        };
        Ok(Some(QpUpdate {
            access: named(Mask::ACCESS).then_some(attributes.access),
            rnr_timer: named(Mask::RNR_TIMER).then_some(attributes.rnr_timer),
            q_key: named(Mask::Q_KEY).then_some(attributes.q_key),
            path,
            requester: (is_drained && named(Mask::OF_REQUESTER)).then(|| requester(attributes)),
            inbound_reads: named(Mask::INBOUND_READS).then_some(attributes.inbound_reads),
        }))
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
            Service::Reliable => QpChange::ReadyToSend(requester(attributes)),
        }
    }
}

fn requester(attributes: &QpAttributes) -> RequesterSpec {
    RequesterSpec {
        send_psn: Psn::new(attributes.send_psn),
        outbound_reads: attributes.outbound_reads,
        retries: attributes.retries,
        rnr_retries: attributes.rnr_retries,
        ack_timeout: if attributes.timeout == 0 { 0 } else { attributes.timeout.max(MIN_ACK_TIMEOUT) },
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
