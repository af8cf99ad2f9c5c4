// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connected hosts, and an attacker who can send any frame to bob.

use roce::Verdict;
use roce_wire::cm::CmMessage;
use roce_wire::icrc::Crc;
use roce_wire::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, Ext, ExtHeaders, Headers, Mad, Opcode, OpcodeInfo, Packet,
    Path, PayloadRule, Psn, Qpn, RethRepr, Syndrome, Template,
};

pub use roce_testkit::{Options, TwoHosts};

/// Two connected hosts, and the PSNs as an attacker on the path knows them. Alice is side 0, bob is side 1.
pub struct Forger {
    pub hosts: TwoHosts,
    /// From alice to bob.
    pub path: Path,
    /// PSN that bob expects from alice (ePSN).
    pub psn: Psn,
    /// PSN of bob's next request.
    pub bobs: Psn,
}

impl Forger {
    pub fn new(options: Options) -> Self {
        let mut hosts = TwoHosts::connected(options);
        hosts.capture = Some(Vec::new());
        for side in 0..2 {
            let (source, target) = (hosts.sides[side].source(b"hi"), hosts.sides[1 - side].shared(2));
            hosts.sides[side].write(1, &[source.all()], &target, 0);
        }
        hosts.run_for(std::time::Duration::from_millis(5));
        let next = |hosts: &TwoHosts, side| {
            let frames = hosts.capture.as_ref().unwrap().iter();
            let mut writes = frames
                .filter(|(from, _)| *from == side)
                .map(|(_, frame)| Packet::parse(frame).unwrap())
                .filter(|packet| packet.bth().opcode() == Opcode::WRITE_ONLY);
            writes.next().unwrap().bth().psn().next()
        };
        let (psn, bobs) = (next(&hosts, 0), next(&hosts, 1));
        for side in &hosts.sides {
            assert_eq!(side.outcomes(), [(1, roce::CompletionStatus::Success)]);
        }
        hosts.capture = Some(Vec::new());
        // From here on alice is disconnected from the network.
        hosts.cut = [true; 2];
        let path = hosts.path(0);
        Self { hosts, path, psn, bobs }
    }

    pub fn bob(&self) -> Qpn {
        self.hosts.sides[1].qp.qpn()
    }

    pub fn frame(&self, opcode: Opcode, psn: Psn, ext: Ext, payload: &[u8]) -> Vec<u8> {
        frame(&self.path, self.bob(), opcode, psn, ext, payload)
    }

    /// Returns an ACKNOWLEDGE packet from alice with `syndrome`.
    pub fn answer(&self, psn: Psn, syndrome: Syndrome) -> Vec<u8> {
        self.frame(Opcode::ACKNOWLEDGE, psn, Ext::Aeth(AethRepr { syndrome, msn: 0 }), &[])
    }

    pub fn give(&mut self, frame: &[u8]) -> Verdict {
        self.hosts.sides[1].engine.first_shard().handle_frame(self.hosts.now, frame)
    }

    /// Returns the frames that bob sends now.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        self.hosts.drive();
        let capture = std::mem::take(self.hosts.capture.as_mut().unwrap());
        capture.into_iter().filter(|(from, _)| *from == 1).map(|(_, frame)| frame).collect()
    }

    pub fn stat(&self, name: &str) -> u64 {
        self.hosts.sides[1].stat(name)
    }

    /// Returns bob's counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.hosts.sides[1].engine.stats().each(|name, count| all.push((name, count)));
        all
    }
}

/// Returns the CM message in a frame.
pub fn message(frame: &[u8]) -> Option<CmMessage> {
    let packet = Packet::parse(frame).ok()?;
    packet.deth()?;
    CmMessage::parse(&Mad::new_checked(packet.payload()).ok()?)
}

pub fn frame(path: &Path, to: Qpn, opcode: Opcode, psn: Psn, ext: Ext, payload: &[u8]) -> Vec<u8> {
    let headers = Headers { opcode, solicited: false, ack_req: true, psn, ext };
    let mut slot = vec![0; payload.len() + 200];
    let template = Template::new(path, to).unwrap();
    let mut frame = template.begin(Crc::table(), &mut slot, &headers, payload.len()).unwrap();
    frame.write(payload);
    let len = frame.finish();
    slot.truncate(len);
    slot
}

/// Returns valid extension headers for an opcode, with length 0.
pub fn harmless(info: &OpcodeInfo) -> Ext {
    match info.ext {
        ext if ext == ExtHeaders::RETH => Ext::Reth(RethRepr { address: 0, r_key: 0, length: 0 }),
        ext if ext == ExtHeaders::AETH => Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 }),
        ext if ext == ExtHeaders::AETH | ExtHeaders::ATOMIC_ACK_ETH => {
            let aeth = AethRepr { syndrome: Syndrome::ACK, msn: 0 };
            Ext::AtomicAck(aeth, AtomicAckEthRepr { original: 0 })
        }
        ext if ext == ExtHeaders::ATOMIC_ETH => {
            Ext::Atomic(AtomicEthRepr { address: 0, r_key: 0, swap_or_add: 0, compare: 0 })
        }
        ext => Ext::parse(ext, &[0; Ext::MAX_LEN]).unwrap(),
    }
}

/// Returns a payload of a length that the opcode allows.
pub fn payload(info: &OpcodeInfo) -> Vec<u8> {
    let len = match info.payload {
        PayloadRule::None => 0,
        PayloadRule::Full => 1024,
        PayloadRule::Some | PayloadRule::Any => 8,
    };
    vec![0xEE; len]
}
