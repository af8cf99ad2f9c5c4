//! Codes that stand for times.

use core::time::Duration;

/// RNR timers by code, in units of 10 us.
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long a requester waits after an RNR NAK with this code (the low 5 bits of `code`).
///
/// Source: rocev2 §8.
#[inline]
pub fn rnr_timer(code: u8) -> Duration {
    //= rocev2 §8
    let units = RNR.get(usize::from(code & 31)).copied().unwrap_or(65536);
    Duration::from_micros(u64::from(units) * 10)
}

/// The code of the shortest RNR timer that is at least `wait` long; the longest there is (0) otherwise.
pub fn rnr_timer_code(wait: Duration) -> u8 {
    (1..32).find(|&code| rnr_timer(code) >= wait).unwrap_or(0)
}

/// The time of a 5-bit code of 4.096 us * 2^code, as local ACK timeouts and CM response timeouts use it.
/// Code 0 of a local ACK timeout means none; what it means is the caller's to know.
#[inline]
pub const fn ack_timeout(code: u8) -> Duration {
    //= rocev2 §8
    Duration::from_nanos(4096 << (code & 31))
}

/// The smallest code whose time is at least `time`; 31 (2.4 hours) when none is.
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
    fn a_wait_is_rounded_up_to_a_timer_that_exists() {
        assert_eq!(rnr_timer_code(Duration::from_micros(640)), 12);
        assert_eq!(rnr_timer_code(Duration::from_micros(641)), 13);
        assert_eq!(rnr_timer_code(Duration::from_millis(500)), 0);
    }

    //= rocev2 §8
    #[test]
    fn linux_waits_two_seconds_for_an_acknowledgement() {
        assert_eq!(ack_timeout(19).as_millis(), 2147);
        assert_eq!(ack_timeout(14).as_millis(), 67);
        assert_eq!(ack_timeout_code(Duration::from_millis(67)), 14);
        assert_eq!(ack_timeout_code(Duration::from_secs(100_000)), 31);
    }
}
