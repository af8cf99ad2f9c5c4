// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a strict provider.

use super::reporter::Report;
use core::time::Duration;
use ndk_abi::ndk::NDK_OBJECT_TYPE;

/// Settings for authors of NDK consumers. By default all are off, and the provider behaves as without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrictSettings {
    /// Writes the mistakes of consumers to the system log.
    pub report: Option<Report>,
    /// The create call that fails.
    pub fail_create: Option<FailCreate>,
    /// How long callbacks are held back.
    pub delay: Option<CallbackDelay>,
}

/// One create call that fails with `STATUS_INSUFFICIENT_RESOURCES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailCreate {
    /// Number of the call, counted from 1 since the provider was created. 0 is never reached.
    pub number: u32,
    /// Counts the create calls of this type only; of all types if `None`.
    pub object: Option<NDK_OBJECT_TYPE>,
}

/// How long callbacks are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackDelay {
    pub time: Duration,
    /// Whether each delay is a random time up to `time` instead of all of it.
    pub random: bool,
}
