// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP between the two hosts of a testbed, through their Ethernet adapters.

use std::{net::IpAddr, time::Duration};

use crate::bed::miniport;
use lab::testbed::Testbed;
use ndis_sim::tcp_stack::{OffloadCounters, TcpStack};

pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Bytes of a stream from a position on.
pub fn stream(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n % 251) as u8).collect()
}

/// Sends `len` bytes each way through one TCP connection. Returns the counters of both stacks.
pub fn exchange(bed: &Testbed, addresses: [IpAddr; 2], len: usize) -> [OffloadCounters; 2] {
    let [alpha, beta] = bed.machines().map(miniport);
    let prefix = if addresses[0].is_ipv4() { 24 } else { 64 };
    let mut client = TcpStack::new(&alpha, MACS[0], (addresses[0], prefix)).unwrap();
    let mut server = TcpStack::new(&beta, MACS[1], (addresses[1], prefix)).unwrap();
    server.listen(445);
    client.connect(addresses[1], 445);
    let (mut sent, mut arrived) = ([0; 2], [0; 2]);
    let deadline = bed.now() + Duration::from_secs(30);
    while arrived != [len; 2] {
        assert!(bed.now() < deadline, "of {len} bytes arrived {arrived:?}: {:?}", bed.violations());
        for (number, stack) in [&mut client, &mut server].into_iter().enumerate() {
            stack.poll(bed.now());
            if stack.is_connected() {
                sent[number] += stack.send(&stream(sent[number], (len - sent[number]).min(1 << 17)));
            }
            let bytes = stack.receive();
            assert!(bytes == stream(arrived[number], bytes.len()), "the bytes arrive in order");
            arrived[number] += bytes.len();
            stack.poll(bed.now());
        }
        let _ = bed.event().wait(Duration::from_micros(50));
    }
    [client.counters(), server.counters()]
}

/// The addresses of both hosts.
pub fn ipv4() -> [IpAddr; 2] {
    [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]
}

pub fn ipv6() -> [IpAddr; 2] {
    [[0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()]
}
