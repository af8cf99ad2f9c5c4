// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE frames of the captures in the repository.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use roce_wire::Packet;

/// A frame of a capture.
pub struct Captured {
    pub at: Duration,
    pub bytes: Vec<u8>,
}

/// Reads the frames of a capture; `path` is relative to the repository, without extension.
pub fn read(path: &str) -> Vec<Captured> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).with_extension("pcap");
    let mut reader = PcapReader::new(File::open(path).expect("a capture of that name")).expect("a capture");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole packet");
        if Packet::parse(&packet.data).is_ok() {
            frames.push(Captured { at: packet.timestamp, bytes: packet.data.into_owned() });
        }
    }
    frames
}
