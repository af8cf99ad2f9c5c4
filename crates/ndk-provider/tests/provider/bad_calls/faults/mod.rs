// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of a call, and what the contract says of them: the status, how an accepted request completes, and the
//! mistake that a strict provider reports (`docs/strict.md`).
//!
//! Each row names the rule that its expectation is from. Rows without a rule are of the header's annotations: a pointer that
//! must not be null.

mod connections;
mod memory;
mod objects;
mod requests;

use crate::bad_calls::calls::{Address, Arguments, Function, KINDS, Kind};
use crate::bad_calls::world::{World, kind_of};
use crate::support::*;
use Function as F;
use ndk_provider::Mistake;

/// Something wrong with the arguments of a call.
#[derive(Clone, Copy)]
pub struct Fault {
    pub what: &'static str,
    /// The functions whose calls can have it.
    on: fn(Function) -> bool,
    /// The argument that it changes. Two faults of one call change different arguments.
    slot: &'static str,
    returns: Returns,
    /// How the request completes if it is accepted; empty if as without the fault.
    pub completes: &'static [NTSTATUS],
    /// Whether the connection ends with it.
    pub breaks: bool,
    pub event: Option<Mistake>,
    /// The contract leaves the call undefined: only a strict provider refuses it.
    pub only_strict: bool,
    /// Not together with another fault.
    alone: bool,
    pub change: fn(&mut Arguments, &mut World),
}

/// The outcome of a call with a fault.
#[derive(Clone, Copy)]
enum Returns {
    /// As if the object were of another type.
    Refused,
    /// One of these; several where the rule leaves a choice.
    Status(&'static [NTSTATUS]),
    /// The status of a valid call.
    Success,
}

use Returns::{Refused, Status, Success};

impl Fault {
    pub fn fits(&self, function: Function) -> bool {
        (self.on)(function)
    }

    /// Returns whether the call fails because of the fault.
    pub fn is_refused(&self) -> bool {
        !matches!(self.returns, Success)
    }

    pub fn statuses(&self, function: Function) -> Vec<NTSTATUS> {
        match self.returns {
            Refused => vec![function.refusal()],
            Status(statuses) => statuses.to_vec(),
            Success => vec![],
        }
    }

    pub fn combines(&self, other: &Self) -> bool {
        let can = |fault: &Self| fault.is_refused() && !fault.alone;
        can(self) && can(other) && self.slot != other.slot
    }
}

const fn row(
    what: &'static str,
    on: fn(Function) -> bool,
    slot: &'static str,
    returns: Returns,
    event: Option<Mistake>,
    change: fn(&mut Arguments, &mut World),
) -> Fault {
    let (completes, breaks, only_strict, alone): (&[NTSTATUS], _, _, _) = (&[], false, false, false);
    Fault { what, on, slot, returns, completes, breaks, event, only_strict, alone, change }
}

/// The fault of an accepted request, which completes with one of these statuses and ends the connection.
const fn accepted(fault: Fault, completes: &'static [NTSTATUS]) -> Fault {
    Fault { completes, breaks: true, ..fault }
}

const fn alone(fault: Fault) -> Fault {
    Fault { alone: true, ..fault }
}

const fn strict(fault: Fault) -> Fault {
    Fault { only_strict: true, alone: true, ..fault }
}

const INVALID: Returns = Status(&[STATUS_INVALID_PARAMETER]);
const VIOLATION: &[NTSTATUS] = &[STATUS_ACCESS_VIOLATION];

fn any(_: Function) -> bool {
    true
}

fn is_data(f: Function) -> bool {
    matches!(f, F::Send | F::SendAndInvalidate | F::Write | F::Read)
}

fn has_list(f: Function) -> bool {
    is_data(f) || matches!(f, F::Receive | F::SrqReceive)
}

fn is_local(f: Function) -> bool {
    matches!(f, F::Bind | F::FastRegister | F::Invalidate)
}

fn is_initiator(f: Function) -> bool {
    is_data(f) || is_local(f)
}

fn is_connect(f: Function) -> bool {
    matches!(f, F::Connect | F::ConnectShared)
}

fn is_accept(f: Function) -> bool {
    matches!(f, F::Accept | F::AcceptEx)
}

fn has_qp(f: Function) -> bool {
    is_connect(f) || is_accept(f)
}

fn has_data(f: Function) -> bool {
    has_qp(f) || f == F::Reject
}

fn is_complete(f: Function) -> bool {
    matches!(f, F::CompleteConnect | F::CompleteConnectEx)
}

fn has_mr(f: Function) -> bool {
    matches!(f, F::Bind | F::FastRegister)
}

fn creates_qp(f: Function) -> bool {
    matches!(f, F::CreateQp | F::CreateQpWithSrq)
}

fn is_remote(f: Function) -> bool {
    matches!(f, F::Write | F::Read)
}

/// A getter of an address, or of private data, with a buffer and its size.
fn is_getter(f: Function) -> bool {
    is_address_getter(f) || f == F::GetConnectionData
}

fn is_address_getter(f: Function) -> bool {
    is_connector_getter(f) || matches!(f, F::ListenerAddress | F::EndpointAddress)
}

fn is_connector_getter(f: Function) -> bool {
    matches!(f, F::ConnectorLocalAddress | F::ConnectorPeerAddress)
}

/// A call that may pend and need not wait for the peer.
fn may_pend(f: Function) -> bool {
    f.is_create()
        || is_complete(f)
        || matches!(
            f,
            F::ResizeCq
                | F::RegisterMr
                | F::DeregisterMr
                | F::InitializeFast
                | F::ModifySrq
                | F::Listen
                | F::Close(_)
        )
}

fn on_object(a: &mut Arguments, object: *mut c_void) {
    (a.object, a.right) = (object, object);
}

fn list(a: &mut Arguments, list: Vec<NDK_SGE>) {
    a.count = list.len() as u32;
    a.list = Some(list);
}

/// The list becomes one element with this token.
fn token(a: &mut Arguments, w: &World, token: u32) {
    list(a, vec![NDK_SGE { MemoryRegionToken: token, ..w.element() }]);
}

/// The list becomes one element of the registered region, moved and resized.
fn element(a: &mut Arguments, w: &World, address: u64, length: u32) {
    let place = NDK_SGE_Anonymous { VirtualAddress: pointer(address) };
    list(a, vec![NDK_SGE { Anonymous: place, Length: length, ..w.element() }]);
}

/// An object of another type than `kind`.
fn of_other_type(w: &mut World, kind: Kind) -> *mut c_void {
    let others: Vec<_> = KINDS.into_iter().filter(|other| *other != kind).collect();
    let other = w.random.one_of(&others);
    w.object(other)
}

fn address(bytes: &[u8], length: u32) -> Address {
    Address(Some(bytes.to_vec()), length)
}

/// A malformed socket address.
fn malformed(w: &mut World) -> Address {
    let Address(bytes, length) = Address::of(w.a.at(0));
    let mut bytes = bytes.unwrap();
    match w.random.below(4) {
        0 => Address(None, length),
        1 => address(&bytes, w.random.below(16) as u32),
        2 => {
            bytes[..2].copy_from_slice(&[99, 0]);
            address(&bytes, length)
        }
        // An IPv6 family with the length of IPv4.
        _ => {
            bytes[..2].copy_from_slice(&[23, 0]);
            address(&bytes, 16)
        }
    }
}

/// Returns the faults of all functions.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    [objects::ROWS, connections::ROWS, memory::ROWS, requests::ROWS].into_iter().flatten()
}
