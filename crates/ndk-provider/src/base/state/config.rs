// SPDX-License-Identifier: MIT OR Apache-2.0

//! The administrator's settings.

use crate::base::strict::StrictSettings;

/// How create calls complete, and requests and closes that need not wait for anything: the values of the keyword
/// `NdkCreateCompletion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateCompletion {
    /// Inline where the memory is at hand at the caller's IRQL. Where it is not, the call pends if the consumer gave a
    /// callback, and a work item at `PASSIVE_LEVEL` completes it.
    #[default]
    Auto,
    /// Inline.
    Inline,
    /// By a work item, if the consumer gave a callback. For testing consumers.
    Pend,
    /// As `Pend`, and `NdkBuildLAM` too, which known consumers do not expect.
    PendAll,
}

/// Settings of a provider.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How calls complete.
    pub create_completion: CreateCompletion,
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
    /// For authors of consumers: no settings without the feature `strict`.
    pub strict: StrictSettings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            create_completion: CreateCompletion::default(),
            shards: 1,
            timing: roce::Timing::default(),
            congestion: roce::CongestionConfig::default(),
            early_placement: true,
            trace: None,
            strict: StrictSettings::default(),
        }
    }
}
