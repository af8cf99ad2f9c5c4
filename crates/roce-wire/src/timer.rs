// SPDX-License-Identifier: MIT OR Apache-2.0

//! Encoded times: RNR NAK timers (IBTA Vol 1 §9.7.5) and CM timeouts.

use core::time::Duration;

/// RNR timers by code, in units of 10 us.
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time that a requester waits after an RNR NAK with this code (the low 5 bits of `code`).
///
/// Source: rocev2 §8.
#[must_use]
#[inline]
pub fn rnr_timer(code: u8) -> Duration {
    //= rocev2 §8
    let units = RNR.get(usize::from(code & 31)).copied().unwrap_or(65536);
    Duration::from_micros(u64::from(units) * 10)
}

/// Returns the code of the shortest RNR timer that is at least `wait`; 0 (the longest, 655 ms) if none is.
#[must_use]
pub fn rnr_timer_code(wait: Duration) -> u8 {
    (1..32).find(|&code| rnr_timer(code) >= wait).unwrap_or(0)
}

/// Returns 4.096 us * 2^code for a 5-bit code, the encoding of local ACK timeouts and CM response timeouts.
/// A local ACK timeout of 0 means that the timer is off; the caller handles that.
#[must_use]
#[inline]
pub const fn ack_timeout(code: u8) -> Duration {
    //= rocev2 §8
    Duration::from_nanos(4096 << (code & 31))
}

/// Returns the smallest code whose time is at least `time`; 31 (2.4 hours) if none is.
#[must_use]
pub fn ack_timeout_code(time: Duration) -> u8 {
    (1..31).find(|&code| ack_timeout(code) >= time).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §8
    #[test]
    fn rnr_code_zero_is_the_longest_timer() {
        assert_eq!(rnr_timer(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timer(1), Duration::from_micros(10));
        assert_eq!(rnr_timer(12), Duration::from_micros(640));
        assert_eq!(rnr_timer(31), Duration::from_micros(491_520));
        assert!((1..31).all(|code| rnr_timer(code) < rnr_timer(code + 1)));
        assert!((1..32).all(|code| rnr_timer(code) < rnr_timer(0)));
    }

    //= rocev2 §8
    #[test]
    fn wait_is_rounded_up_to_the_next_timer() {
        assert_eq!(rnr_timer_code(Duration::from_micros(640)), 12);
        assert_eq!(rnr_timer_code(Duration::from_micros(641)), 13);
        assert_eq!(rnr_timer_code(Duration::from_millis(500)), 0);
    }

    //= rocev2 §8
    #[test]
    fn ack_timeouts_double_with_each_code() {
        assert_eq!(ack_timeout(19).as_millis(), 2147);
        assert_eq!(ack_timeout(14).as_millis(), 67);
        assert_eq!(ack_timeout_code(Duration::from_millis(67)), 14);
        assert_eq!(ack_timeout_code(Duration::from_secs(100_000)), 31);
    }
}
