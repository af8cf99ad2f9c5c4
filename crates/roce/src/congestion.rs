//! Congestion control configuration: ECN, congestion notification packets (CNP) and DCQCN.
//!
//! Switches mark ECN-capable frames (RFC 3168). The receiver answers marks with CNPs
//! ([`crate::transport::cnp`]); the sender lowers its rate ([`crate::transport::rate`]).

use core::time::Duration;

/// What is done about congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    pub mode: CongestionMode,
    /// Shortest time between two notifications that a queue pair sends, and between two that it heeds.
    pub notify_interval: Duration,
    pub reaction: DcqcnConfig,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CongestionMode {
    /// Nothing: marks and notifications are counted.
    Ignore,
    /// Marks are answered with notifications: peers may slow down.
    Notify,
    /// That, and frames are sent as ECN-capable, and slower after notifications.
    React,
}

/// How a queue pair slows down and recovers. The defaults are the published ones; rates are in bits per
/// second, of whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Where it begins and ends: that of the adapter's line.
    pub line_rate: u64,
    /// Never below this.
    pub min_rate: u64,
    /// `alpha` follows the notifications with a gain of 1/2^n: 8 for 1/256. At most 9.
    pub gain_shift: u32,
    /// `alpha` falls once in this time without a notification.
    pub alpha_interval: Duration,
    /// A round of recovery in time.
    pub increase_interval: Duration,
    /// A round of recovery in bytes sent.
    pub increase_bytes: u64,
    /// Rounds of fast recovery.
    pub fast_rounds: u32,
    /// What the rate aimed at rises by in each round after those.
    pub additive_step: u64,
    /// The same once rounds both in time and in bytes are beyond fast recovery: ten times the other, as with
    /// the adapters that have both.
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

impl CongestionConfig {
    /// The ECN bits of a traffic class: whether frames are sent as ECN-capable.
    pub(crate) fn ecn(&self) -> u8 {
        /// ECT(0).
        const CAPABLE: u8 = 0b10;
        //= rocev2 §14
        if self.mode == CongestionMode::React { CAPABLE } else { 0 }
    }
}
