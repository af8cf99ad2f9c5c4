// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which attributes a change of state needs and takes.
//!
//! Source: IBTA Volume 1, section 11.2.5.2 (modify queue pair), tables of the transport services; without migration.

use bitflags::bitflags;

use super::attributes::{QpState, Service};
use crate::error::Error;

bitflags! {
    /// Attributes of a queue pair that a modification names. The bits are those of libibverbs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Mask: u32 {
        const STATE = 1 << 0;
        const CURRENT_STATE = 1 << 1;
        const DRAIN_EVENT = 1 << 2;
        const ACCESS = 1 << 3;
        const PKEY_INDEX = 1 << 4;
        const PORT = 1 << 5;
        const Q_KEY = 1 << 6;
        const PATH = 1 << 7;
        const PATH_MTU = 1 << 8;
        const TIMEOUT = 1 << 9;
        const RETRIES = 1 << 10;
        const RNR_RETRIES = 1 << 11;
        const RECEIVE_PSN = 1 << 12;
        const OUTBOUND_READS = 1 << 13;
        const ALTERNATE_PATH = 1 << 14;
        const RNR_TIMER = 1 << 15;
        const SEND_PSN = 1 << 16;
        const INBOUND_READS = 1 << 17;
        const MIGRATION = 1 << 18;
        const CAPABILITIES = 1 << 19;
        const DESTINATION = 1 << 20;
        const RATE_LIMIT = 1 << 25;
    }
}

/// Attributes that no change takes because what they are for is not offered.
const UNSUPPORTED: Mask =
    Mask::ALTERNATE_PATH.union(Mask::MIGRATION).union(Mask::CAPABILITIES).union(Mask::RATE_LIMIT);

impl Mask {
    /// Attributes of the requester of a reliable connection.
    pub(super) const OF_REQUESTER: Self =
        Self::TIMEOUT.union(Self::RETRIES).union(Self::RNR_RETRIES).union(Self::OUTBOUND_READS);

    /// Attributes that can be changed of a queue pair that has a peer, or is open for datagrams.
    pub(super) const UPDATED: Self = Self::OF_REQUESTER
        .union(Self::ACCESS)
        .union(Self::RNR_TIMER)
        .union(Self::Q_KEY)
        .union(Self::PATH)
        .union(Self::INBOUND_READS);
}

/// A change of state: the attributes that it needs, and those that it takes besides.
struct Transition {
    from: QpState,
    to: QpState,
    service: Service,
    needed: Mask,
    optional: Mask,
}

macro_rules! transitions {
    ($($service:ident $from:ident $to:ident: [$($needed:ident)*], [$($optional:ident)*];)+) => {
        const TRANSITIONS: &[Transition] = &[$(Transition {
            from: QpState::$from,
            to: QpState::$to,
            service: Service::$service,
            needed: Mask::empty()$(.union(Mask::$needed))*,
            optional: Mask::empty()$(.union(Mask::$optional))*,
        },)+];
    };
}

