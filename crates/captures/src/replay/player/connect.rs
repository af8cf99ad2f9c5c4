// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections of a capture that does not have the messages that made them.

use anyhow::{Context as _, Result, ensure};
use roce::{ConnectSpec, ReadLimits};
use roce_wire::{
    DethRepr, Ext, Headers, Mad, Opcode, Packet, Path, Qpn,
    cm::{CmMessage, CommId, RepRepr},
};

use super::{
    state::{Player, failed},
    translate::build,
};

impl Player<'_> {
    /// Establishes by CM a connection that the capture's hosts established by other means.
    pub(super) fn connect_by_cm(&mut self, at: usize) -> Result<()> {
        let conn = self.conn(at);
        let reads = ReadLimits { inbound: 16, outbound: 16 };
        let spec = ConnectSpec {
            path: self.path(),
            local_port: 1 + at as u16,
            remote_port: 1,
            mtu: conn.mtu,
            reads,
            private_data: &[],
            context: 0,
        };
        self.request(at, &spec)?;
        let frames = self.transmit();
        let frame = frames.first().context("no REQ")?;
        self.record(frame)?;
        let request = Packet::parse(frame).map_err(failed("REQ"))?;
        let live = &self.live[at];
        let rep = RepRepr {
            local_comm_id: CommId(0x5EED_0001 + at as u32),
            remote_comm_id: CommId(live.ids.comm_id),
            local_q_key: 0,
            local_qpn: Qpn::new(conn.qpn[1 - self.side]),
            vendor_id: 0,
            local_eecn: 0,
            starting_psn: conn.start[self.side],
            responder_resources: 16,
            initiator_depth: 16,
            target_ack_delay: 15,
            failover_accepted: 0,
            end_to_end_flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            local_ca_guid: self.scenario.hosts[1 - self.side].mac.eui64(),
            private_data: [0; 196],
        };
        let mut mad = [0; Mad::LEN];
        CmMessage::Rep(rep).emit(live.req_transaction, &mut mad);
        let [local, remote] = [self.side, 1 - self.side].map(|side| self.scenario.hosts[side]);
        let path = Path::new(remote.mac, local.mac, remote.ip, local.ip);
        let headers = Headers {
            opcode: Opcode::UD_SEND_ONLY,
            solicited: false,
            ack_req: false,
            psn: request.bth().psn(),
            ext: Ext::Deth(DethRepr::GSI),
        };
        let reply = build(&path, Qpn::GSI, 0, &headers, &mad)?;
        self.engine.first_shard().handle_frame(self.now, &reply);
        self.drive()?;
        ensure!(self.live[at].qp.state() == roce::QpState::Rts, "the engine does not connect");
        Ok(())
    }
}
