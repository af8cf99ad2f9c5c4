//! What a side said, in terms of the capture: the fields that have to agree, and nothing of what each side may choose.

use std::fmt;

use roce_wire::{
    Class, Ext, Packet,
    cm::{CmMessage, IpCm},
};

use super::story::Conn;
use crate::decode;

/// A frame, freed of what a side chooses for itself.
///
/// Left out: addresses and path of Ethernet, IP and UDP (the replay gives both sides those of the capture), IPv4
/// identification, UDP source port, flow label, hop limit; PSNs of connection management; of its messages the time
/// limits, packet rate, transaction id, and capabilities that are not agreed upon.
#[derive(Clone, PartialEq, Eq)]
pub struct Said {
    pub conn: Option<usize>,
    pub name: &'static str,
    pub class: Class,
    /// Counted from the first of its direction; `None` for datagrams.
    pub psn: Option<u32>,
    pub fields: Vec<(&'static str, String)>,
    pub payload: Vec<u8>,
}

/// How the engine calls things that the capture calls otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    /// Of the queue pair.
    pub qpn: u32,
    pub comm_id: u32,
    /// The PSN that the peer was told to begin with.
    pub peer_start: u32,
}

impl Said {
    /// What `side` says by `packet`, about the connection of this number. `names` are the sender's, when they are not
    /// those of the capture.
    pub fn of(packet: &Packet<'_>, side: usize, conn: Option<(usize, &Conn)>, names: Option<&Names>) -> Self {
        let mut fields = Vec::new();
        if let Some((_, message)) = decode::datagram(packet) {
            let name = agreed(&message, side, conn.map(|(_, conn)| conn), names, &mut fields);
            let (conn, class) = (conn.map(|(at, _)| at), Class::Datagram);
            return Self { conn, name, class, psn: None, fields, payload: Vec::new() };
        }
        let bth = packet.bth();
        let class = packet.info().class;
        // A CNP has none that means anything.
        let psn = conn.filter(|_| class != Class::Congestion).map(|(_, conn)| {
            // Answers carry numbers of the peer's direction.
            let start = match (class, names) {
                (Class::Response, None) => conn.start[1 - side].value(),
                (Class::Response, Some(names)) => names.peer_start,
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

/// The fields of a message of connection management that both sides go by, in the names of the capture.
fn agreed(
    message: &CmMessage,
    side: usize,
    conn: Option<&Conn>,
    names: Option<&Names>,
    fields: &mut Vec<(&'static str, String)>,
) -> &'static str {
    let mut field = |name, value: String| fields.push((name, value));
    // The sender's own names.
    let id = |id: u32| match (names, conn) {
        (Some(names), Some(conn)) if id == names.comm_id && id != 0 => conn.ids[side],
        _ => id,
    };
    let qpn = |qpn: u32| match (names, conn) {
        (Some(names), Some(conn)) if qpn == names.qpn => conn.qpn[side],
        _ => qpn,
    };
    let psn = |psn: u32| match (names, conn) {
        (Some(names), Some(conn)) if psn == names.peer_start => conn.told[1 - side].value(),
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
            field("about", format!("{:?}", rej.about));
            field("reason", format!("{:?}", rej.reason));
            let len = usize::from(rej.information_len).min(rej.information.len());
            field("information", format!("{:02x?}", &rej.information[..len]));
            field("data", data(&rej.private_data));
            "CM REJ"
        }
        CmMessage::Mra(mra) => {
            field("id", format!("{:#x}", id(mra.local_comm_id.0)));
            field("to id", format!("{:#x}", mra.remote_comm_id.0));
            field("about", format!("{:?}", mra.about));
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

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(psn) = self.psn {
            write!(f, " {}", Relative(psn))?;
        }
        for (name, value) in &self.fields {
            match (*name, value.as_str()) {
                ("syndrome", "ACK") | (_, "false") => {}
                ("syndrome" | "about" | "reason", value) => write!(f, ", {value}")?,
                ("ack-req" | "solicited", _) => write!(f, ", {name}")?,
                ("msn", value) => write!(f, ", msn {value}")?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A 24-bit number counted from another: small ones of either sign are written as such.
struct Relative(u32);

impl fmt::Display for Relative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1 << 23 { write!(f, "+{}", self.0) } else { write!(f, "-{}", (1 << 24) - self.0) }
    }
}
