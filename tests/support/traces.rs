// SPDX-License-Identifier: MIT OR Apache-2.0

//! The vendor-specific OIDs on the image: the one that turns tracing of the engine on and returns its records, and that of counters.

use std::{ops::Range, time::Duration};

use crate::bed::{counter, miniport, word};
use lab::testbed::Testbed;
use ndis_sim::Miniport;
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use roce_wire::{Ext, Headers, MacAddr, Opcode, Path, Psn, Qpn, Template, icrc::Crc};

pub const OID_VIORDMA_COUNTERS: u32 = 0xFF5D_0101;
pub const OID_VIORDMA_TRACE: u32 = 0xFF5D_0102;
pub const RECORD: usize = 48;
pub const MOMENT: Duration = Duration::from_secs(5);

/// A queue pair that no host has.
pub const UNKNOWN: u32 = 0x12_3456;

/// A record of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Units of 100 ns.
    pub time: u64,
    pub qpn: u32,
    pub psn: u32,
    pub event: String,
}

pub fn set(miniport: &Miniport, on: u8) {
    miniport.set(OID_VIORDMA_TRACE, &[on]).unwrap();
}

pub fn records(miniport: &Miniport) -> Vec<Record> {
    let answer = miniport.query(OID_VIORDMA_TRACE, 256 * RECORD).unwrap();
    assert!(answer.len().is_multiple_of(RECORD));
    let record = |bytes: &[u8]| Record {
        time: counter(bytes, 0),
        qpn: word(bytes, 8),
        psn: word(bytes, 12),
        event: String::from_utf8(bytes[16..].to_vec()).unwrap().trim_end_matches('\0').to_owned(),
    };
    answer.chunks(RECORD).map(record).collect()
}

/// Sends SENDs with these PSNs to [`UNKNOWN`], and waits until they have arrived.
pub fn send_to_unknown(bed: &Testbed, psns: Range<u32>) {
    let [from, to] = bed.machines();
    let path = Path::new(MacAddr(from.nic().mac()), MacAddr(to.nic().mac()), from.address(), to.address());
    let template = Template::new(&path, Qpn::new(UNKNOWN)).unwrap();
    for psn in psns {
        let mut slot = [0; 256];
        let psn = Psn::new(psn);
        let headers =
            Headers { opcode: Opcode::SEND_ONLY, solicited: false, ack_req: true, psn, ext: Ext::None };
        let mut frame = template.begin(Crc::detect(), &mut slot, &headers, 0).unwrap();
        let len = frame.finish();
        assert_eq!(miniport(from).send(&slot[..len], MOMENT), Some(NDIS_STATUS_SUCCESS));
    }
    let _ = bed.event().wait(Duration::from_millis(50));
}

pub fn unknown(record: &Record) -> Option<u32> {
    (record.qpn == UNKNOWN && record.event == "drop_no_qp").then_some(record.psn)
}
