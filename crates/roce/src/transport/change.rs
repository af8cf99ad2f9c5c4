// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair whose owner connects it, without connection management.

use alloc::boxed::Box;
use core::time::Duration;

use lock_api::RawMutex;

use super::congestion::cnp::CnpState;
use super::congestion::rate::RateLimiter;
use super::connection::Connection;
use super::drain::Drain;
use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester::life_cycle;
use super::responder;
use super::state::{Event, State};
use super::unreliable::Unreliable;
use crate::error::QpChangeError;
use crate::qp_change::{QpUpdate, RequesterSpec};
use roce_wire::{Psn, Template};

/// Moves from RTR to RTS, with what the requester needs.
pub(crate) fn start_requester<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    spec: RequesterSpec,
    ack_timeout: Duration,
) -> Result<(), QpChangeError> {
    if transport.state != State::Rtr {
        return Err(QpChangeError::State);
    }
    life_cycle::begin_sending(&mut transport.requester, spec, ack_timeout, &env.shared.config);
    transport.established(env, None).map_err(|_| QpChangeError::State)
}

/// Moves to Reset: drops all requests and receives without completions.
pub(crate) fn reset<R: RawMutex>(transport: &mut RcTransport, env: &Env<'_, R>) -> Result<(), QpChangeError> {
    if transport.state != State::Reset {
        transport.enter(env, Event::Reset).map_err(|_| QpChangeError::State)?;
    }
    life_cycle::reset(&mut transport.requester, env);
    responder::life_cycle::reset(&mut transport.responder, env);
    transport.link = None;
    transport.unreliable = None;
    transport.drain = Drain::None;
    transport.cnp = CnpState::IDLE;
    transport.rate = RateLimiter::UNLIMITED;
    transport.connection = Connection::NONE;
    Ok(())
}

/// Moves from Reset to Init.
pub(crate) fn initialize<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
) -> Result<(), QpChangeError> {
    transport.enter(env, Event::Initialize).map_err(|_| QpChangeError::State)
}

/// Opens a queue pair for an unreliable service, of this state.
pub(crate) fn open_unreliable<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    unreliable: Box<Unreliable>,
) -> Result<(), QpChangeError> {
    transport.enter(env, Event::Open).map_err(|_| QpChangeError::State)?;
    transport.connection.attach_owner();
    transport.requester.mtu = unreliable.mtu();
    transport.unreliable = Some(unreliable);
    Ok(())
}

/// Lets a queue pair of an unreliable service send, with `psn` as the first one, or again after an error of its send queue.
pub(crate) fn send_unreliably<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    psn: Psn,
) -> Result<(), QpChangeError> {
    let is_new = transport.state == State::UnreliableRtr;
    transport.enter(env, Event::Send).map_err(|_| QpChangeError::State)?;
    if let Some(unreliable) = transport.unreliable.as_mut().filter(|_| is_new) {
        unreliable.begin_sending(psn);
    }
    Ok(())
}

/// Moves from RTS to SQD. If `notify`, it is reported when the requests that have begun are complete.
pub(crate) fn drain<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    notify: bool,
) -> Result<(), QpChangeError> {
    transport.enter(env, Event::Drain).map_err(|_| QpChangeError::State)?;
    let requester = &mut transport.requester;
    let (end, is_complete) = if let Some(unreliable) = &transport.unreliable {
        (requester.high, !unreliable.is_within_message())
    } else {
        let end = life_cycle::drain(requester);
        (end, life_cycle::is_complete_before(requester, end))
    };
    transport.drain = Drain::Pending { end, notify };
    if is_complete {
        transport.drain.finish(env);
    }
    Ok(())
}

/// Moves from SQD to RTS, once all requests that were begun are complete.
pub(crate) fn resume<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
) -> Result<(), QpChangeError> {
    if transport.drain.is_pending() {
        return Err(QpChangeError::State);
    }
    transport.enter(env, Event::Resume).map_err(|_| QpChangeError::State)?;
    transport.drain = Drain::None;
    life_cycle::resume(&mut transport.requester);
    Ok(())
}

/// Changes attributes: those of `update`, with the template of its path and the timeout of its requester.
pub(crate) fn update<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    update: &QpUpdate,
    (template, requester): (Option<Template>, Option<(RequesterSpec, Duration)>),
) -> Result<(), QpChangeError> {
    let &QpUpdate { access, rnr_timer, q_key, inbound_reads, .. } = update;
    let is_drained = transport.drain == Drain::Finished;
    let needs_drained = template.is_some() || requester.is_some() || inbound_reads.is_some();
    let has_peer = transport.state.serves() || transport.state.serves_unreliably();
    if !has_peer || needs_drained && !is_drained {
        return Err(QpChangeError::State);
    }
    // All is checked before anything is changed.
    let of_reliable = rnr_timer.is_some() || requester.is_some() || inbound_reads.is_some();
    let is_possible = match &transport.unreliable {
        Some(unreliable) => !of_reliable && unreliable.can_update(update),
        None => q_key.is_none(),
    };
    if !is_possible {
        return Err(QpChangeError::Invalid);
    }
    if let Some(template) = template {
        let link = match &mut transport.unreliable {
            Some(unreliable) => unreliable.link_mut(),
            None => transport.link.as_mut(),
        };
        link.ok_or(QpChangeError::Invalid)?.template = template;
    }
    if let Some(unreliable) = &mut transport.unreliable {
        unreliable.update(update);
        return Ok(());
    }
    responder::life_cycle::update(&mut transport.responder, access, rnr_timer, inbound_reads);
    if let Some((spec, ack_timeout)) = requester {
        life_cycle::set_requester(&mut transport.requester, spec, ack_timeout, &env.shared.config);
    }
    Ok(())
}
