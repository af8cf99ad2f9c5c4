// SPDX-License-Identifier: MIT OR Apache-2.0

//! The administrator's settings.

use super::strict::settings::StrictSettings;

/// When calls that may pend return `STATUS_PENDING`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    /// When they cannot complete inline: only calls that wait for the network.
    #[default]
    Auto,
    /// The same as `Auto`, for configurations that say so explicitly.
    Inline,
    /// Always, if the consumer gave a callback: a work item at `PASSIVE_LEVEL` completes the call. For
    /// testing consumers.
    Pend,
    /// As `Pend`, and `NdkBuildLAM` too, which known consumers do not expect.
    PendAll,
}

/// Settings of a provider.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When calls that may pend do.
    pub pending: Pending,
    /// Shards of the engine: one for each queue pair of the NIC, at least 1.
    pub shards: u32,
    /// Timeouts of the transport and of connection management.
    pub timing: roce::Timing,
    /// Congestion control.
    pub congestion: roce::CongestionConfig,
    /// Whether packets that arrive after a gap are placed at once; otherwise they are dropped.
    pub early_placement: bool,
    /// Where the engine reports drops, retransmissions and changes of state to.
    pub trace: Option<roce::Trace>,
    /// For authors of consumers.
    pub strict: StrictSettings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pending: Pending::default(),
            shards: 1,
            timing: roce::Timing::default(),
            congestion: roce::CongestionConfig::default(),
            early_placement: true,
            trace: None,
            strict: StrictSettings::default(),
        }
    }
}
