//! State machines as tables: the states, the events, and every transition that exists.
//!
//! A pair that is not in the table is an event that cannot happen in that state, or a call that is not
//! allowed there: `on` answers `None` and the caller decides what that means.

/// Declares the states, the events and the table of one machine.
macro_rules! machine {
    (
        $(#[$state_doc:meta])* pub enum $State:ident { $($(#[$s_doc:meta])* $state:ident,)* }
        $(#[$event_doc:meta])* pub enum $Event:ident { $($(#[$e_doc:meta])* $event:ident,)* }
        $($from:ident + $by:ident => $to:ident,)*
    ) => {
        $(#[$state_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $State { $($(#[$s_doc])* $state,)* }

        $(#[$event_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Event { $($(#[$e_doc])* $event,)* }

        impl $State {
            /// Where `event` leads from here, if it may happen here.
            pub fn on(self, event: $Event) -> Option<Self> {
                match (self, event) {
                    $(($State::$from, $Event::$by) => Some($State::$to),)*
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }

            /// Every transition, in the order of the declaration.
            #[cfg(test)]
            pub const TABLE: &[($State, $Event, $State)] =
                &[$(($State::$from, $Event::$by, $State::$to),)*];
        }
    };
}
pub(crate) use machine;

/// The table as the tests and the documentation show it: one line per transition.
#[cfg(test)]
pub fn print<S: core::fmt::Debug, E: core::fmt::Debug>(table: &[(S, E, S)]) -> std::string::String {
    let lines = table.iter().map(|(from, event, to)| std::format!("{from:?} + {event:?} => {to:?}"));
    lines.collect::<std::vec::Vec<_>>().join("\n")
}
