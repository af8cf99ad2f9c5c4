// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages and RDMA requests of the captures.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use roce_wire::{Class, Operation, Packet};

/// The connections of the captures, each in one or more files.
pub const CONNECTIONS: [&[&str]; 5] = [
    &[
        "00-mount",
        "01-list",
        "02-small-read",
        "03-small-write",
        "04-fragmented-write",
        "05-large-read",
        "06-large-write",
        "08-rename-remove",
        "09-unmount",
    ],
    &["whole-credits"],
    &["whole-keepalive"],
    &["whole-mtu1500"],
    &["whole-server-ends"],
];

/// Request that a peer posted.
pub enum Request {
    /// A SEND, and the token that it invalidates.
    Message(Vec<u8>, Option<u32>),
    /// An RDMA WRITE or READ of the server: address, token, length.
    Rdma(u64, u32, u32),
}

/// A request with its origin.
pub struct Captured {
    pub is_client: bool,
    pub request: Request,
}

/// All requests of a connection in the order in which they were seen.
pub fn requests(files: &[&str]) -> Vec<Captured> {
    let client = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let (mut seen, mut unfinished) = (HashSet::new(), HashMap::<_, Vec<u8>>::new());
    let mut requests = Vec::new();
    for frame in files.iter().flat_map(|file| frames(file)) {
        let Ok(packet) = Packet::parse(&frame) else { continue };
        let (info, bth) = (packet.info(), packet.bth());
        // A packet that is repeated counts once.
        let is_request = bth.opcode().is_rc() && info.class == Class::Request;
        if !is_request || !seen.insert((bth.dest_qp().value(), bth.psn().value())) {
            continue;
        }
        let is_client = packet.source() == client;
        let request = match info.operation {
            Operation::Send => {
                let bytes = unfinished.entry(bth.dest_qp().value()).or_default();
                bytes.extend_from_slice(packet.payload());
                if !info.last {
                    continue;
                }
                Request::Message(std::mem::take(bytes), packet.ieth().map(|ieth| ieth.r_key()))
            }
            Operation::Write | Operation::Read => {
                let Some(reth) = packet.reth() else { continue };
                Request::Rdma(reth.address(), reth.r_key(), reth.length())
            }
            _ => continue,
        };
        requests.push(Captured { is_client, request });
    }
    requests
}

/// The messages of a connection: whether the client sent it, its bytes, its token.
pub fn messages(files: &[&str]) -> Vec<(bool, Vec<u8>, Option<u32>)> {
    let message = |captured| match captured {
        Captured { is_client, request: Request::Message(bytes, token) } => Some((is_client, bytes, token)),
        Captured { .. } => None,
    };
    requests(files).into_iter().filter_map(message).collect()
}

fn frames(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/linux").join(file);
    let mut reader = PcapReader::new(File::open(path.with_extension("pcap")).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data.into_owned());
    }
    frames
}
