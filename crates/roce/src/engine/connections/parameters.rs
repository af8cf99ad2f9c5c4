// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parameters of a connection: those of the local queue pair that a REQ or REP carries, and those of the peer that the queue
//! pair's transport needs, among them the UDP source port, the traffic class with its ECN bits, and the ACK timeout.

use lock_api::RawMutex;

use crate::cm::{LocalQp, PeerQp};
use crate::config::Config;
use crate::conn::ConnId;
use crate::qp::Qp;
use crate::region::access_rights::Access;
use crate::transport::peer::Peer;
use roce_wire::{Path, Psn, Template, ack_timeout, ack_timeout_code, flow_source_port};

/// Maximum code of the ACK timeout, 1.07 s. Caps what the peer requests (0 means no timeout), so that a vanished
/// peer is detected within 10 s, after all eight attempts.
const MAX_ACK_TIMEOUT: u8 = 18;

/// Returns the parameters of a queue pair for a REQ or REP.
pub(super) fn of_local<R: RawMutex>(qp: &Qp<R>, config: &Config, receive_psn: Psn) -> LocalQp {
    let timing = &config.timing;
    LocalQp {
        q_key: None,
        qpn: qp.attributes.qpn,
        receive_psn,
        srq: qp.attributes.srq.is_some(),
        retry_count: timing.retries.min(7),
        rnr_retry_count: timing.rnr_retries.min(7),
        ack_timeout: ack_timeout_code(timing.ack_timeout),
    }
}

/// Returns the parameters of the peer for the queue pair's transport; `None` if no frame can be built for its path.
#[inline(never)]
pub(super) fn of_peer<R: RawMutex>(
    qp: &Qp<R>,
    config: &Config,
    conn: ConnId,
    peer: &PeerQp,
    receive_psn: Psn,
) -> Option<Peer> {
    let path = Path {
        source_port: flow_source_port(qp.attributes.qpn, peer.qpn),
        traffic_class: peer.path.traffic_class & !3 | config.congestion.ecn(),
        ..peer.path
    };
    Some(Peer {
        conn: Some(conn),
        template: Template::new(&path, peer.qpn)?,
        mtu: peer.mtu,
        reads: peer.reads,
        access: Access::REMOTE,
        rnr_timer: None,
        send_psn: peer.send_psn,
        receive_psn,
        retries: peer.retry_count,
        rnr_retries: peer.rnr_retry_count,
        ack_timeout: capped_ack_timeout(peer.ack_timeout),
    })
}

/// Returns the ACK timeout of a code that the peer requests.
//= rocev2 §8
//= R-QP-90
pub(in crate::engine) fn capped_ack_timeout(code: u8) -> core::time::Duration {
    match code {
        1..=MAX_ACK_TIMEOUT => ack_timeout(code),
        _ => ack_timeout(MAX_ACK_TIMEOUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_timeout_is_at_most_a_second_and_never_none() {
        assert_eq!(capped_ack_timeout(1), ack_timeout(1));
        assert_eq!(capped_ack_timeout(17), ack_timeout(17));
        for code in [0, 18, 19, 31] {
            assert_eq!(capped_ack_timeout(code), ack_timeout(18), "{code}");
        }
    }
}
