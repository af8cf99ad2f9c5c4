// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of states and attributes: those that open a transport, and any of a record.

use roce::{Access, DatagramSpec, PeerSpec, QpChange, QpUpdate, RequesterSpec, UnreliableSpec};
use roce_wire::{Path, PathMtu, Psn, Qpn};

use super::field;
use crate::endpoint::{MTU, READS};
use crate::forge;
use crate::record::Record;

/// Of both queue pairs for datagrams, but for those whose record says otherwise.
pub(super) const Q_KEY: u32 = 0x1111;

/// First PSNs of both hosts. Those of the first one wrap.
const PSNS: [Psn; 2] = [Psn::new(0x00FF_FFFE), Psn::new(0x0012_3456)];

/// Numbers of the changes in records, modulo [`COUNT`](self::kind::COUNT).
pub(super) mod kind {
    pub(in super::super) const DRAIN: u8 = 0;
    pub(in super::super) const RESUME: u8 = 1;
    pub(in super::super) const UPDATE: u8 = 2;
    pub(in super::super) const SEND: u8 = 3;
    pub(in super::super) const ERROR: u8 = 4;
    pub(in super::super) const RESET: u8 = 5;
    pub(in super::super) const INITIALIZE: u8 = 6;
    pub(in super::super) const RECEIVE: u8 = 7;
    pub(in super::super) const REQUEST: u8 = 8;
    pub(in super::super) const DATAGRAMS: u8 = 9;
    pub(in super::super) const UNRELIABLE: u8 = 10;
    pub(in super::super) const COUNT: u8 = 11;
    /// An order in which most of them are allowed, of reliable connections.
    pub(in super::super) const ALL: [u8; 13] = [
        DRAIN, UPDATE, RESUME, SEND, UPDATE, ERROR, RESET, INITIALIZE, RECEIVE, REQUEST, RESET, DATAGRAMS,
        UNRELIABLE,
    ];
}

/// A transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Reliable,
    Unreliable,
    Datagrams,
}

impl Transport {
    pub(super) const ALL: [Option<Self>; 4] =
        [Some(Self::Reliable), Some(Self::Unreliable), Some(Self::Datagrams), None];

    /// Returns the changes that open it at a host, from Init on.
    pub(super) fn opening(self, host: usize, peer_qpn: Qpn) -> [QpChange; 2] {
        match self {
            Self::Reliable => {
                [QpChange::ReadyToReceive(peer(host, peer_qpn)), QpChange::ReadyToSend(requester(host))]
            }
            Self::Unreliable => {
                [QpChange::OpenUnreliable(unreliable(host, peer_qpn)), QpChange::SendUnreliably(PSNS[host])]
            }
            Self::Datagrams => [
                QpChange::OpenDatagrams(DatagramSpec { q_key: Q_KEY, mtu: MTU }),
                QpChange::SendUnreliably(PSNS[host]),
            ],
        }
    }
}

fn path(host: usize) -> Path {
    forge::path_between(host as u8 + 1, 2 - host as u8)
}

fn peer(host: usize, peer_qpn: Qpn) -> PeerSpec {
    PeerSpec {
        path: path(host),
        qpn: peer_qpn,
        mtu: MTU,
        receive_psn: PSNS[1 - host],
        inbound_reads: READS,
        rnr_timer: 12,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
    }
}

fn requester(host: usize) -> RequesterSpec {
    RequesterSpec { send_psn: PSNS[host], outbound_reads: READS, retries: 7, rnr_retries: 7, ack_timeout: 10 }
}

fn unreliable(host: usize, peer_qpn: Qpn) -> UnreliableSpec {
    UnreliableSpec {
        path: path(host),
        qpn: peer_qpn,
        mtu: MTU,
        receive_psn: PSNS[1 - host],
        access: Access::REMOTE_WRITE,
    }
}

/// Returns the change of a record. Its attributes are the usual ones, unless a field says otherwise.
pub(super) fn of_record(host: usize, peer_qpn: Qpn, record: &Record) -> QpChange {
    let value = record.byte(field::VALUE);
    let is_usual = record.byte(field::FLAGS) < 192;
    let psn = if is_usual { PSNS[host] } else { Psn::new(u32::from(record.word(field::OFFSET))) };
    let access = Access::from_bits_truncate(value);
    let mtu = if is_usual { MTU } else { record.pick(field::KEY, &MTUS) };
    let requester = if is_usual {
        requester(host)
    } else {
        RequesterSpec {
            send_psn: psn,
            outbound_reads: record.byte(field::LENGTH),
            retries: value % 16,
            rnr_retries: record.byte(field::KEY) % 16,
            ack_timeout: record.byte(field::OFFSET) % 40,
        }
    };
    match record.byte(field::KIND) % kind::COUNT {
        kind::DRAIN => QpChange::Drain { notify: value.is_multiple_of(2) },
        kind::RESUME => QpChange::Resume,
        kind::UPDATE => {
            let has = |bit| record.flag(field::KEY, bit);
            let path = if value % 8 == 7 { elsewhere() } else { path(host) };
            QpChange::Update(QpUpdate {
                access: has(0).then_some(access),
                rnr_timer: has(1).then_some(value % 40),
                q_key: has(2).then_some(if is_usual { Q_KEY } else { u32::from(value) << 24 }),
                path: has(3).then_some((path, peer_qpn)),
                requester: has(4).then_some(requester),
                inbound_reads: has(5).then_some(value),
            })
        }
        kind::SEND => QpChange::SendUnreliably(psn),
        kind::ERROR => QpChange::Error,
        kind::RESET => QpChange::Reset,
        kind::INITIALIZE => QpChange::Initialize,
        kind::RECEIVE => {
            let usual = peer(host, peer_qpn);
            let other = PeerSpec {
                mtu,
                access,
                rnr_timer: value % 40,
                inbound_reads: record.byte(field::LENGTH),
                path: if value % 8 == 7 { elsewhere() } else { usual.path },
                ..usual
            };
            QpChange::ReadyToReceive(if is_usual { usual } else { other })
        }
        kind::REQUEST => QpChange::ReadyToSend(requester),
        kind::DATAGRAMS => QpChange::OpenDatagrams(DatagramSpec {
            q_key: if is_usual { Q_KEY } else { u32::from(value) << 24 },
            mtu,
        }),
        _ => {
            let usual = unreliable(host, peer_qpn);
            let other = UnreliableSpec { mtu, access, ..usual };
            QpChange::OpenUnreliable(if is_usual { usual } else { other })
        }
    }
}

const MTUS: [PathMtu; 3] = [PathMtu::Bytes256, PathMtu::Bytes1024, PathMtu::Bytes4096];

/// A path from an address that no host has.
fn elsewhere() -> Path {
    forge::path_between(9, 1)
}
