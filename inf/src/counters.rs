// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's counters in WMI: the class, and the counters of the driver beside those of its engine, which `roce::Stats` declares.
//!
//! A query of the class's GUID returns the values of the engine's counters in the order of their declaration, then those of [`OF_DRIVER`], 64
//! bits each. `cargo xtask package` writes the class as `Viordma.mof`.

/// Name of the class in the namespace `root\wmi`.
pub const CLASS: &str = "ViordmaCounters";

/// GUID of the class.
pub const GUID: u128 = 0x6C1F_4B0E_93D2_4E57_A1B8_2D0F_7C35_E964;

/// A counter that is not the engine's.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    pub name: &'static str,
    /// A sentence: what is counted.
    pub text: &'static str,
}

/// Counters of the driver, in the order in which they are reported.
pub const OF_DRIVER: [Counter; 3] = [
    Counter { name: "tx_notifications", text: "Notifications of the transmit queues to the device." },
    Counter {
        name: "tx_notifications_suppressed",
        text: "Batches of frames that a busy device did not want to be notified of.",
    },
    Counter {
        name: "rx_handed_over",
        text: "Received frames that were indicated on another processor than the one that had received them.",
    },
];
