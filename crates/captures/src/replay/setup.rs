// SPDX-License-Identifier: MIT OR Apache-2.0

//! Facts about the captures that the frames do not show: the fate of frames behind the capture point, and the settings of
//! the hosts' consumers.
//!
//! The captures were taken at side 0. They contain every frame of side 0, even if it was lost later, and the frames of
//! side 1 that arrived. Source: the README of the captures.

use std::time::Duration;

/// The facts about one capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureSetup {
    pub capture: &'static str,
    /// Faults of the network for frames of side 0.
    pub fates: &'static [(Nth, Fate)],
    /// The consumer of side 1 posts its receives this long after it has accepted.
    pub receives_after: Option<Duration>,
    /// Length of each receive of side 1 in bytes; by default that of the message.
    pub receive_length: Option<u32>,
    /// All receives are posted to one shared receive queue.
    pub shared_receives: bool,
    /// The consumer of side 0 posts all its requests at once, the last with a fence.
    pub posts_at_once: bool,
    /// The consumer of side 1 flushes its queue pair as soon as it is connected.
    pub flushes: bool,
}

/// A frame of side 0, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nth {
    /// A connection management datagram.
    Cm(usize),
    /// A packet of the RC transport.
    Rc(usize),
    /// Every packet of the RC transport.
    EveryRc,
}

/// A fault of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    Duplicated,
    /// One bit was changed.
    Corrupted,
    /// A switch marked the frame as congestion experienced.
    Marked,
    /// The frame arrived after the next frame of the other side was sent.
    Delayed,
}

impl CaptureSetup {
    const fn new(capture: &'static str) -> Self {
        Self {
            capture,
            fates: &[],
            receives_after: None,
            receive_length: None,
            shared_receives: false,
            posts_at_once: false,
            flushes: false,
        }
    }

    const fn with_fates(capture: &'static str, fates: &'static [(Nth, Fate)]) -> Self {
        Self { fates, ..Self::new(capture) }
    }

    /// Returns the fault that applies to a frame.
    #[must_use]
    pub fn fate(&self, nth: Nth) -> Option<Fate> {
        let matches = |(which, _): &&(Nth, Fate)| {
            *which == nth || (*which == Nth::EveryRc && matches!(nth, Nth::Rc(_)))
        };
        self.fates.iter().find(matches).map(|(_, fate)| *fate)
    }
}

use Fate::{Corrupted, Delayed, Duplicated, Lost, Marked};
use Nth::{Cm, EveryRc, Rc};

/// Every capture, in the order of the README.
pub const SETUPS: [CaptureSetup; 55] = [
    CaptureSetup::new("rping_v4"),
    CaptureSetup::new("rping_v6"),
    CaptureSetup::new("rping_v4_mtu4096"),
    CaptureSetup::with_fates("rdma_client_server", &[(Cm(3), Delayed)]),
    CaptureSetup::new("reject_no_listener"),
    CaptureSetup::new("reject_by_consumer"),
    CaptureSetup::new("send_bw_1024"),
    CaptureSetup::new("write_bw_1024"),
    CaptureSetup::new("read_bw_1024"),
    CaptureSetup::new("write_lat_1024"),
    CaptureSetup::new("send_lat_1024"),
    CaptureSetup::new("read_lat_1024"),
    CaptureSetup::new("atomic_bw"),
    CaptureSetup::new("send_bw_rdmacm_1024"),
    CaptureSetup::new("send_bw_4096"),
    CaptureSetup::new("write_bw_4096"),
    CaptureSetup::new("read_bw_4096"),
    CaptureSetup::new("rc_pingpong"),
    CaptureSetup::new("rc_pingpong_v6"),
    CaptureSetup { shared_receives: true, ..CaptureSetup::new("srq_pingpong") },
    CaptureSetup::new("sizes"),
    CaptureSetup::new("immediate"),
    CaptureSetup::new("immediate_v6"),
    CaptureSetup::new("zero_length"),
    CaptureSetup::new("atomic_cas_faa"),
    CaptureSetup { posts_at_once: true, ..CaptureSetup::new("reads_outstanding") },
    CaptureSetup::new("long_write_ack_request"),
    CaptureSetup::new("psn_wrap"),
    CaptureSetup::new("write_then_send"),
    CaptureSetup::new("send_invalidate"),
    CaptureSetup::new("send_invalidate_bad_key"),
    CaptureSetup::new("nak_write_bad_rkey"),
    CaptureSetup::new("nak_write_out_of_range"),
    CaptureSetup::new("nak_read_bad_rkey"),
    CaptureSetup::new("nak_read_out_of_range"),
    CaptureSetup::new("nak_atomic_bad_rkey"),
    CaptureSetup { receive_length: Some(1000), ..CaptureSetup::new("nak_send_too_long") },
    CaptureSetup { receives_after: Some(Duration::from_millis(400)), ..CaptureSetup::new("rnr_then_ok") },
    CaptureSetup { flushes: true, ..CaptureSetup::new("retry_exceeded") },
    CaptureSetup::with_fates("loss_write_middle", &[(Rc(4), Lost)]),
    CaptureSetup::with_fates("loss_write_last", &[(Rc(8), Lost)]),
    CaptureSetup::with_fates("loss_send_first", &[(Rc(1), Lost)]),
    CaptureSetup::new("loss_ack"),
    CaptureSetup::with_fates("loss_read_request", &[(Rc(1), Lost)]),
    CaptureSetup::new("loss_read_response_middle"),
    CaptureSetup::with_fates("loss_nak", &[(Rc(4), Lost)]),
    CaptureSetup::with_fates("duplicate_write", &[(Rc(8), Duplicated)]),
    CaptureSetup::with_fates("duplicate_send", &[(Rc(1), Duplicated)]),
    CaptureSetup::with_fates("corrupt_icrc", &[(Rc(8), Corrupted)]),
    CaptureSetup::with_fates("ecn_marked", &[(EveryRc, Marked)]),
    CaptureSetup::with_fates("cm_loss_req", &[(Cm(1), Lost)]),
    CaptureSetup::new("cm_loss_rep"),
    CaptureSetup::with_fates("cm_loss_rtu", &[(Cm(2), Lost)]),
    CaptureSetup::with_fates("cm_loss_dreq", &[(Cm(3), Lost)]),
    CaptureSetup::with_fates(
        "cm_unanswered",
        &[
            (Cm(1), Lost),
            (Cm(2), Lost),
            (Cm(3), Lost),
            (Cm(4), Lost),
            (Cm(5), Lost),
            (Cm(6), Lost),
            (Cm(7), Lost),
        ],
    ),
];
