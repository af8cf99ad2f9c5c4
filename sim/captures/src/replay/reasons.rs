//! Why the engine may differ from Linux where it does: the whole list.
//!
//! A reason covers differences of one shape in the captures that it names, and no others.

use roce_wire::{Class, Syndrome};

use super::difference::Difference;

/// Why something differs.
#[derive(Debug)]
pub struct Reason {
    /// For the report.
    pub name: &'static str,
    /// For whoever asks.
    pub why: &'static str,
    /// Where it applies: capture and side.
    pub(super) places: &'static [(&'static str, usize)],
    covers: fn(&Difference) -> bool,
}

impl Reason {
    /// The reason for a difference of this side of this capture, if it has one.
    pub fn of(capture: &str, side: usize, difference: &Difference) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.places.contains(&(capture, side)) && (reason.covers)(difference))
    }
}

const A: usize = 0;
const B: usize = 1;

/// Every reason there is.
pub const REASONS: &[Reason] = &[
    Reason {
        name: "asks for acknowledgement elsewhere",
        why: "When to ask for an acknowledgement inside a message is the requester's choice (rocev2 §5). Linux asks \
              with the 66th packet since it asked last; the engine every 32nd number, and with the first packet that \
              it sends again, so that a second loss shows early.",
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
        name: "sends again sooner",
        why: "Linux waits 2.3 s for an answer, as its connection manager asks for. The engine asks after a few round \
              trips, or after 16 ms while it knows of none, and then in growing pauses: always with one packet.",
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
        name: "asks with one packet",
        why: "When nothing comes back, Linux sends everything again at once. The engine sends the oldest packet, whose \
              answer tells what else is missing (rocev2 §7 asks for no more). The recorded peer's answer has that it \
              missed nothing.",
        places: &[("loss_write_last", A), ("loss_ack", A), ("loss_nak", A), ("corrupt_icrc", A)],
        covers: |difference| matches!(difference, Difference::Missing(host) if host.class == Class::Request),
    },
    Reason {
        name: "keeps what comes after a gap",
        why: "Linux drops packets behind a missing one, and sends all of them again. The engine keeps those of the same \
              message and acknowledges them when the missing one comes; and it trusts that the peer has done so until \
              that proves wrong. What Linux then sends again is a duplicate, and answered as such (rocev2 §6).",
        places: &[("loss_write_middle", A), ("loss_write_middle", B), ("loss_nak", B)],
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
        name: "acknowledges unasked",
        why: "An acknowledgement that nobody asked for is allowed (rocev2 §6). Linux asks for one in 66 packets, and \
              waits for its timer when that is lost; the engine gives one after 32 packets in any case.",
        places: &[("long_write_ack_request", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "Acknowledge"),
    },
    Reason {
        name: "sees the gap inside a READ",
        why: "A READ response behind the expected one shows that one was lost. The engine asks again at once, as rocev2 \
              §7 recommends; Linux waits for its timeout. The recorded peer answers only then, so that the engine's \
              own timeout passes once more.",
        places: &[("loss_read_response_middle", A)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "RDMA READ Request"),
    },
    Reason {
        name: "says what was lost before the place of capture",
        why: "Linux said it too: the frame was dropped on purpose between its sender and the place of capture.",
        places: &[("loss_ack", B), ("loss_nak", B), ("loss_read_response_middle", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.class == Class::Response),
    },
    Reason {
        name: "begins the rest of a READ with First",
        why: "The answer to a READ that is asked for again begins with First (rocev2 §6); Linux goes on with Middle. The \
              engine accepts both.",
        places: &[("loss_read_response_middle", B)],
        covers: |difference| match difference {
            Difference::Changed { host, engine, .. } => {
                host.name == "RDMA READ Response Middle" && engine.name == "RDMA READ Response First"
            }
            _ => false,
        },
    },
    Reason {
        name: "says one NAK for what found no receive",
        why: "After an RNR NAK, Linux answers the packet behind with a sequence NAK. It was sent before the requester \
              could know, and the requester has to come back to the earlier one anyhow: the engine says nothing.",
        places: &[("rnr_then_ok", B)],
        covers: |difference| {
            matches!(difference, Difference::Missing(host)
                if host.fields.contains(&("syndrome", "NAK, PSN sequence error".into())))
        },
    },
    Reason {
        name: "calls a long SEND invalid",
        why: "A SEND that is longer than its receive is an invalid request (rocev2 §6). Linux says remote operational \
              error.",
        places: &[("nak_send_too_long", B)],
        covers: |difference| refuses_with(difference, "NAK, invalid request"),
    },
    Reason {
        name: "reports congestion",
        why: "A packet that a switch has marked is answered by a CNP, at most one in 50 us and queue pair (rocev2 §14). \
              Linux has none.",
        places: &[("ecn_marked", B)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "CNP"),
    },
    Reason {
        name: "refuses atomics",
        why: "NDK has no atomic operations. The engine refuses them as invalid requests, which ends the connection; its \
              own consumers cannot post them.",
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
            _ => refuses_with(difference, "NAK, invalid request"),
        },
    },
    Reason {
        name: "posts no immediate data",
        why: "NDK's requests have no immediate data; the engine takes it from peers. The replay posts the same request \
              without; only a SEND can ask for a solicited event then.",
        places: &[("immediate", A), ("immediate_v6", A), ("zero_length", A)],
        covers: |difference| match difference {
            Difference::Changed { fields, .. } => {
                fields.iter().all(|field| ["opcode", "immediate", "solicited"].contains(field))
            }
            _ => false,
        },
    },
    Reason {
        name: "refuses to invalidate with a NAK",
        why: "The key is that of ordinary memory, which a peer cannot take back: remote access error (rocev2 §9). Linux \
              refuses as well, and acknowledges all the same.",
        places: &[("send_invalidate_bad_key", B)],
        covers: |difference| refuses_with(difference, "NAK, remote access error"),
    },
    Reason {
        name: "ends a broken connection itself",
        why: "A queue pair in error takes its connection with it: the engine says goodbye at once. In Linux that is the \
              program's business.",
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
        name: "answers a crossing goodbye",
        why: "Both sides said goodbye at once. The engine answers the peer's with DREP, in case its own was lost; Linux \
              takes it for the end.",
        places: &[("rdma_client_server", A)],
        covers: |difference| matches!(difference, Difference::Extra(engine) if engine.name == "CM DREP"),
    },
    Reason {
        name: "repeats messages by its own clock",
        why: "The engine repeats REQ and DREQ every 1.1 s, Linux every 6.2 s; the engine gives up a goodbye after 8 and a \
              request after 16 of them. So it repeats more often while the recorded peer is silent, and less often \
              where that is silent for a minute.",
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

/// Whether the engine answers with this syndrome what the host answered otherwise.
fn refuses_with(difference: &Difference, syndrome: &str) -> bool {
    match difference {
        Difference::Changed { engine, .. } => engine.fields.contains(&("syndrome", syndrome.into())),
        _ => false,
    }
}
