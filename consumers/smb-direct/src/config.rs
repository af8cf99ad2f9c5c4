// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parameters of an endpoint's connections, and the result of a negotiation.

use core::time::Duration;

use crate::wire::{MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE};

/// Time that an initiator allows for connecting and negotiating ([MS-SMBD] 3.1.4.1).
pub const ACTIVE_NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Time that a listener allows for negotiating ([MS-SMBD] 3.1.7.2).
pub const PASSIVE_NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Smallest receive buffer that is posted before the negotiation, in bytes.
//= R-SMBD-9
pub const NEGOTIATION_RECEIVE_SIZE: u32 = 512;

/// Parameters that an endpoint requests of a connection. The defaults are those of Windows ([MS-SMBD] appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Credits granted to the peer at most, from 1.
    pub receive_credit_max: u16,
    /// Credits requested from the peer, from 1.
    pub send_credit_target: u16,
    /// Largest message to send in bytes, from 128.
    pub max_send_size: u32,
    /// Largest message to receive in bytes, from 128.
    pub max_receive_size: u32,
    /// Largest payload to reassemble in bytes, from 131,072.
    pub max_fragmented_receive_size: u32,
    /// Largest RDMA transfer for one request in bytes.
    pub max_read_write_size: u32,
    /// Silence of the peer after which an answer is requested.
    pub keepalive_interval: Duration,
    /// Time for that answer.
    pub keepalive_timeout: Duration,
    /// Time that a queued message may wait for credits.
    pub credit_timeout: Duration,
    /// Upper-layer messages that may be queued, from 1.
    pub send_queue_length: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_credit_max: 255,
            send_credit_target: 255,
            max_send_size: 1364,
            max_receive_size: 8192,
            max_fragmented_receive_size: 1_048_576,
            max_read_write_size: 8_388_608,
            keepalive_interval: Duration::from_secs(120),
            keepalive_timeout: Duration::from_secs(5),
            credit_timeout: Duration::from_secs(120),
            send_queue_length: 1024,
        }
    }
}

impl Config {
    /// Returns whether all values are within the limits that their documentation states.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.receive_credit_max > 0
            && self.send_credit_target > 0
            && self.send_queue_length > 0
            && self.max_send_size >= MIN_RECEIVE_SIZE
            && self.max_receive_size >= MIN_RECEIVE_SIZE
            && self.max_fragmented_receive_size >= MIN_FRAGMENTED_SIZE
    }
}

/// Negotiated parameters of a connection ([MS-SMBD] 3.1.4.7). Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Largest message to send.
    pub max_send_size: u32,
    /// Largest message to receive: size of the receive buffers to post.
    pub max_receive_size: u32,
    /// Largest upper-layer message that the peer can reassemble.
    pub max_fragmented_send_size: u32,
    /// Largest upper-layer message that is reassembled here.
    pub max_fragmented_receive_size: u32,
    /// Largest RDMA transfer for one request.
    pub max_read_write_size: u32,
    /// Silence of the peer after which an answer is requested.
    pub keepalive_interval: Duration,
}
