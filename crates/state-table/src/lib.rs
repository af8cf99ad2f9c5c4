// SPDX-License-Identifier: MIT OR Apache-2.0

//! Declares a state machine as one table and prints it.
//!
//! [`state_table!`] generates the enum of states, the enum of events, and `on`, which looks up a transition
//! in a `match`. What is not in the table does not happen: `on` returns a [`TransitionError`] and the caller
//! decides what that means. A duplicate transition is a compile error.
#![cfg_attr(not(test), no_std)]

use core::fmt;
use core::marker::PhantomData;

/// One of a fixed set of states or events.
pub trait Symbol: Copy + Eq + fmt::Debug + 'static {
    /// All values, in the order of their declaration.
    const ALL: &'static [Self];

    /// Returns the name as declared.
    fn name(self) -> &'static str;
}

/// The states of a machine, with its transitions. Implemented by [`state_table!`].
pub trait StateMachine: Symbol {
    type Event: Symbol;

    /// Every transition: from, event, to.
    const TRANSITIONS: &'static [(Self, Self::Event, Self)];

    /// Returns the state after `event`.
    ///
    /// # Errors
    /// [`TransitionError`] if the table has no such transition.
    fn next(self, event: Self::Event) -> Result<Self, TransitionError<Self>>;
}

/// An event for which the current state has no transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError<S: StateMachine> {
    /// The machine is in a state that this event leads to from elsewhere: there is nothing left to do.
    NoOp { state: S, event: S::Event },
    /// The event is not allowed in this state.
    Invalid { state: S, event: S::Event },
}

impl<S: StateMachine> fmt::Display for TransitionError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOp { state, event } => {
                write!(f, "event {} changes nothing in state {}", event.name(), state.name())
            }
            Self::Invalid { state, event } => {
                write!(f, "event {} is not allowed in state {}", event.name(), state.name())
            }
        }
    }
}

impl<S: StateMachine> core::error::Error for TransitionError<S> {}

/// Prints all transitions of a machine, one a line, by state and then by event.
#[derive(Clone, Copy, Debug)]
pub struct TransitionTable<S>(PhantomData<S>);

impl<S> TransitionTable<S> {
    /// Returns the table of `S`.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S> Default for TransitionTable<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: StateMachine> fmt::Display for TransitionTable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::len).max().unwrap_or(0);
        let from = width(&mut S::ALL.iter().map(|state| state.name()));
        let on = width(&mut S::Event::ALL.iter().map(|event| event.name()));
        for &state in S::ALL {
            for &event in S::Event::ALL {
                if let Ok(next) = state.next(event) {
                    writeln!(f, "{:from$}  {:on$}  -> {}", state.name(), event.name(), next.name())?;
                }
            }
        }
        Ok(())
    }
}

/// Declares the states, the events and the transitions of one machine.
///
/// Each event lists the states it may occur in and the state it leads to:
/// `Event: From | From => To, From => To;`. The order of the states is that of their declaration, and so is
/// the order of the events. Both enums take attributes and doc comments, and derive `Clone`, `Copy`, `Debug`,
/// `Eq`, `Ord` and `Hash`. The enum of states gets `ALL`, `name`, `on` and `table`.
#[macro_export]
macro_rules! state_table {
    (
        $(#[$state_meta:meta])*
        $state_vis:vis enum $State:ident { $($(#[$s_meta:meta])* $state:ident),+ $(,)? }
        $(#[$event_meta:meta])*
        $event_vis:vis enum $Event:ident {
            $($(#[$e_meta:meta])* $event:ident: $($($from:ident)|+ => $to:ident),+;)+
        }
    ) => {
        $(#[$state_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $state_vis enum $State { $($(#[$s_meta])* $state,)+ }

        $(#[$event_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $event_vis enum $Event { $($(#[$e_meta])* $event,)+ }

        #[allow(dead_code, reason = "not every machine uses all of them")]
        impl $State {
            /// All states, in the order of their declaration.
            $state_vis const ALL: &'static [Self] = &[$(Self::$state,)+];

            /// Returns the name of the state.
            #[must_use]
            $state_vis const fn name(self) -> &'static str {
                match self { $(Self::$state => stringify!($state),)+ }
            }

            /// Returns the state after `event`.
            ///
            /// # Errors
            /// `TransitionError` if the table has no such transition.
            #[inline]
            $state_vis const fn on(self, event: $Event) -> Result<Self, $crate::TransitionError<Self>> {
                #[deny(unreachable_patterns)]
                #[allow(clippy::match_same_arms, reason = "one arm for each row of the table")]
                match (event, self) {
                    $($($(($Event::$event, Self::$from) => Ok(Self::$to),)+)+)+
                    #[allow(unreachable_patterns, reason = "a table may be complete")]
                    _ => Err(self.refused(event)),
                }
            }

            #[allow(unreachable_patterns, reason = "several transitions of an event may lead to one state")]
            const fn refused(self, event: $Event) -> $crate::TransitionError<Self> {
                match (event, self) {
                    $($(($Event::$event, Self::$to) => {
                        $crate::TransitionError::NoOp { state: self, event }
                    })+)+
                    _ => $crate::TransitionError::Invalid { state: self, event },
                }
            }

            /// Returns the table of all transitions, for printing.
            #[must_use]
            $state_vis const fn table() -> $crate::TransitionTable<Self> {
                $crate::TransitionTable::new()
            }
        }

        impl $crate::Symbol for $State {
            const ALL: &'static [Self] = Self::ALL;

            fn name(self) -> &'static str {
                self.name()
            }
        }

        impl $crate::Symbol for $Event {
            const ALL: &'static [Self] = &[$(Self::$event,)+];

            fn name(self) -> &'static str {
                match self { $(Self::$event => stringify!($event),)+ }
            }
        }

        impl $crate::StateMachine for $State {
            type Event = $Event;

            const TRANSITIONS: &'static [(Self, $Event, Self)] =
                &[$($($((Self::$from, $Event::$event, Self::$to),)+)+)+];

            fn next(self, event: $Event) -> Result<Self, $crate::TransitionError<Self>> {
                self.on(event)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    state_table! {
        /// State of a door.
        pub enum State { Open, Closed, Locked }
        /// Events of a door.
        pub enum Event {
            Close: Open => Closed;
            Lock: Closed => Locked;
            Unlock: Locked => Closed;
            Break: Closed | Locked => Open;
        }
    }

    #[test]
    fn table_lists_each_transition_by_state_and_event() {
        insta::assert_snapshot!(State::table(), @r"
        Open    Close   -> Closed
        Closed  Lock    -> Locked
        Closed  Break   -> Open
        Locked  Unlock  -> Closed
        Locked  Break   -> Open
        ");
        assert_eq!(State::TRANSITIONS.len(), 5);
        assert!(State::TRANSITIONS.iter().all(|&(from, event, to)| from.on(event) == Ok(to)));
    }

    #[test]
    fn error_tells_a_no_op_from_an_invalid_transition() {
        let no_op = State::Closed.on(Event::Close).unwrap_err();
        assert_eq!(no_op, TransitionError::NoOp { state: State::Closed, event: Event::Close });
        assert_eq!(no_op.to_string(), "event Close changes nothing in state Closed");
        let invalid = State::Open.on(Event::Lock).unwrap_err();
        assert_eq!(invalid, TransitionError::Invalid { state: State::Open, event: Event::Lock });
        assert_eq!(invalid.to_string(), "event Lock is not allowed in state Open");
    }
}
