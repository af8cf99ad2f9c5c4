// SPDX-License-Identifier: MIT OR Apache-2.0

//! An independent check of the ICRC, to verify what the engine sends.
//!
//! Written from the specification alone (rocev2 §2), for one frame at a time: headers are copied and masked, and the crate
//! `crc32fast` computes the CRC. Shares no code with `roce-wire`, neither the parser nor the CRC.

/// The result of [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcCheck {
    /// Not a frame to UDP port 4791.
    NotRoce,
    /// To that port, but shorter than its headers say.
    Truncated,
    /// The ICRC is right.
    Valid,
    /// The ICRC is wrong. `expected` is the right one, in wire order.
    Invalid { expected: [u8; 4] },
}

/// Checks the ICRC of a frame, from its Ethernet header on.
//= rocev2 §2
#[must_use]
pub fn check(frame: &[u8]) -> IcrcCheck {
    let be16 = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let (ethertype, ip_at) = match be16(12) {
        Some(0x8100) => (be16(16), 18),
        other => (other, 14),
    };
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let (is_v4, udp_at) = match ethertype {
        Some(0x0800) if byte(ip_at) >> 4 == 4 && byte(ip_at + 9) == 17 => {
            let later_fragment = be16(ip_at + 6).is_some_and(|word| word & 0x1FFF != 0);
            if later_fragment {
                return IcrcCheck::NotRoce;
            }
            (true, ip_at + 4 * usize::from(byte(ip_at) & 0xF))
        }
        Some(0x86DD) if byte(ip_at) >> 4 == 6 && byte(ip_at + 6) == 17 => (false, ip_at + 40),
        _ => return IcrcCheck::NotRoce,
    };
    if be16(udp_at + 2) != Some(4791) {
        return IcrcCheck::NotRoce;
    }
    let end = udp_at + usize::from(be16(udp_at + 4).unwrap_or(0));
    let (bth_at, icrc_at) = (udp_at + 8, end.saturating_sub(4));
    let (true, Some(stored)) = (icrc_at >= bth_at + 12, frame.get(icrc_at..end)) else {
        return IcrcCheck::Truncated;
    };
    let mut covered = frame[ip_at..icrc_at].to_vec();
    let masked: &[usize] = if is_v4 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    for &at in masked {
        covered[at] = 0xFF;
    }
    if !is_v4 {
        // The traffic class begins in the low half of the first byte.
        covered[0] |= 0x0F;
    }
    for at in [udp_at + 6, udp_at + 7, bth_at + 4] {
        covered[at - ip_at] = 0xFF;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xFF; 8]);
    hasher.update(&covered);
    let expected = hasher.finalize().to_le_bytes();
    if stored == expected { IcrcCheck::Valid } else { IcrcCheck::Invalid { expected } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of docs/rules/rocev2.md.
    const VECTORS: [&str; 3] = [
        "525400770001525400770002080045000030c375400040115bf3c0a84d02c0a84d01c51412b7001c00001100ffff0000003c\
         00e447ae1f000001db028462",
        "525400770001525400770002080045000030c374400040115bf4c0a84d02c0a84d01c51412b7001c00001100ffff0000003c\
         00e447aa60000000ee2fd69d",
        "52540077000152540077000286dd60000000001c1140fd770000000000000000000000000002fd7700000000000000000000\
         00000001f93e12b7001c00001100ffff0000002a00a9d1391f000001ccb3080b",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    //= rocev2 §2
    #[test]
    fn example_frames_of_the_rules_are_valid() {
        for vector in VECTORS {
            assert_eq!(check(&bytes(vector)), IcrcCheck::Valid);
        }
    }

    //= rocev2 §2
    #[test]
    fn flipped_bit_is_detected_where_the_icrc_covers_it() {
        let frame = bytes(VECTORS[0]);
        // Type of service, TTL, header checksum, UDP checksum, congestion bits of the BTH.
        let free = [15, 22, 24, 25, 40, 41, 46];
        for at in 14..frame.len() {
            let mut flipped = frame.clone();
            flipped[at] ^= 0x40;
            let valid = check(&flipped) == IcrcCheck::Valid;
            assert_eq!(valid, free.contains(&at), "byte {at}");
        }
    }

    #[test]
    fn truncated_and_other_frames_are_distinguished() {
        let frame = bytes(VECTORS[2]);
        assert_eq!(check(&frame[..frame.len() - 1]), IcrcCheck::Truncated);
        assert_eq!(check(&frame[..40]), IcrcCheck::NotRoce);
        assert_eq!(check(&[]), IcrcCheck::NotRoce);
        let mut padded = frame.clone();
        padded.extend([0; 9]);
        assert_eq!(check(&padded), IcrcCheck::Valid, "Ethernet pads short frames");
        let mut other_port = frame;
        other_port[57] ^= 1;
        assert_eq!(check(&other_port), IcrcCheck::NotRoce);
    }
}
