//! The life of what can be registered or bound by requests: one table for regions and windows.

use core::fmt;

/// Whether a key that requests turn on and off is good for anything.
///
/// Source: rocev2 §10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Allocated or invalidated: grants nothing, and can be registered (bound).
    Free,
    /// Registered (bound): grants what that says.
    Valid,
}

/// What requests of this side and its peers do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A fast registration, or of a window a bind, whose turn has come in its send queue.
    Register,
    /// An invalidation whose turn has come in its send queue.
    Invalidate,
    /// A SEND with Invalidate of a peer is complete.
    RemoteInvalidate,
}

//= rocev2 §10
//= R-MR-41
//= R-MR-45
//= R-MR-65
//= R-MR-66
/// Every transition there is: from, event, to. Whatever is not here fails, and changes nothing.
pub const TRANSITIONS: &[(State, Event, State)] = &[
    (State::Free, Event::Register, State::Valid),
    (State::Valid, Event::Invalidate, State::Free),
    (State::Valid, Event::RemoteInvalidate, State::Free),
];

impl State {
    pub const ALL: [Self; 2] = [Self::Free, Self::Valid];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Valid => "Valid",
        }
    }

    /// The state after `event`; `None` when that must not be.
    pub fn on(self, event: Event) -> Option<Self> {
        TRANSITIONS.iter().find(|(from, on, _)| *from == self && *on == event).map(|(_, _, to)| *to)
    }
}

impl Event {
    pub const ALL: [Self; 3] = [Self::Register, Self::Invalidate, Self::RemoteInvalidate];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Register => "Register",
            Self::Invalidate => "Invalidate",
            Self::RemoteInvalidate => "RemoteInvalidate",
        }
    }
}

/// Prints the table of transitions, for tests and docs.
#[derive(Clone, Copy, Debug)]
pub struct KeyTransitions;

impl fmt::Display for KeyTransitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8}", "")?;
        for event in Event::ALL {
            write!(f, "{:18}", event.name())?;
        }
        for state in State::ALL {
            write!(f, "\n{:8}", state.name())?;
            for event in Event::ALL {
                write!(f, "{:18}", state.on(event).map_or("-", State::name))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §10
    #[test]
    fn the_life_of_a_key() {
        let table = KeyTransitions.to_string();
        let table: Vec<_> = table.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
                Register          Invalidate        RemoteInvalidate
        Free    Valid             -                 -
        Valid   -                 Free              Free
        ");
    }
}
