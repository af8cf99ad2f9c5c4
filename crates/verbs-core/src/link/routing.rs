// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which process a datagram is for, of those that share an address.

use roce_wire::cm::ServiceId;
use roce_wire::{Attribute, Bth, Deth, Mad, Qpn};

use super::frame::{SLOT_BITS, slot_of};

/// The queue pair of connection management.
const CM: Qpn = Qpn::new(1);

/// The process that a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// That of a slot.
    Slot(u8),
    /// That which listens on a port.
    Port(u16),
}

/// Returns the target of a datagram, from the BTH on; `None` if it is too short.
pub fn of(datagram: &[u8]) -> Option<Target> {
    let (bth, rest) = datagram.split_first_chunk()?;
    let number = Bth::new(bth).dest_qp();
    if number != CM {
        return Some(Target::Slot(slot_of(number)));
    }
    let mad = Mad::new_checked(rest.get(Deth::LEN..)?).ok()?;
    let body = mad.body();
    Some(match mad.header().attribute() {
        Attribute::CM_REQ | Attribute::CM_SIDR_REQ => {
            let service = ServiceId(u64::from_be_bytes(*body.get(8..)?.first_chunk()?));
            // The last bits of a service ID of RDMA IP CM, see IBTA Volume 1, annex A11.
            Target::Port(service.0 as u16)
        }
        Attribute::CM_SIDR_REP => Target::Slot(slot_of_id(*body.first_chunk()?)),
        _ => Target::Slot(slot_of_id(*body.get(4..)?.first_chunk()?)),
    })
}

/// Returns the slot in a communication ID.
const fn slot_of_id(id: [u8; 4]) -> u8 {
    id[0] >> (8 - SLOT_BITS)
}
