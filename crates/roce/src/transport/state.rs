//! The life of a queue pair, as one table.

use core::fmt;

/// Where a queue pair is in its life.
///
/// Source: rocev2 §9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Exists; nothing can be posted.
    Reset,
    /// Receives may be posted. Packets are dropped.
    Init,
    /// Knows its peer and serves its requests. Nothing can be sent.
    Rtr,
    /// Connected in both directions.
    Rts,
    /// Given up: every request completes as flushed, packets are dropped. The end.
    Error,
}

/// What happens to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The queue pair is made.
    Initialize,
    /// The peer, the path and the peer's first sequence number are known.
    PeerKnown,
    /// The connection stands.
    Established,
    /// A request failed, or the owner flushed or destroyed the queue pair.
    Fail,
}

/// An event that a state does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    pub state: State,
    pub event: Event,
}

//= rocev2 §9
/// Every transition there is: from, event, to.
pub const TRANSITIONS: &[(State, Event, State)] = &[
    (State::Reset, Event::Initialize, State::Init),
    (State::Reset, Event::Fail, State::Error),
    (State::Init, Event::PeerKnown, State::Rtr),
    (State::Init, Event::Fail, State::Error),
    (State::Rtr, Event::Established, State::Rts),
    (State::Rtr, Event::Fail, State::Error),
    (State::Rts, Event::Fail, State::Error),
];

impl State {
    pub const ALL: [Self; 5] = [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Error];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "Reset",
            Self::Init => "Init",
            Self::Rtr => "Rtr",
            Self::Rts => "Rts",
            Self::Error => "Error",
        }
    }

    /// The state after `event`.
    pub fn on(self, event: Event) -> Result<Self, InvalidTransition> {
        TRANSITIONS
            .iter()
            .find(|(from, on, _)| *from == self && *on == event)
            .map(|(_, _, to)| *to)
            .ok_or(InvalidTransition { state: self, event })
    }

    /// Whether requests of the peer are served, and its answers last_received.
    #[inline]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts)
    }
}

impl Event {
    pub const ALL: [Self; 4] = [Self::Initialize, Self::PeerKnown, Self::Established, Self::Fail];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "Initialize",
            Self::PeerKnown => "PeerKnown",
            Self::Established => "Established",
            Self::Fail => "Fail",
        }
    }
}

/// Prints the table of transitions, for tests and docs.
#[derive(Clone, Copy, Debug)]
pub struct TransitionTable;

impl fmt::Display for TransitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8}", "")?;
        for event in Event::ALL {
            write!(f, "{:14}", event.name())?;
        }
        for state in State::ALL {
            write!(f, "\n{:8}", state.name())?;
            for event in Event::ALL {
                match state.on(event) {
                    Ok(to) => write!(f, "{:14}", to.name())?,
                    Err(_) => write!(f, "{:14}", "-")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §9
    #[test]
    fn the_life_of_a_queue_pair() {
        let table = TransitionTable.to_string();
        let table: Vec<_> = table.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
                Initialize    PeerKnown     Established   Fail
        Reset   Init          -             -             Error
        Init    -             Rtr           -             Error
        Rtr     -             -             Rts           Error
        Rts     -             -             -             Error
        Error   -             -             -             -
        ");
    }
}
