// SPDX-License-Identifier: MIT OR Apache-2.0

//! The permitted differences between the engine and Linux, each with its reason.
//!
//! A reason covers differences of one kind in the captures that it names, and no others.

use roce_wire::{Class, Syndrome};

use super::difference::Difference;

/// The reason of a kind of difference.
#[derive(Debug)]
pub struct Reason {
    /// Short name in the report: a predicate of "The engine".
    pub name: &'static str,
    /// The explanation.
    pub why: &'static str,
    /// The captures and sides to which it applies.
    pub(super) places: &'static [(&'static str, usize)],
    covers: fn(&Difference) -> bool,
}

impl Reason {
    /// Returns the reason that covers a difference of this side of this capture, if any.
    #[must_use]
    pub fn of(capture: &str, side: usize, difference: &Difference) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.places.contains(&(capture, side)) && (reason.covers)(difference))
    }
}

const A: usize = 0;
const B: usize = 1;

/// All reasons.
pub const REASONS: &[Reason] = &[
    Reason {
        name: "requests acknowledgments at other packets",
        why: "The requester chooses which packets of a message request an acknowledgment (rocev2 §5). Linux \
              requests one with the 66th packet after the last request; the engine with every 32nd PSN, and \
              with the first packet of a retransmission, to detect a second loss early.",
        places: &[
            ("sizes", A),
            ("long_write_ack_request", A),
            ("loss_write_middle", A),
            ("loss_write_last", A),
            ("loss_send_first", A),
            ("loss_ack", A),
            ("loss_nak", A),
            ("corrupt_icrc", A),
        ],
        covers: |difference| match difference {
            Difference::Changed { host, fields, .. } => {
                host.class == Class::Request && fields == &["ack-req"]
            }
            _ => false,
        },
    },
    Reason {
        name: "requests an acknowledgment of its first packet",
        why: "The requester chooses which packets of a message request an acknowledgment (rocev2 §5). The \
              engine measures the round trip with the first packet of a connection, before others wait in \
              queues behind it: its window follows the bandwidth-delay product.",
        places: &[
            ("send_bw_1024", A),
            ("write_bw_1024", A),
            ("send_bw_rdmacm_1024", A),
            ("send_bw_4096", A),
            ("write_bw_4096", A),
            ("rc_pingpong", A),
            ("rc_pingpong", B),
            ("rc_pingpong_v6", A),
            ("rc_pingpong_v6", B),
            ("srq_pingpong", A),
            ("srq_pingpong", B),
            ("psn_wrap", A),
            ("write_then_send", A),
            ("nak_write_out_of_range", A),
            ("nak_send_too_long", A),
            ("duplicate_write", A),
            ("ecn_marked", A),
        ],
        covers: |difference| match difference {
            Difference::Changed { host, engine, fields } => {
                ["SEND First", "RDMA WRITE First"].contains(&host.name)
                    && fields == &["ack-req"]
                    && engine.fields.contains(&("ack-req", "true".into()))
            }
            _ => false,
        },
    },
    Reason {
        name: "retransmits earlier",
        why: "Linux waits 2.3 s for a response, which is the timeout that its connection manager negotiates. \
              The engine retransmits after a few round trips, or after 16 ms while it has not measured one, \
              and then with growing intervals, always one packet.",
        places: &[
            ("loss_write_last", A),
            ("loss_ack", A),
            ("loss_nak", A),
            ("corrupt_icrc", A),
            ("loss_read_request", A),
        ],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.class == Class::Request),
    },
    Reason {
        name: "retransmits one packet after a timeout",
        why: "After a timeout, Linux retransmits all unacknowledged packets. The engine retransmits the oldest \
              packet; the response shows which others are missing (rocev2 §7 requires no more). Here the \
              recorded peer acknowledges all packets.",
        places: &[("loss_write_last", A), ("loss_ack", A), ("loss_nak", A), ("corrupt_icrc", A)],
        covers: |difference| matches!(difference, Difference::Missing(host) if host.class == Class::Request),
    },
    Reason {
        name: "keeps packets that arrive out of order",
        why: "Linux drops packets after a missing one and retransmits all of them. The engine keeps them and \
              acknowledges them when the missing packet arrives; as a requester it assumes the same of its \
              peer, until that proves wrong. The packets that Linux retransmits are then duplicates and are \
              answered as such (rocev2 §6).",
        places: &[
            ("loss_write_middle", A),
            ("loss_write_middle", B),
            ("loss_send_first", A),
            ("loss_nak", B),
        ],
        covers: |difference| match difference {
            Difference::Missing(host) => host.class == Class::Request,
            Difference::Extra(engine) => {
                let accepts = |syndrome: &str| syndrome == format!("{:?}", Syndrome::ACK);
                engine.fields.iter().any(|(name, value)| *name == "syndrome" && accepts(value))
            }
            Difference::Changed { .. } | Difference::Consumer(_) => false,
        },
    },
    Reason {
        name: "sends unsolicited acknowledgments",
        why: "A responder may acknowledge without a request (rocev2 §6). Linux requests an acknowledgment once \
              in 66 packets, and waits for its timeout when that is lost; the engine sends one after 32 \
              packets in any case.",
        places: &[("long_write_ack_request", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "Acknowledge"),
    },
    Reason {
        name: "detects a lost READ response at once",
        why: "A READ response with a later PSN than expected shows that one was lost. The engine repeats the \
              request at once, as rocev2 §7 recommends; Linux waits for its timeout. The recorded peer \
              responds only then, so that the engine's own timeout expires once more.",
        places: &[("loss_read_response_middle", A)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "RDMA READ Request"),
    },
    Reason {
        name: "sends frames that were lost before the capture point",
        why: "Linux sent this frame, too: it was dropped on purpose between its sender and the capture point.",
        places: &[("loss_ack", B), ("loss_nak", B), ("loss_read_response_middle", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.class == Class::Response),
    },
    Reason {
        name: "starts a repeated READ response with First",
        why: "The response to a repeated READ request starts with First (rocev2 §6); Linux continues with \
              Middle. The engine accepts both.",
        places: &[("loss_read_response_middle", B)],
        covers: |difference| match difference {
            Difference::Changed { host, engine, .. } => {
                host.name == "RDMA READ Response Middle" && engine.name == "RDMA READ Response First"
            }
            _ => false,
        },
    },
    Reason {
        name: "sends no sequence NAK after an RNR NAK",
        why: "After an RNR NAK, Linux answers the next packet with a sequence NAK. The requester sent that \
              packet before it received the RNR NAK, and will go back to the earlier packet anyway: the engine \
              sends nothing.",
        places: &[("rnr_then_ok", B)],
        covers: |difference| {
            matches!(difference, Difference::Missing(host)
                if host.fields.contains(&("syndrome", "NAK, PSN sequence error".into())))
        },
    },
    Reason {
        name: "reports a long SEND as an invalid request",
        why: "A SEND that is longer than its receive is an invalid request (rocev2 §6). Linux reports a remote \
              operational error.",
        places: &[("nak_send_too_long", B)],
        covers: |difference| responds_with(difference, "NAK, invalid request"),
    },
    Reason {
        name: "sends CNPs",
        why: "The engine answers a packet with a congestion mark by a CNP, at most one in 50 us for each queue \
              pair (rocev2 §14). Linux does not implement CNPs.",
        places: &[("ecn_marked", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "CNP"),
    },
    Reason {
        name: "rejects atomics",
        why: "NDK has no atomic operations. The engine rejects them as invalid requests, which ends the \
              connection; its own consumers cannot post them.",
        places: &[
            ("atomic_bw", A),
            ("atomic_bw", B),
            ("atomic_cas_faa", A),
            ("atomic_cas_faa", B),
            ("nak_atomic_bad_rkey", A),
            ("nak_atomic_bad_rkey", B),
        ],
        covers: |difference| match difference {
            Difference::Missing(_) => true,
            Difference::Consumer(what) => what == "Atomic cannot be posted",
            _ => responds_with(difference, "NAK, invalid request"),
        },
    },
    Reason {
        name: "posts no immediate data",
        why: "NDK requests have no immediate data; the engine accepts it from peers. The replay posts the same \
              request without immediate data; only a SEND can then request a solicited event.",
        places: &[("immediate", A), ("immediate_v6", A), ("zero_length", A)],
        covers: |difference| match difference {
            Difference::Changed { fields, .. } => {
                fields.iter().all(|field| ["opcode", "immediate", "solicited"].contains(field))
            }
            _ => false,
        },
    },
    Reason {
        name: "rejects an invalidation with a NAK",
        why: "The key belongs to a memory region, which a peer cannot invalidate: remote access error (rocev2 \
              §9). Linux rejects it as well, but acknowledges the SEND.",
        places: &[("send_invalidate_bad_key", B)],
        covers: |difference| responds_with(difference, "NAK, remote access error"),
    },
    Reason {
        name: "disconnects when the queue pair fails",
        why: "When a queue pair enters the error state, the engine disconnects at once. In Linux the \
              application does that.",
        places: &[
            ("atomic_bw", B),
            ("atomic_cas_faa", B),
            ("send_invalidate", B),
            ("send_invalidate_bad_key", B),
            ("nak_write_bad_rkey", B),
            ("nak_write_out_of_range", B),
            ("nak_read_bad_rkey", B),
            ("nak_read_out_of_range", B),
            ("nak_atomic_bad_rkey", B),
            ("nak_send_too_long", B),
            ("retry_exceeded", A),
            ("retry_exceeded", B),
        ],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "CM DREQ"),
    },
    Reason {
        name: "answers a crossing DREQ",
        why: "Both sides sent a DREQ at the same time. The engine answers that of the peer with a DREP, in \
              case its own was lost; Linux treats it as the end.",
        places: &[("rdma_client_server", A)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "CM DREP"),
    },
    Reason {
        name: "retransmits CM messages at its own intervals",
        why: "The engine retransmits REQ and DREQ every 1.1 s, Linux every 6.2 s; the engine sends a DREQ at \
              most 8 times and a REQ at most 16 times. It therefore sends more messages while the recorded \
              peer is silent, and fewer where that is silent for a minute.",
        places: &[
            ("cm_loss_req", A),
            ("cm_loss_rep", A),
            ("cm_loss_rtu", A),
            ("cm_loss_dreq", A),
            ("cm_unanswered", A),
        ],
        covers: |difference| match difference {
            Difference::Extra(engine) => ["CM REQ", "CM DREQ"].contains(&engine.name),
            Difference::Missing(host) => ["CM DREQ", "CM REJ"].contains(&host.name),
            _ => false,
        },
    },
];

/// Returns whether the engine sent this syndrome where the host sent another response.
fn responds_with(difference: &Difference, syndrome: &str) -> bool {
    match difference {
        Difference::Changed { engine, .. } => engine.fields.contains(&("syndrome", syndrome.into())),
        _ => false,
    }
}
