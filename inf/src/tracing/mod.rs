// SPDX-License-Identifier: MIT OR Apache-2.0

//! The trace: one table of the events that the driver writes to ETW by TraceLogging.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`table`] | the events |
//! | [`keywords`] | keywords, by which a session selects events |
//! | [`value`] | types of fields, and their values as bytes |
//! | [`metadata`] | description of an event that travels with it |
//! | `profile` | `Viordma.wprp`, from which Windows Performance Recorder knows what to record |
//! | `page` | the table for administrators, and an event as a sentence |

pub mod keywords;
pub mod metadata;
#[cfg(any(test, feature = "generate"))]
pub mod page;
#[cfg(any(test, feature = "generate"))]
pub mod profile;
pub mod table;
pub mod value;

/// Name of the provider. Tools that know its name find its GUID, see [`GUID`].
pub const PROVIDER: &str = "Viordma";

/// GUID of the provider: derived from the upper-case name by SHA-1, as by `EventSource` of .NET and by `TraceLoggingProvider.h`.
pub const GUID: u128 = 0xd8b4_8936_22ea_5250_a264_f185_6724_7971;

/// Traits of the provider: its name.
pub const TRAITS: [u8; metadata::traits_length(PROVIDER)] = metadata::traits(PROVIDER);

/// The channel of events of TraceLogging. (`evntprov.h`: `WINEVENT_CHANNEL_TRACELOGGING`)
pub const CHANNEL: u8 = 11;

/// Level of an event. (`evntrace.h`: `TRACE_LEVEL_ERROR` to `TRACE_LEVEL_VERBOSE`)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Failures that need an action.
    Error = 2,
    /// Losses of performance, and failed connections.
    Warning = 3,
    /// The life of connections, objects and adapters.
    Information = 4,
    /// Details, of which there may be many.
    Verbose = 5,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub keyword: u64,
    pub level: Level,
    /// The event as a sentence. `{Field}` stands for the value of a field.
    pub text: &'static str,
    pub fields: &'static [value::Field],
    /// As it is written with each event.
    pub metadata: &'static [u8],
}

/// An event of the table with the values of its fields.
pub trait Event {
    const ROW: Row;

    /// Appends the values of the fields, in their order.
    fn put(&self, payload: &mut value::Payload);
}
