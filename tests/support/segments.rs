// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing. The simulated NDIS checks each frame that is indicated as several segments: that it is like one, that
//! the stack has asked for it, and that its checksums are right.

use std::time::Duration;

use crate::{
    bed::{counter, miniport, started_with},
    packets::{self, deliver, frame4, frame6, tcp},
    tcp::stream,
};
use device_sim::Quirks;
use lab::testbed::{Options, Testbed};
use ndis_sim::{Keyword, Miniport, ReceivedFrame};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_OFFLOAD_PARAMETERS_REVISION_3, OID_GEN_STATISTICS,
    OID_TCP_OFFLOAD_PARAMETERS, OID_TCP_RSC_STATISTICS,
};
use nt_sim::delays::Delay;

/// Length of an NDIS_OFFLOAD_PARAMETERS of revision 3, and offsets of its members.
pub const PARAMETERS: usize = 24;
pub const TCP_IPV4: usize = 5;
pub const TCP_IPV6: usize = 7;
pub const RSC: usize = 22;

/// Offsets in NDIS_STATISTICS_INFO.
pub const IN_DISCARDS: usize = 8;
pub const IN_ERRORS: usize = 16;
pub const IN_OCTETS: usize = 24;

/// Longer than a request that does not wait.
pub const LATE: Duration = Duration::from_millis(50);

/// Payload of the segments of these tests, in bytes.
pub const LEN: usize = 1000;

pub fn options() -> Options {
    Options { path_mtu: 1024, ..Options::default() }
}

pub fn with(quirks: Quirks) -> Option<Testbed> {
    started_with(&Options { quirks, ..options() })
}

pub fn keyword(name: &'static str, value: &str) -> (&'static str, Keyword) {
    (name, Keyword::Text(value.into()))
}

pub fn receiver(bed: &Testbed) -> Miniport {
    miniport(bed.machines()[0])
}

/// Segments of a flow that follow each other, over IPv4 or IPv6; the flag PSH is in the last.
pub fn segments(is_ipv6: bool, count: usize) -> Vec<Vec<u8>> {
    let whole = stream(0, count * LEN);
    let segment = |number: usize| {
        let mut transport = tcp(0, LEN);
        transport[4..8].copy_from_slice(&((1 + number * LEN) as u32).to_be_bytes());
        transport[13] = if number + 1 == count { 0x18 } else { 0x10 };
        transport[20..].copy_from_slice(&whole[number * LEN..][..LEN]);
        let frame = if is_ipv6 { frame6(1, 6, 0, &transport) } else { frame4(1, 6, 0, &transport) };
        packets::complete(frame)
    };
    (0..count).map(segment).collect()
}

/// Sends `count` segments to the first host, whose stack uses coalescing. Returns the frames that it receives.
pub fn receive(bed: &Testbed, is_ipv6: bool, count: usize) -> Vec<ReceivedFrame> {
    deliver(bed, 1, segments(is_ipv6, count))
}

/// Waits until a thread has come to the moment of a delay.
pub fn await_reached(bed: &Testbed, delay: &Delay) {
    let deadline = bed.now() + Duration::from_secs(5);
    while !delay.is_reached() {
        assert!(bed.now() < deadline, "{delay:?}");
        let _ = bed.event().wait(Duration::from_micros(100));
    }
}

/// The number of segments of each frame that the first host receives, if `count` are sent.
pub fn counts(bed: &Testbed, is_ipv6: bool, count: usize) -> Vec<u32> {
    receive(bed, is_ipv6, count).iter().map(|frame| frame.coalesced).collect()
}

/// OID_TCP_RSC_STATISTICS: segments, bytes, frames, exceptions.
pub fn statistics(miniport: &Miniport) -> [u64; 4] {
    let answer = miniport.query(OID_TCP_RSC_STATISTICS, 40).unwrap();
    assert_eq!((answer.len(), &answer[..4]), (40, &[NDIS_OBJECT_TYPE_DEFAULT, 1, 40, 0][..]));
    [8, 16, 24, 32].map(|at| counter(&answer, at))
}

pub fn statistic(miniport: &Miniport, at: usize) -> u64 {
    counter(&miniport.query(OID_GEN_STATISTICS, 0x98).unwrap(), at)
}

/// Sets a member of NDIS_OFFLOAD_PARAMETERS.
pub fn set(miniport: &Miniport, member: usize, value: u8) {
    let mut change = [0; PARAMETERS];
    change[..3].copy_from_slice(&[
        NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OFFLOAD_PARAMETERS_REVISION_3,
        PARAMETERS as u8,
    ]);
    change[member] = value;
    miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
}
