// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion control configuration: ECN, congestion notification packets (CNP) and DCQCN.
//!
//! Switches mark ECN-capable frames (RFC 3168). The receiver answers marks with CNPs
//! ([`crate::transport::congestion::cnp`]); the sender lowers its rate ([`crate::transport::congestion::rate`]).

use core::time::Duration;

/// Configuration of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    pub mode: CongestionMode,
    /// Minimum time between two CNPs that a queue pair sends, and between two that it reacts to.
    pub notify_interval: Duration,
    pub reaction: DcqcnConfig,
}

/// How a queue pair takes part in congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CongestionMode {
    /// Marks and CNPs are counted only.
    Ignore,
    /// Marks are answered with CNPs.
    Notify,
    /// As `Notify`; frames are sent ECN-capable, and CNPs lower the transmit rate.
    React,
}

/// DCQCN parameters of the reaction point. The defaults are the published ones; rates are in bits per second,
/// of whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// The line rate of the adapter.
    pub line_rate: u64,
    /// The rate is never lower.
    pub min_rate: u64,
    /// Gain of `alpha` is 1/2^n: 8 for 1/256. At most 9.
    pub gain_shift: u32,
    /// `alpha` falls once in this time without a CNP.
    pub alpha_interval: Duration,
    /// Duration of a time round of recovery.
    pub increase_interval: Duration,
    /// Length of a byte round of recovery.
    pub increase_bytes: u64,
    /// Rounds of fast recovery.
    pub fast_rounds: u32,
    /// Rise of the target rate in each round of additive increase, in bits per second.
    pub additive_step: u64,
    /// The same once both time and byte rounds are beyond fast recovery (hyper increase).
    pub hyper_step: u64,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            mode: CongestionMode::Notify,
            notify_interval: Duration::from_micros(50),
            reaction: DcqcnConfig::default(),
        }
    }
}

impl Default for DcqcnConfig {
    //= rocev2 §14
    fn default() -> Self {
        Self {
            line_rate: 100_000_000_000,
            min_rate: 10_000_000,
            gain_shift: 8,
            alpha_interval: Duration::from_micros(55),
            increase_interval: Duration::from_micros(55),
            increase_bytes: 10_000_000,
            fast_rounds: 5,
            additive_step: 40_000_000,
            hyper_step: 400_000_000,
        }
    }
}

impl DcqcnConfig {
    /// Share of the line rate that a sender keeps under congestion: forged CNPs slow a connection by this factor
    /// at most.
    const KEPT_SHARE: u64 = 256;

    /// Returns the parameters for an adapter with a line rate of `line_rate` bits per second.
    #[must_use]
    pub fn for_line_rate(line_rate: u64) -> Self {
        let default = Self::default();
        Self { line_rate, min_rate: default.min_rate.max(line_rate / Self::KEPT_SHARE), ..default }
    }
}

impl CongestionConfig {
    /// Returns the ECN bits of the traffic class of sent frames.
    pub(crate) fn ecn(&self) -> u8 {
        /// ECT(0).
        const CAPABLE: u8 = 0b10;
        //= rocev2 §14
        if self.mode == CongestionMode::React { CAPABLE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_keeps_a_share_of_the_line_rate_or_the_least_rate() {
        let rates = |line_rate| {
            let config = DcqcnConfig::for_line_rate(line_rate);
            (config.line_rate, config.min_rate)
        };
        assert_eq!(rates(25_600_000_000), (25_600_000_000, 100_000_000));
        assert_eq!(rates(1_000_000_000), (1_000_000_000, 10_000_000));
    }
}
