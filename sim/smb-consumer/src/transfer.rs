// SPDX-License-Identifier: MIT OR Apache-2.0

//! What both sides of a file copy have in common.

use core::time::Duration;

use smb_direct::Config;

/// Requests below this length carry their data in messages, as those of Linux's client do.
pub const RDMA_THRESHOLD: usize = 4096;

/// Options of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub config: Config,
    /// Bytes of one request, from 1 to the negotiated `MaxReadWriteSize`.
    pub chunk: usize,
    /// Requests in flight, from 1.
    pub outstanding: usize,
    /// Time that the serving side waits for a connection.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { config: Config::default(), chunk: 1 << 20, outstanding: 8, timeout: Duration::from_mins(1) }
    }
}
