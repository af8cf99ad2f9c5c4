// SPDX-License-Identifier: MIT OR Apache-2.0

//! Keywords: subsystems of the driver, one bit each.

/// A keyword.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    pub bit: u64,
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! keywords {
    ($($name:ident = $bit:literal, $label:literal: $text:literal;)*) => {
        $(#[doc = $text] pub const $name: u64 = $bit;)*
        /// All keywords.
        pub const KEYWORDS: &[Keyword] = &[$(Keyword { bit: $bit, name: $label, text: $text }),*];
    };
}

keywords! {
    CONNECTION = 0x1, "Connection": "Life of connections, refused requests, messages of connection management without effect.";
    DROP = 0x2, "Drop": "Received frames that were dropped, with the reason.";
    RETRANSMISSION = 0x4, "Retransmission": "Packets that were sent again, and times without an answer.";
    CONGESTION = 0x8, "Congestion": "Congestion notifications, and lowered rates.";
    QUEUE = 0x10, "Queue": "States of queue pairs, flushes with their cause, overflows of completion queues.";
    NDK = 0x20, "Ndk": "NDK adapters that consumers open and close, RDMA enabled and disabled.";
    OID = 0x40, "Oid": "OID requests of NDIS, with their status.";
    POWER = 0x80, "Power": "Start, pause, halt, removal, power states.";
    DEVICE = 0x100, "Device": "Faults of the device, waits for it, and the events of the system log.";
    SEQUENCE = 0x8000_0000, "Sequence": "Sequence numbers, by which packets of a connection can be forged. Off in each mask that does not name it: all ones and 0 select \
         the other keywords only.";
}

/// All keywords but [`SEQUENCE`].
pub const ORDINARY: u64 =
    CONNECTION | DROP | RETRANSMISSION | CONGESTION | QUEUE | NDK | OID | POWER | DEVICE;

/// Returns the keywords that a session selects by its mask "match any". [`SEQUENCE`] is one of them only if the mask has it and no bit that is
/// not a keyword: a mask of all ones, or 0, which has the same meaning, does not ask for sequence numbers.
#[must_use]
pub const fn selected(any: u64) -> u64 {
    if any != 0 && any & !(ORDINARY | SEQUENCE) == 0 {
        any
    } else if any == 0 {
        ORDINARY
    } else {
        any & ORDINARY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_selected_only_by_a_mask_that_names_them() {
        assert_eq!([selected(0), selected(u64::MAX), selected(0xFFFF_FFFF)], [ORDINARY; 3]);
        assert_eq!(selected(SEQUENCE | DROP), SEQUENCE | DROP);
        assert_eq!(selected(DROP), DROP);
        assert_eq!(selected(1 << 40), 0);
    }

    #[test]
    fn each_keyword_is_a_bit_of_its_own() {
        let mut seen = 0;
        for keyword in KEYWORDS {
            assert!(keyword.bit.is_power_of_two() && seen & keyword.bit == 0, "{keyword:?}");
            // The upper 16 bits are Microsoft's.
            assert_eq!(keyword.bit >> 48, 0);
            seen |= keyword.bit;
        }
        assert_eq!(seen, ORDINARY | SEQUENCE);
    }
}
