// SPDX-License-Identifier: MIT OR Apache-2.0

//! Translates identifiers that each side chooses (QPNs, PSNs, keys, communication IDs) between capture and engine.

use anyhow::{Context as _, Result, ensure};
use roce_wire::icrc::Crc;
use roce_wire::{
    Class, Ext, Headers, IethRepr, Ip, Mad, Packet, Path, Psn, Qpn, RethRepr, Template,
    cm::{CmMessage, CommId},
};

use super::state::{Player, failed};
use crate::{
    decode,
    replay::{
        infer::{RoceFrame, comm_ids},
        normalized::NormalizedFrame,
    },
};

impl Player<'_> {
    /// Returns the frame with the engine's identifiers in place of the capture's.
    pub(super) fn translate(&self, frame: &RoceFrame, marked: bool) -> Result<Vec<u8>> {
        let packet = frame.packet();
        let bth = packet.bth();
        let live = frame.conn.and_then(|at| self.live.get(at));
        if let Some((header, message)) = decode::datagram(&packet) {
            let mut mad = [0; Mad::LEN];
            let (message, transaction) = self.translate_message(message, header.transaction_id, frame.conn);
            message.emit(transaction, &mut mad);
            return rebuild(&packet, bth.dest_qp(), bth.psn(), packet.ext(), &mad, false);
        }
        let live = live.context("a packet belongs to no connection")?;
        let conn = self.conn(frame.conn.unwrap_or_default());
        let psn = match packet.info().class {
            Class::Request => Psn::new(live.ids.starting_psn).add(conn.relative(1 - self.side, bth.psn())),
            _ => bth.psn(),
        };
        let key = |key: u32| self.shared.iter().find_map(|shared| shared.engine_key(key)).unwrap_or(key);
        let reth = |reth: RethRepr| RethRepr { r_key: key(reth.r_key), ..reth };
        let ext = match packet.ext() {
            Ext::Reth(header) => Ext::Reth(reth(header)),
            Ext::RethImm(header, immediate) => Ext::RethImm(reth(header), immediate),
            Ext::Ieth(ieth) => Ext::Ieth(IethRepr { r_key: key(ieth.r_key) }),
            Ext::Atomic(mut atomic) => {
                atomic.r_key = key(atomic.r_key);
                Ext::Atomic(atomic)
            }
            other => other,
        };
        rebuild(&packet, Qpn::new(live.ids.qpn), psn, ext, packet.payload(), marked)
    }

    pub(super) fn translate_message(
        &self,
        mut message: CmMessage,
        transaction: u64,
        conn: Option<usize>,
    ) -> (CmMessage, u64) {
        let Some((live, conn)) = conn.and_then(|at| Some((self.live.get(at)?, self.conn(at)))) else {
            return (message, transaction);
        };
        let mut transaction = transaction;
        let id = |id: CommId| if id.0 == conn.ids[self.side] { CommId(live.ids.comm_id) } else { id };
        match &mut message {
            CmMessage::Req(m) => m.starting_psn = conn.start[self.side],
            CmMessage::Rep(m) => {
                m.remote_comm_id = id(m.remote_comm_id);
                m.starting_psn = conn.start[self.side];
            }
            CmMessage::Rtu(m) => m.remote_comm_id = id(m.remote_comm_id),
            CmMessage::Rej(m) => m.remote_comm_id = id(m.remote_comm_id),
            CmMessage::Mra(m) => m.remote_comm_id = id(m.remote_comm_id),
            CmMessage::Dreq(m) => {
                m.remote_comm_id = id(m.remote_comm_id);
                if m.remote_qpn.value() == conn.qpn[self.side] {
                    m.remote_qpn = Qpn::new(live.ids.qpn);
                }
            }
            CmMessage::Drep(m) => {
                m.remote_comm_id = id(m.remote_comm_id);
                transaction = live.dreq_transaction;
            }
        }
        let is_reply_to_req = matches!(message, CmMessage::Rep(_) | CmMessage::Rej(_) | CmMessage::Mra(_));
        if is_reply_to_req && conn.active == Some(self.side) {
            transaction = live.req_transaction;
        }
        (message, transaction)
    }

    /// Records a frame of the engine, with the identifiers of the capture.
    pub(super) fn record(&mut self, frame: &[u8]) -> Result<()> {
        let packet = Packet::parse(frame).map_err(failed("invalid frame of the engine"))?;
        ensure!(packet.icrc_valid(Crc::table()), "the engine sent a wrong ICRC");
        let at = match decode::datagram(&packet) {
            None => {
                let to = packet.bth().dest_qp().value();
                self.scenario.conns.iter().position(|conn| conn.qpn[1 - self.side] == to)
            }
            Some((header, message)) => self.learn_ids(header.transaction_id, &message),
        };
        if self.recording {
            let ids = at.map(|at| &self.live[at].ids);
            let frame = NormalizedFrame::new(&packet, self.side, at.map(|at| (at, self.conn(at))), ids);
            self.result.sent.push(frame);
        }
        Ok(())
    }

    /// Returns the connection of a CM message of the engine, and stores the identifiers in the message.
    pub(super) fn learn_ids(&mut self, transaction: u64, message: &CmMessage) -> Option<usize> {
        let (mine, yours) = comm_ids(message);
        let qpn = match message {
            CmMessage::Req(req) => Some((req.local_qpn.value(), req.starting_psn)),
            CmMessage::Rep(rep) => Some((rep.local_qpn.value(), rep.starting_psn)),
            _ => None,
        };
        if let Some((qpn, start)) = qpn {
            let live = self.live.iter_mut().find(|live| live.ids.qpn == qpn)?;
            live.ids.comm_id = mine;
            live.ids.starting_psn = start.value();
            live.req_transaction = transaction;
        }
        let peer = 1 - self.side;
        let at = self.scenario.conns.iter().zip(&self.live).position(|(conn, live)| {
            (mine != 0 && live.ids.comm_id == mine) || (yours != 0 && conn.ids[peer] == yours)
        })?;
        if let CmMessage::Dreq(_) = message {
            self.live[at].dreq_transaction = transaction;
        }
        if self.live[at].ids.comm_id == 0 {
            // A REJ may be the first message with an ID.
            self.live[at].ids.comm_id = mine;
        }
        Some(at)
    }
}

