// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames reduced to the fields that must agree, with the identifiers of the capture.

use std::fmt;

use roce_wire::{
    Class, Ext, Packet,
    cm::{CmMessage, IpCm},
};

use super::infer::Conn;
use crate::decode;

/// A frame without the fields that its sender may choose.
///
/// Left out: addresses and path of Ethernet, IP and UDP (the replay gives both sides those of the capture), IPv4
/// identification, UDP source port, flow label, hop limit; PSNs of CM datagrams; of CM messages the timeouts, packet
/// rate, transaction ID, and capabilities that are not negotiated.
#[derive(Clone, PartialEq, Eq)]
pub struct NormalizedFrame {
    pub conn: Option<usize>,
    pub name: &'static str,
    pub class: Class,
    /// Relative to the first PSN of its direction; `None` for datagrams.
    pub psn: Option<u32>,
    pub fields: Vec<(&'static str, String)>,
    pub payload: Vec<u8>,
}

/// Identifiers of a connection that the engine chose differently from the host of the capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineIds {
    pub qpn: u32,
    pub comm_id: u32,
    /// The starting PSN for the peer in the engine's REQ or REP.
    pub starting_psn: u32,
}

impl NormalizedFrame {
    /// Normalizes a packet that `side` sent on the connection with this index. `engine_ids` are given for packets of the
    /// engine.
    #[must_use]
    pub fn new(
        packet: &Packet<'_>,
        side: usize,
        conn: Option<(usize, &Conn)>,
        engine_ids: Option<&EngineIds>,
    ) -> Self {
        let mut fields = Vec::new();
        if let Some((_, message)) = decode::datagram(packet) {
            let name = cm_fields(&message, side, conn.map(|(_, conn)| conn), engine_ids, &mut fields);
            let (conn, class) = (conn.map(|(at, _)| at), Class::Datagram);
            return Self { conn, name, class, psn: None, fields, payload: Vec::new() };
        }
        let bth = packet.bth();
        let class = packet.info().class;
        // The PSN of a CNP has no meaning.
        let psn = conn.filter(|_| class != Class::Congestion).map(|(_, conn)| {
            // Responses carry PSNs of the peer's request direction.
            let start = match (class, engine_ids) {
                (Class::Response, None) => conn.start[1 - side].value(),
                (Class::Response, Some(engine_ids)) => engine_ids.starting_psn,
                _ => conn.start[side].value(),
            };
            bth.psn().sub(start).value()
        });
        let mut field = |name, value: String| fields.push((name, value));
        if let Some((_, conn)) = conn
            && bth.dest_qp().value() != conn.qpn[1 - side]
        {
            field("to queue pair", format!("{:?}", bth.dest_qp()));
        }
        field("ack-req", bth.ack_req().to_string());
        field("solicited", bth.solicited().to_string());
        field("p_key", format!("{:#x}", bth.p_key()));
        match packet.ext() {
            Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) => {
                field("syndrome", format!("{:?}", aeth.syndrome));
                field("msn", aeth.msn.to_string());
            }
            Ext::Reth(reth) | Ext::RethImm(reth, _) => {
                field("address", format!("{:#x}", reth.address));
                field("key", format!("{:#x}", reth.r_key));
                field("length", reth.length.to_string());
            }
            Ext::Ieth(ieth) => field("invalidates", format!("{:#x}", ieth.r_key)),
            Ext::Atomic(atomic) => field("atomic", format!("{atomic:x?}")),
            _ => {}
        }
        if let Some(immediate) = packet.imm_dt() {
            field("immediate", format!("{:02x?}", immediate.data()));
        }
        if let Some(original) = packet.atomic_ack_eth() {
            field("original", format!("{:#x}", original.original()));
        }
        let payload = packet.payload().to_vec();
        Self { conn: conn.map(|(at, _)| at), name: packet.info().name, class, psn, fields, payload }
    }
}

