// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable services: datagrams (UD) and unreliable connections (UC).
//!
//! A request is complete when its last frame is built, and is not answered. The requests stand in the send queue, as those of a
//! reliable connection do. Nothing here is on the way of a reliable connection's packets: a queue pair of these services has states
//! of its own.
//!
//! | file | content |
//! | --- | --- |
//! | `datagrams` | datagrams: packets to and from any peer |
//! | `connection` | the requester of an unreliable connection |
//! | `inbound` | its responder |

mod connection;
mod datagrams;
mod inbound;

use alloc::boxed::Box;

use lock_api::RawMutex;

use self::connection::UnreliableConnection;
use self::datagrams::Datagrams;
use super::env::Env;
use super::failure::PacketError;
use super::packet::frame::Unsent;
use super::peer::Link;
use super::requester::Requester;
use super::requester::life_cycle;
use super::requester::send_queue::Wqe;
use super::responder::receives::Receives;
use super::state::State;
use crate::drop_reason::DropReason;
use crate::qp_change::{DatagramSpec, QpUpdate};
use crate::region::access_rights::Access;
use crate::work::{CompletionStatus, SendFlags};
use fallible::{AllocError, try_box};
use roce_wire::{Packet, Psn};

pub(crate) use self::connection::UnreliablePeer;
pub(crate) use self::datagrams::Destination;

/// State of a queue pair of an unreliable service.
#[derive(Debug)]
pub(crate) struct Unreliable {
    service: Service,
    /// Bytes of the longest payload of a packet.
    mtu: u32,
    /// PSN of the next packet to send.
    next: Psn,
}

#[derive(Debug)]
enum Service {
    Datagrams(Datagrams),
    Connection(UnreliableConnection),
}

impl Unreliable {
    /// Allocates the state of a queue pair for datagrams, with room for the destinations of `requests` requests.
    pub(crate) fn datagrams(spec: DatagramSpec, requests: u32) -> Result<Box<Self>, AllocError> {
        let mtu = spec.mtu.bytes() as u32;
        let service = Service::Datagrams(Datagrams::try_new(spec.q_key, requests)?);
        try_box(Self { service, mtu, next: Psn::default() })
    }

    /// Allocates the state of an unreliable connection.
    pub(crate) fn connection(peer: UnreliablePeer) -> Result<Box<Self>, AllocError> {
        let mtu = peer.mtu.bytes() as u32;
        let service = Service::Connection(UnreliableConnection::new(peer));
        try_box(Self { service, mtu, next: Psn::default() })
    }

    /// Sets the PSN of the first packet.
    pub(super) fn begin_sending(&mut self, psn: Psn) {
        self.next = psn;
    }

    /// Returns how long the payload of a packet may be, in bytes.
    pub(super) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Returns whether it is a connection.
    pub(super) fn is_connection(&self) -> bool {
        matches!(self.service, Service::Connection(_))
    }

    /// Returns whether the oldest request is sent in part.
    pub(super) fn is_within_message(&self) -> bool {
        matches!(&self.service, Service::Connection(connection) if connection.is_within_message())
    }

    /// Returns whether the service has the attributes of `update`.
    pub(super) fn can_update(&self, update: &QpUpdate) -> bool {
        match self.service {
            Service::Datagrams(_) => update.access.is_none() && update.path.is_none(),
            Service::Connection(_) => update.q_key.is_none(),
        }
    }

    /// Returns the path to the peer.
    pub(super) fn link_mut(&mut self) -> Option<&mut Link> {
        match &mut self.service {
            Service::Datagrams(_) => None,
            Service::Connection(connection) => Some(connection.link_mut()),
        }
    }

    /// Changes attributes but for the path.
    pub(super) fn update(&mut self, update: &QpUpdate) {
        match (&mut self.service, update) {
            (Service::Datagrams(datagrams), &QpUpdate { q_key: Some(q_key), .. }) => {
                datagrams.set_q_key(q_key);
            }
            (Service::Connection(connection), &QpUpdate { access: Some(access), .. }) => {
                connection.set_access(access & Access::OF_PEERS);
            }
            _ => {}
        }
    }

    /// Adds the destination of a datagram that is posted.
    ///
    /// Returns `false` if the queue pair is not for datagrams.
    pub(super) fn push(&mut self, destination: Destination) -> bool {
        match &mut self.service {
            Service::Datagrams(datagrams) => datagrams.push(destination),
            Service::Connection(_) => false,
        }
    }

    /// Writes the next frame to `slot`.
    pub(super) fn transmit<R: RawMutex>(
        &mut self,
        requester: &mut Requester,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        let Self { service, mtu, next } = self;
        let wqe = *requester.send_queue.front().ok_or(Unsent::Idle)?;
        let (length, ended) = match service {
            Service::Datagrams(datagrams) => datagrams.transmit(requester, env, slot, &wqe, *next),
            Service::Connection(connection) => connection.transmit(requester, env, slot, (&wqe, *mtu, *next)),
        }?;
        *next = next.add(1);
        if ended {
            complete(requester, env, &wqe);
        }
        Ok(length)
    }

    /// Forgets what belongs to requests that are dropped or flushed.
    fn forget_requests(&mut self) {
        match &mut self.service {
            Service::Datagrams(datagrams) => datagrams.forget_requests(),
            Service::Connection(connection) => connection.forget_requests(),
        }
    }
}

/// Completes the oldest request, which is sent.
fn complete<R: RawMutex>(requester: &mut Requester, env: &Env<'_, R>, wqe: &Wqe) {
    // Its entry is free before its completion can be polled.
    life_cycle::take_sent(requester);
    if !wqe.flags.contains(SendFlags::SILENT) {
        env.complete_send(wqe.context, wqe.kind(), CompletionStatus::Success, wqe.length);
    }
}

/// Completes the oldest request with `status` and flushes all others, of a queue pair of any service.
pub(super) fn flush_requests<R: RawMutex>(
    requester: &mut Requester,
    unreliable: Option<&mut Unreliable>,
    env: &Env<'_, R>,
    status: CompletionStatus,
) {
    life_cycle::flush(requester, env, status);
    if let Some(unreliable) = unreliable {
        unreliable.forget_requests();
    }
}

/// Handles a packet for a queue pair without reliable connection.
#[cold]
#[inline(never)]
pub(super) fn handle<R: RawMutex>(
    state: State,
    unreliable: Option<&mut Unreliable>,
    receives: &mut Receives,
    env: &Env<'_, R>,
    packet: &Packet<'_>,
) -> Result<(), PacketError> {
    let unreliable = unreliable.filter(|_| state.serves_unreliably()).ok_or(DropReason::State)?;
    let Unreliable { service, mtu, .. } = unreliable;
    match service {
        Service::Datagrams(datagrams) => datagrams.handle(*mtu, receives, env, packet),
        Service::Connection(connection) => connection.handle(*mtu, receives, env, packet),
    }
}
