// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing: what a miniport indicates as several TCP segments must be like one, and the stack must have asked for
//! it. (WDK: Indicating Coalesced Segments, Exception Conditions that Terminate Coalescing)

use device_sim::checksum::{self, Protocol, Transport};
use ndk_abi::ndis::{
    NDIS_RSC_NBL_INFO as Rsc, NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum, OID_TCP_RSC_STATISTICS,
};

use crate::{
    offload::{Offloads, ReceivedFrame},
    rules::{self, require},
};

const ETHERNET_HEADER: usize = 14;
/// Longest IP packet.
const MAX_PACKET: usize = 65_535;
/// Flags of TCP that no coalesced segment has: SYN, RST, URG. FIN is one in the documentation; but a device delivers whole what a
/// machine beside this one has sent as a whole, in one packet with the end of its stream.
const EXCEPTIONS: u8 = 0x26;

/// A frame as it was indicated.
pub(crate) struct Indicated<'a> {
    pub frame: &'a ReceivedFrame,
    /// NET_BUFFERs of its list.
    pub buffers: usize,
    /// `RscTcpTimestampDelta`.
    pub timestamp_delta: usize,
}

impl Indicated<'_> {
    /// Checks what a miniport says of the segments of a frame, while coalescing is in force for these IP versions, 4 and 6, and packets
    /// have at most `mtu` bytes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, in_force: [bool; 2], mtu: u32) -> Result<(), String> {
        let ReceivedFrame { bytes, checksum, coalesced, .. } = self.frame;
        let require = |is_right: bool, wrong: &str| {
            if is_right {
                Ok(())
            } else {
                Err(format!("{wrong}: {coalesced:#x}, a frame of {} bytes", bytes.len()))
            }
        };
        let (segments, acknowledgments) =
            (coalesced & Rsc::COALESCED_SEG_COUNT, coalesced & Rsc::DUP_ACK_COUNT);
        let longest = (mtu as usize).saturating_add(ETHERNET_HEADER);
        if segments == 0 {
            require(
                acknowledgments == 0 && self.timestamp_delta == 0,
                "DupAckCount or RscTcpTimestampDelta with CoalescedSegCount 0",
            )?;
            return require(
                bytes.len() <= longest,
                "a frame with CoalescedSegCount 0 is longer than the MTU",
            );
        }
        let found = Transport::find(bytes).filter(|found| found.protocol == Protocol::Tcp);
        let Some(found) = found else { return require(false, "CoalescedSegCount of a frame without TCP") };
        require(in_force[usize::from(found.is_ipv6)], "CoalescedSegCount, but coalescing is not in force")?;
        require(self.buffers == 1, "CoalescedSegCount of a list with several NET_BUFFERs")?;
        let plain = found.ip + if found.is_ipv6 { 40 } else { 20 };
        let headers = found.range.start + usize::from(bytes[found.range.start + 12] >> 4) * 4;
        let is_like_one = found.range == (plain..bytes.len())
            && bytes.len() - found.ip <= MAX_PACKET
            && bytes[found.range.start + 13] & EXCEPTIONS == 0
            && headers < bytes.len();
        require(is_like_one, "coalesced segments are not like one")?;
        let payload = bytes.len() - headers;
        let fewest = payload.div_ceil(longest.saturating_sub(headers).max(1));
        require((fewest..=payload).contains(&(segments as usize)), "CoalescedSegCount cannot be right")?;
        let mut verified = Checksum::RECEIVE_TCP_SUCCEEDED;
        if checksum::ipv4_header_is_valid(bytes).is_some() {
            verified |= Checksum::RECEIVE_IP_SUCCEEDED;
        }
        require(checksum & verified == verified, "coalesced segments without verified checksums")
    }
}

/// Checks that an adapter that can coalesce has the OID for it.
pub(crate) fn require_oid(possible: &Offloads, oids: &[u32]) {
    require(
        possible.coalescing == [false; 2] || oids.contains(&OID_TCP_RSC_STATISTICS),
        rules::RSC_STATISTICS,
        || "the adapter coalesces segments, but OID_TCP_RSC_STATISTICS is not supported".into(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: u32 = Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_IP_SUCCEEDED;

    /// A TCP segment over IPv4, with or without options of the IP header.
    fn segment(payload: usize, flags: u8, options: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45 + options as u8, 0]);
        frame.extend(((40 + 4 * options + payload) as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(vec![1; 4 * options]);
        frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame.extend(vec![7; payload]);
        frame
    }

    fn verdict(bytes: Vec<u8>, coalesced: u32, checksum: u32, in_force: bool) -> String {
        let frame = ReceivedFrame { bytes, checksum, priority_vlan: 0, coalesced };
        let indicated = Indicated { frame: &frame, buffers: 1, timestamp_delta: 0 };
        indicated.check([in_force, false], 1500).err().unwrap_or_default()
    }

    #[test]
    fn coalesced_segments_are_like_one_and_asked_for() {
        let large = || segment(3000, 0x18, 0);
        assert_eq!(verdict(large(), 3, RIGHT, true), "");
        assert_eq!(verdict(segment(1460, 0x10, 0), 0, 0, false), "");
        let mut udp = large();
        udp[23] = 17;
        for (bytes, coalesced, checksum, in_force, expected) in [
            (large(), 0, RIGHT, true, "a frame with CoalescedSegCount 0 is longer than the MTU"),
            (
                segment(100, 0x10, 0),
                1 << 16,
                RIGHT,
                true,
                "DupAckCount or RscTcpTimestampDelta with CoalescedSegCount 0",
            ),
            (large(), 3, RIGHT, false, "CoalescedSegCount, but coalescing is not in force"),
            (udp, 3, RIGHT, true, "CoalescedSegCount of a frame without TCP"),
            (segment(3000, 0x10, 1), 3, RIGHT, true, "coalesced segments are not like one"),
            (segment(3000, 0x12, 0), 3, RIGHT, true, "coalesced segments are not like one"),
            (segment(0, 0x10, 0), 1, RIGHT, true, "coalesced segments are not like one"),
            ([large(), vec![0]].concat(), 3, RIGHT, true, "coalesced segments are not like one"),
            // 3000 bytes take three segments at least.
            (large(), 2, RIGHT, true, "CoalescedSegCount cannot be right"),
            (segment(100, 0x10, 0), 101, RIGHT, true, "CoalescedSegCount cannot be right"),
            (
                large(),
                3,
                Checksum::RECEIVE_IP_SUCCEEDED,
                true,
                "coalesced segments without verified checksums",
            ),
            (
                large(),
                3,
                Checksum::RECEIVE_TCP_SUCCEEDED,
                true,
                "coalesced segments without verified checksums",
            ),
        ] {
            let verdict = verdict(bytes, coalesced, checksum, in_force);
            assert!(verdict.contains(expected), "{expected}: {verdict}");
        }
        let frame = ReceivedFrame { bytes: large(), checksum: RIGHT, priority_vlan: 0, coalesced: 3 };
        let several = Indicated { frame: &frame, buffers: 2, timestamp_delta: 0 };
        assert!(
            several
                .check([true; 2], 1500)
                .unwrap_err()
                .contains("CoalescedSegCount of a list with several NET_BUFFERs")
        );
        let none = ReceivedFrame { coalesced: 0, bytes: segment(10, 0x10, 0), ..frame };
        let delta = Indicated { frame: &none, buffers: 1, timestamp_delta: 1 };
        assert!(delta.check([true; 2], 1500).unwrap_err().contains("RscTcpTimestampDelta"));
    }
}