transitions! {
    Reliable Reset Init: [PKEY_INDEX PORT ACCESS], [];
    Reliable Init Init: [], [PKEY_INDEX PORT ACCESS];
    Reliable Init ReadyToReceive: [PATH PATH_MTU DESTINATION RECEIVE_PSN INBOUND_READS RNR_TIMER], [PKEY_INDEX ACCESS];
    Reliable ReadyToReceive ReadyToSend:
        [TIMEOUT RETRIES RNR_RETRIES SEND_PSN OUTBOUND_READS], [CURRENT_STATE ACCESS RNR_TIMER];
    Reliable ReadyToSend ReadyToSend: [], [CURRENT_STATE ACCESS RNR_TIMER];
    Reliable ReadyToSend Drained: [], [CURRENT_STATE DRAIN_EVENT];
    Reliable Drained Drained: [],
        [CURRENT_STATE PORT PATH TIMEOUT RETRIES RNR_RETRIES OUTBOUND_READS INBOUND_READS PKEY_INDEX ACCESS RNR_TIMER];
    Reliable Drained ReadyToSend: [], [CURRENT_STATE ACCESS RNR_TIMER];
    Unreliable Reset Init: [PKEY_INDEX PORT ACCESS], [];
    Unreliable Init Init: [], [PKEY_INDEX PORT ACCESS];
    Unreliable Init ReadyToReceive: [PATH PATH_MTU DESTINATION RECEIVE_PSN], [PKEY_INDEX ACCESS];
    Unreliable ReadyToReceive ReadyToSend: [SEND_PSN], [CURRENT_STATE ACCESS];
    Unreliable ReadyToSend ReadyToSend: [], [CURRENT_STATE ACCESS];
    Unreliable ReadyToSend Drained: [], [CURRENT_STATE DRAIN_EVENT];
    Unreliable Drained Drained: [], [CURRENT_STATE PATH PKEY_INDEX ACCESS];
    Unreliable Drained ReadyToSend: [], [CURRENT_STATE ACCESS];
    Unreliable SendError ReadyToSend: [], [CURRENT_STATE ACCESS];
    Datagram Reset Init: [PKEY_INDEX PORT Q_KEY], [];
    Datagram Init Init: [], [PKEY_INDEX PORT Q_KEY];
    Datagram Init ReadyToReceive: [], [PKEY_INDEX Q_KEY];
    Datagram ReadyToReceive ReadyToSend: [SEND_PSN], [CURRENT_STATE Q_KEY];
    Datagram ReadyToSend ReadyToSend: [], [CURRENT_STATE Q_KEY];
    Datagram ReadyToSend Drained: [], [CURRENT_STATE DRAIN_EVENT];
    Datagram Drained Drained: [], [CURRENT_STATE PKEY_INDEX Q_KEY];
    Datagram Drained ReadyToSend: [], [CURRENT_STATE Q_KEY];
    Datagram SendError ReadyToSend: [], [CURRENT_STATE Q_KEY];
}

/// Checks that a modification names the attributes that the change needs, and no others.
///
/// # Errors
/// [`Error::Unsupported`] if it names one that is for something not offered; else [`Error::Invalid`].
pub fn check(service: Service, from: QpState, to: QpState, named: Mask) -> Result<(), Error> {
    if named.intersects(UNSUPPORTED) {
        return Err(Error::Unsupported);
    }
    let (needed, optional) = match to {
        // From any state.
        QpState::Reset => (Mask::empty(), Mask::empty()),
        QpState::Error => (Mask::empty(), Mask::CURRENT_STATE),
        _ => {
            let found = TRANSITIONS
                .iter()
                .find(|row| (row.service, row.from, row.to) == (service, from, to))
                .ok_or(Error::Invalid)?;
            (found.needed, found.optional)
        }
    };
    let allowed = needed | optional | Mask::STATE;
    if named.contains(needed) && allowed.contains(named) { Ok(()) } else { Err(Error::Invalid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::ReadyToReceive,
        QpState::ReadyToSend,
        QpState::Drained,
        QpState::SendError,
        QpState::Error,
    ];

    #[test]
    fn a_change_takes_its_attributes_and_no_others() {
        for row in TRANSITIONS {
            let try_with = |named| check(row.service, row.from, row.to, named | Mask::STATE);
            assert_eq!(try_with(row.needed), Ok(()));
            assert_eq!(try_with(row.needed | row.optional), Ok(()));
            for attribute in Mask::all().difference(Mask::STATE) {
                let named = row.needed ^ attribute;
                let expected = if UNSUPPORTED.contains(attribute) {
                    Err(Error::Unsupported)
                } else if row.optional.contains(attribute) {
                    Ok(())
                } else {
                    Err(Error::Invalid)
                };
                assert_eq!(try_with(named), expected, "{:?} to {:?} with {named:?}", row.from, row.to);
            }
        }
    }

    #[test]
    fn reset_and_error_are_reached_from_every_state_and_left_by_reset_only() {
        for service in [Service::Reliable, Service::Unreliable, Service::Datagram] {
            for from in STATES {
                for to in STATES {
                    let listed =
                        TRANSITIONS.iter().find(|row| (row.service, row.from, row.to) == (service, from, to));
                    let possible = matches!(to, QpState::Reset | QpState::Error) || listed.is_some();
                    let named = listed.map_or(Mask::empty(), |row| row.needed);
                    let checked = check(service, from, to, named | Mask::STATE);
                    assert_eq!(checked.is_ok(), possible, "{service:?}: {from:?} to {to:?}");
                }
            }
        }
    }
}