/// Builds a copy of `packet` with these fields changed.
fn rebuild(
    packet: &Packet<'_>,
    dest_qp: Qpn,
    psn: Psn,
    ext: Ext,
    payload: &[u8],
    marked: bool,
) -> Result<Vec<u8>> {
    let (identification, hop_limit) = match packet.ip() {
        Ip::V4(ip) => (ip.identification(), ip.ttl()),
        Ip::V6(ip) => (0, ip.hop_limit()),
    };
    let path = Path {
        vlan: packet.eth().vlan(),
        source_port: packet.udp().source_port(),
        traffic_class: if marked { 3 } else { packet.ip().traffic_class() },
        hop_limit,
        ..Path::new(packet.eth().source(), packet.eth().destination(), packet.source(), packet.destination())
    };
    let bth = packet.bth();
    let headers =
        Headers { opcode: bth.opcode(), solicited: bth.solicited(), ack_req: bth.ack_req(), psn, ext };
    build(&path, dest_qp, identification, &headers, payload)
}

pub(super) fn build(
    path: &Path,
    dest_qp: Qpn,
    identification: u16,
    headers: &Headers,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let template = Template::with_identification(path, dest_qp, identification)
        .context("the addresses have different families")?;
    let mut slot = vec![0; payload.len() + 256];
    let frame = template.begin(Crc::table(), &mut slot, headers, payload.len());
    let mut frame = frame.map_err(failed("begin a frame"))?;
    ensure!(frame.write(payload) == payload.len(), "the frame has too little room");
    let len = frame.finish();
    slot.truncate(len);
    Ok(slot)
}
