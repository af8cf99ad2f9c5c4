//! What cannot be seen in the captures: what became of frames behind the place of capture, and how the hosts' consumers
//! were set up.
//!
//! The captures were taken at side 0. Whatever side 0 sent is in them, lost later or not; what side 1 sent is in them
//! if it arrived. Source: the README of the captures.

use std::time::Duration;

/// A capture's own circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub capture: &'static str,
    /// What happened to frames of side 0 on their way.
    pub fates: &'static [(Nth, Fate)],
    /// The consumer of side 1 posts its receives only so long after it has accepted.
    pub receives_after: Option<Duration>,
    /// Bytes of each receive of side 1; without, as many as come.
    pub receive_length: Option<u32>,
    /// All receives stand in one shared queue.
    pub shared_receives: bool,
    /// The consumer of side 0 posted all its requests at once, the last with a fence.
    pub posts_at_once: bool,
    /// The consumer of side 1 breaks its queue pair as soon as it is connected.
    pub breaks: bool,
}

/// A frame of side 0, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nth {
    /// Of connection management.
    Cm(usize),
    /// Of the transport.
    Rc(usize),
    /// Every frame of the transport.
    EveryRc,
}

/// What happened to a frame on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    Doubled,
    /// A bit of it was changed.
    Corrupted,
    /// A switch marked it: congestion experienced.
    Marked,
    /// It arrived only after the other side had said the next thing.
    Crossed,
}

impl Script {
    const fn new(capture: &'static str) -> Self {
        Self {
            capture,
            fates: &[],
            receives_after: None,
            receive_length: None,
            shared_receives: false,
            posts_at_once: false,
            breaks: false,
        }
    }

    const fn with_fates(capture: &'static str, fates: &'static [(Nth, Fate)]) -> Self {
        Self { fates, ..Self::new(capture) }
    }

    /// What became of a frame.
    pub fn fate(&self, nth: Nth) -> Option<Fate> {
        let matches = |(which, _): &&(Nth, Fate)| {
            *which == nth || (*which == Nth::EveryRc && matches!(nth, Nth::Rc(_)))
        };
        self.fates.iter().find(matches).map(|(_, fate)| *fate)
    }
}

use Fate::{Corrupted, Crossed, Doubled, Lost, Marked};
use Nth::{Cm, EveryRc, Rc};

/// Every capture, in the order of its README.
pub const SCRIPTS: [Script; 55] = [
    Script::new("rping_v4"),
    Script::new("rping_v6"),
    Script::new("rping_v4_mtu4096"),
    Script::with_fates("rdma_client_server", &[(Cm(3), Crossed)]),
    Script::new("reject_no_listener"),
    Script::new("reject_by_consumer"),
    Script::new("send_bw_1024"),
    Script::new("write_bw_1024"),
    Script::new("read_bw_1024"),
    Script::new("write_lat_1024"),
    Script::new("send_lat_1024"),
    Script::new("read_lat_1024"),
    Script::new("atomic_bw"),
    Script::new("send_bw_rdmacm_1024"),
    Script::new("send_bw_4096"),
    Script::new("write_bw_4096"),
    Script::new("read_bw_4096"),
    Script::new("rc_pingpong"),
    Script::new("rc_pingpong_v6"),
    Script { shared_receives: true, ..Script::new("srq_pingpong") },
    Script::new("sizes"),
    Script::new("immediate"),
    Script::new("immediate_v6"),
    Script::new("zero_length"),
    Script::new("atomic_cas_faa"),
    Script { posts_at_once: true, ..Script::new("reads_outstanding") },
    Script::new("long_write_ack_request"),
    Script::new("psn_wrap"),
    Script::new("write_then_send"),
    Script::new("send_invalidate"),
    Script::new("send_invalidate_bad_key"),
    Script::new("nak_write_bad_rkey"),
    Script::new("nak_write_out_of_range"),
    Script::new("nak_read_bad_rkey"),
    Script::new("nak_read_out_of_range"),
    Script::new("nak_atomic_bad_rkey"),
    Script { receive_length: Some(1000), ..Script::new("nak_send_too_long") },
    Script { receives_after: Some(Duration::from_millis(400)), ..Script::new("rnr_then_ok") },
    Script { breaks: true, ..Script::new("retry_exceeded") },
    Script::with_fates("loss_write_middle", &[(Rc(4), Lost)]),
    Script::with_fates("loss_write_last", &[(Rc(8), Lost)]),
    Script::with_fates("loss_send_first", &[(Rc(1), Lost)]),
    Script::new("loss_ack"),
    Script::with_fates("loss_read_request", &[(Rc(1), Lost)]),
    Script::new("loss_read_response_middle"),
    Script::with_fates("loss_nak", &[(Rc(4), Lost)]),
    Script::with_fates("duplicate_write", &[(Rc(8), Doubled)]),
    Script::with_fates("duplicate_send", &[(Rc(1), Doubled)]),
    Script::with_fates("corrupt_icrc", &[(Rc(8), Corrupted)]),
    Script::with_fates("ecn_marked", &[(EveryRc, Marked)]),
    Script::with_fates("cm_loss_req", &[(Cm(1), Lost)]),
    Script::new("cm_loss_rep"),
    Script::with_fates("cm_loss_rtu", &[(Cm(2), Lost)]),
    Script::with_fates("cm_loss_dreq", &[(Cm(3), Lost)]),
    Script::with_fates(
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
