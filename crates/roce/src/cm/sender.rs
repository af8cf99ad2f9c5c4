// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames of messages: queue pair 1 to queue pair 1.

use roce_wire::icrc::Crc;
use roce_wire::{DethRepr, Ext, Headers, Mad, Opcode, Path, Psn, Qpn, Template};

/// The sending side of queue pair 1.
pub(super) struct Sender {
    /// PSN of the last packet.
    psn: Psn,
    /// UDP source port of its frames.
    source_port: u16,
}

impl Sender {
    pub(super) const fn new(psn: Psn, source_port: u16) -> Self {
        Self { psn, source_port }
    }

    /// Writes the frame of a MAD to the start of `slot`. Returns its length; `None` if `slot` is too small, or the addresses of
    /// `path` are of different families.
    pub(super) fn emit(
        &mut self,
        crc: Crc,
        slot: &mut [u8],
        path: &Path,
        mad: &[u8; Mad::LEN],
    ) -> Option<usize> {
        self.psn = self.psn.next();
        let template = Template::new(&Path { source_port: self.source_port, ..*path }, Qpn::GSI)?;
        let headers = Headers {
            opcode: Opcode::UD_SEND_ONLY,
            solicited: false,
            ack_req: false,
            psn: self.psn,
            ext: Ext::Deth(DethRepr::GSI),
        };
        let mut frame = template.begin(crc, slot, &headers, mad.len()).ok()?;
        frame.write(mad);
        Some(frame.finish())
    }
}
