// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parts of a file copy that both sides have in common.

use alloc::sync::Arc;
use core::time::Duration;

use ndk_consumer::Moderation;
use smb_direct::Config;

use crate::Endings;

/// Requests below this length carry their data in messages, as those of Linux's client do.
pub const RDMA_THRESHOLD: usize = 4096;

/// Moderation of notifications by default: what Microsoft's NDK consumers ask for.
const MODERATION: Moderation = Moderation { interval: 20, count: u32::MAX };

/// Options of a connection and of a copy.
#[derive(Clone, Debug)]
pub struct Options {
    pub config: Config,
    /// Of both completion queues.
    pub moderation: Moderation,
    /// Where the reasons of ended connections go.
    pub endings: Arc<Endings>,
    /// Bytes of one request, from 1 to the negotiated `MaxReadWriteSize`.
    pub chunk: usize,
    /// Requests in flight, from 1.
    pub outstanding: usize,
    /// Time that the serving side waits for a connection.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: Config::default(),
            moderation: MODERATION,
            endings: Arc::default(),
            chunk: 1 << 20,
            outstanding: 8,
            timeout: Duration::from_mins(1),
        }
    }
}
