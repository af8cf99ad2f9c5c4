// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decoded connection management messages.

use std::fmt;

use roce_wire::{
    MadHeaderRepr, PathMtu,
    cm::{CmMessage, IpCm, IpEnds, RespondedMessage},
};
use serde::Serialize;

/// The fields of a connection management message that matter to a reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cm {
    pub message: &'static str,
    pub transaction: u64,
    pub local_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<u64>,
    /// Address and port of the active side, from the IP CM header of a REQ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// First PSN that the receiver of the message sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting_psn: Option<u32>,
    /// In bytes; 0 for an invalid code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responder_resources: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_depth: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rnr_retry_count: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srq: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_guid: Option<String>,
    /// The message that a REJ rejects or an MRA acknowledges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responds_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_timeout: Option<u8>,
    /// Private data of the consumer in hexadecimal, without trailing zeros.
    pub private_data: String,
}

impl Cm {
    pub(super) fn read(header: &MadHeaderRepr, message: &CmMessage) -> Self {
        let base = Self { transaction: header.transaction_id, ..Self::default() };
        let responds_to = |message: RespondedMessage| Some(format!("{message:?}"));
        match message {
            CmMessage::Req(req) => {
                let (ip, data) = req.private_data.split_at(IpCm::LEN);
                let ends = IpCm::new_checked(ip).ok().and_then(|header| IpEnds::parse(&header));
                Self {
                    message: "REQ",
                    local_id: req.local_comm_id.0,
                    service_id: Some(req.service_id.0),
                    from: ends.map(|ends| format!("{} port {}", ends.source, ends.source_port)),
                    qpn: Some(req.local_qpn.value()),
                    starting_psn: Some(req.starting_psn.value()),
                    path_mtu: Some(req.path_mtu.mtu().map_or(0, PathMtu::bytes)),
                    responder_resources: Some(req.responder_resources),
                    initiator_depth: Some(req.initiator_depth),
                    retry_count: Some(req.retry_count),
                    rnr_retry_count: Some(req.rnr_retry_count),
                    srq: Some(req.srq),
                    ca_guid: Some(format!("{:016x}", req.local_ca_guid)),
                    private_data: text(data),
                    ..base
                }
            }
            CmMessage::Rep(rep) => Self {
                message: "REP",
                local_id: rep.local_comm_id.0,
                remote_id: Some(rep.remote_comm_id.0),
                qpn: Some(rep.local_qpn.value()),
                starting_psn: Some(rep.starting_psn.value()),
                responder_resources: Some(rep.responder_resources),
                initiator_depth: Some(rep.initiator_depth),
                rnr_retry_count: Some(rep.rnr_retry_count),
                srq: Some(rep.srq),
                ca_guid: Some(format!("{:016x}", rep.local_ca_guid)),
                private_data: text(&rep.private_data),
                ..base
            },
            CmMessage::Rtu(rtu) => Self {
                message: "RTU",
                local_id: rtu.local_comm_id.0,
                remote_id: Some(rtu.remote_comm_id.0),
                private_data: text(&rtu.private_data),
                ..base
            },
            CmMessage::Rej(rej) => Self {
                message: "REJ",
                local_id: rej.local_comm_id.0,
                remote_id: Some(rej.remote_comm_id.0),
                responds_to: responds_to(rej.message_rejected),
                reason: Some(rej.reason.0),
                meaning: Some(format!("{:?}", rej.reason)),
                private_data: text(&rej.private_data),
                ..base
            },
            CmMessage::Mra(mra) => Self {
                message: "MRA",
                local_id: mra.local_comm_id.0,
                remote_id: Some(mra.remote_comm_id.0),
                responds_to: responds_to(mra.message_mraed),
                service_timeout: Some(mra.service_timeout),
                private_data: text(&mra.private_data),
                ..base
            },
            CmMessage::Dreq(dreq) => Self {
                message: "DREQ",
                local_id: dreq.local_comm_id.0,
                remote_id: Some(dreq.remote_comm_id.0),
                qpn: Some(dreq.remote_qpn.value()),
                private_data: text(&dreq.private_data),
                ..base
            },
            CmMessage::Drep(drep) => Self {
                message: "DREP",
                local_id: drep.local_comm_id.0,
                remote_id: Some(drep.remote_comm_id.0),
                private_data: text(&drep.private_data),
                ..base
            },
        }
    }
}

fn text(data: &[u8]) -> String {
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    super::hex::encode(&data[..end])
}

impl fmt::Display for Cm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM {}  id {:#010x}", self.message, self.local_id)?;
        if let Some(id) = self.remote_id {
            write!(f, " to {id:#010x}")?;
        }
        if let Some(message) = &self.responds_to {
            write!(f, " message {message}")?;
        }
        if let (Some(reason), Some(meaning)) = (self.reason, &self.meaning) {
            write!(f, "  reason {reason}, {meaning}")?;
        }
        if let Some(service) = self.service_id {
            write!(f, "  service {service:#x}")?;
        }
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        if let Some(qpn) = self.qpn {
            write!(f, "  qp {qpn:#x}")?;
        }
        if let Some(psn) = self.starting_psn {
            write!(f, " psn {psn:#08x}")?;
        }
        if let Some(mtu) = self.path_mtu {
            write!(f, " mtu {mtu}")?;
        }
        if let (Some(resources), Some(depth)) = (self.responder_resources, self.initiator_depth) {
            write!(f, " reads {resources}/{depth}")?;
        }
        if let Some(retries) = self.retry_count {
            write!(f, " retries {retries}")?;
        }
        if let Some(retries) = self.rnr_retry_count {
            write!(f, " rnr-retries {retries}")?;
        }
        if self.srq == Some(true) {
            write!(f, " srq")?;
        }
        if let Some(timeout) = self.service_timeout {
            write!(f, "  service timeout {timeout}")?;
        }
        if !self.private_data.is_empty() {
            write!(f, "  data {}", self.private_data)?;
        }
        Ok(())
    }
}