/// Adds the fields of a CM message that both sides use, with the identifiers of the capture. Returns the name of the
/// message.
fn cm_fields(
    message: &CmMessage,
    side: usize,
    conn: Option<&Conn>,
    engine_ids: Option<&EngineIds>,
    fields: &mut Vec<(&'static str, String)>,
) -> &'static str {
    let mut field = |name, value: String| fields.push((name, value));
    // The engine's identifiers are replaced by those of the capture.
    let id = |id: u32| match (engine_ids, conn) {
        (Some(engine_ids), Some(conn)) if id == engine_ids.comm_id && id != 0 => conn.ids[side],
        _ => id,
    };
    let qpn = |qpn: u32| match (engine_ids, conn) {
        (Some(engine_ids), Some(conn)) if qpn == engine_ids.qpn => conn.qpn[side],
        _ => qpn,
    };
    let psn = |psn: u32| match (engine_ids, conn) {
        (Some(engine_ids), Some(conn)) if psn == engine_ids.starting_psn => {
            conn.negotiated_start[1 - side].value()
        }
        _ => psn,
    };
    let data = |data: &[u8]| {
        let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        data[..end].escape_ascii().to_string()
    };
    match message {
        CmMessage::Req(req) => {
            field("id", format!("{:#x}", id(req.local_comm_id.0)));
            field("service", format!("{:?}", req.service_id));
            field("queue pair", format!("{:#x}", qpn(req.local_qpn.value())));
            field("starting psn", format!("{:#x}", psn(req.starting_psn.value())));
            field("ca guid", format!("{:#x}", req.local_ca_guid));
            field("mtu", format!("{:?}", req.path_mtu));
            field("reads", format!("{}/{}", req.responder_resources, req.initiator_depth));
            field("retries", format!("{}, rnr {}", req.retry_count, req.rnr_retry_count));
            field("srq", req.srq.to_string());
            field("p_key", format!("{:#x}", req.p_key));
            let (ip, consumer) = req.private_data.split_at(IpCm::LEN);
            field("ip header", format!("{ip:02x?}"));
            field("data", data(consumer));
            "CM REQ"
        }
        CmMessage::Rep(rep) => {
            field("id", format!("{:#x}", id(rep.local_comm_id.0)));
            field("to id", format!("{:#x}", rep.remote_comm_id.0));
            field("queue pair", format!("{:#x}", qpn(rep.local_qpn.value())));
            field("starting psn", format!("{:#x}", psn(rep.starting_psn.value())));
            field("ca guid", format!("{:#x}", rep.local_ca_guid));
            field("reads", format!("{}/{}", rep.responder_resources, rep.initiator_depth));
            field("rnr retries", rep.rnr_retry_count.to_string());
            field("srq", rep.srq.to_string());
            field("data", data(&rep.private_data));
            "CM REP"
        }
        CmMessage::Rtu(rtu) => {
            field("id", format!("{:#x}", id(rtu.local_comm_id.0)));
            field("to id", format!("{:#x}", rtu.remote_comm_id.0));
            "CM RTU"
        }
        CmMessage::Rej(rej) => {
            field("id", format!("{:#x}", id(rej.local_comm_id.0)));
            field("to id", format!("{:#x}", rej.remote_comm_id.0));
            field("message", format!("{:?}", rej.message_rejected));
            field("reason", format!("{:?}", rej.reason));
            let len = usize::from(rej.information_len).min(rej.information.len());
            field("information", format!("{:02x?}", &rej.information[..len]));
            field("data", data(&rej.private_data));
            "CM REJ"
        }
        CmMessage::Mra(mra) => {
            field("id", format!("{:#x}", id(mra.local_comm_id.0)));
            field("to id", format!("{:#x}", mra.remote_comm_id.0));
            field("message", format!("{:?}", mra.message_mraed));
            "CM MRA"
        }
        CmMessage::Dreq(dreq) => {
            field("id", format!("{:#x}", id(dreq.local_comm_id.0)));
            field("to id", format!("{:#x}", dreq.remote_comm_id.0));
            field("remote queue pair", format!("{:#x}", dreq.remote_qpn.value()));
            "CM DREQ"
        }
        CmMessage::Drep(drep) => {
            field("id", format!("{:#x}", id(drep.local_comm_id.0)));
            field("to id", format!("{:#x}", drep.remote_comm_id.0));
            "CM DREP"
        }
    }
}

impl fmt::Display for NormalizedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(psn) = self.psn {
            write!(f, " {}", Relative(psn))?;
        }
        for (name, value) in &self.fields {
            match (*name, value.as_str()) {
                ("syndrome", "ACK") | (_, "false") => {}
                ("syndrome" | "message" | "reason", value) => write!(f, ", {value}")?,
                ("ack-req" | "solicited", _) => write!(f, ", {name}")?,
                ("msn", value) => write!(f, ", msn {value}")?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Debug for NormalizedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A relative PSN, written as a signed number.
struct Relative(u32);

impl fmt::Display for Relative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1 << 23 { write!(f, "+{}", self.0) } else { write!(f, "-{}", (1 << 24) - self.0) }
    }
}
