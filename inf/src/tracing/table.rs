// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events of the trace. From this table come the driver's writes, the page for administrators, the profile for recording, and the sentences by
//! which tools show an event.
//!
//! Words of the engine's trace (`roce::TraceEvent`) and names of counters are the values of the fields of type text.

use core::net::SocketAddr;

use super::keywords::{
    CONGESTION, CONNECTION, DEVICE, DROP, NDK, OID, POWER, QUEUE, RETRANSMISSION, SEQUENCE,
};
use super::value::{Field, Hex, Payload, Status, Value};
use super::{Event, Level, Row, metadata};

macro_rules! trace_events {
    ($($name:ident: $keyword:ident, $level:ident, $text:literal, { $($field:ident $label:literal: $kind:ty,)* };)*) => {
        $(
            #[doc = $text]
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                $(pub $field: $kind,)*
            }

            impl Event for $name {
                const ROW: Row = {
                    const FIELDS: &[Field] =
                        &[$(Field { name: $label, kind: <$kind as Value>::KIND },)*];
                    const METADATA: [u8; metadata::event_length(stringify!($name), FIELDS)] =
                        metadata::event(stringify!($name), FIELDS);
                    Row {
                        name: stringify!($name),
                        keyword: $keyword,
                        level: Level::$level,
                        text: $text,
                        fields: FIELDS,
                        metadata: &METADATA,
                    }
                };

                fn put(&self, payload: &mut Payload) {
                    $(self.$field.put(payload);)*
                }
            }
        )*

        /// All events.
        pub const ROWS: &[Row] = &[$(<$name as Event>::ROW,)*];
    };
}

trace_events! {
    ConnectionChanged: CONNECTION, Information,
        "connection {Local} - {Remote}, queue pair {QueuePair}: {From} to {To} ({Input})", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        local "Local": SocketAddr,
        remote "Remote": SocketAddr,
        from "From": &'static str,
        to "To": &'static str,
        input "Input": &'static str,
    };
    ConnectionRefused: CONNECTION, Warning,
        "connection {Local} - {Remote}, queue pair {QueuePair}: refused, {Reason} ({Input})", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        local "Local": SocketAddr,
        remote "Remote": SocketAddr,
        input "Input": &'static str,
        reason "Reason": &'static str,
    };
    RequestRefused: CONNECTION, Warning, "request of {Remote} to {Local} refused: {Reason}", {
        interface "Interface": u32,
        local "Local": SocketAddr,
        remote "Remote": SocketAddr,
        reason "Reason": &'static str,
    };
    MessageIgnored: CONNECTION, Information, "message of connection management ignored: {Reason}", {
        interface "Interface": u32,
        reason "Reason": &'static str,
    };
    FrameDropped: DROP, Warning, "frame for queue pair {QueuePair} dropped: {Reason}", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        reason "Reason": &'static str,
    };
    Retransmitted: RETRANSMISSION, Information, "queue pair {QueuePair}: a packet was sent again", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
    };
    TimedOut: RETRANSMISSION, Warning, "queue pair {QueuePair}: no answer in time", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
    };
    RateReduced: CONGESTION, Information, "queue pair {QueuePair}: rate lowered by a CNP of the peer", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
    };
    CongestionNotified: CONGESTION, Information,
        "queue pair {QueuePair}: the peer is notified of a congestion mark by a CNP", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
    };
    QueuePairChanged: QUEUE, Information, "queue pair {QueuePair}: {From} to {To}", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        from "From": &'static str,
        to "To": &'static str,
    };
    QueuePairFlushed: QUEUE, Warning, "queue pair {QueuePair}: requests are flushed, because: {Cause}", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        cause "Cause": &'static str,
    };
    CqOverflowed: QUEUE, Error,
        "queue pair {QueuePair}: its completion queue has no room, and is of no use from now on", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
    };
    NdkAdapterOpened: NDK, Information, "a consumer opens an NDK adapter: status {Status}", {
        interface "Interface": u32,
        status "Status": Status,
    };
    NdkAdapterClosed: NDK, Information, "a consumer has closed its NDK adapter", {
        interface "Interface": u32,
    };
    NdkObjectChanged: NDK, Verbose, "{Object} {Address}: {Change}", {
        interface "Interface": u32,
        object "Object": &'static str,
        address "Address": Hex,
        change "Change": &'static str,
    };
    NdkStateChanged: NDK, Information, "RDMA is {State}", {
        interface "Interface": u32,
        state "State": &'static str,
    };
    OidCompleted: OID, Verbose, "{Request} of OID {Oid}: status {Status}", {
        interface "Interface": u32,
        request "Request": &'static str,
        oid "Oid": Hex,
        status "Status": Status,
    };
    AdapterChanged: POWER, Information, "adapter: {Change}, status {Status}", {
        interface "Interface": u32,
        change "Change": &'static str,
        status "Status": Status,
    };
    DeviceWaited: DEVICE, Information, "waited for the device, {Wait}: {Milliseconds} ms so far", {
        interface "Interface": u32,
        wait "Wait": &'static str,
        milliseconds "Milliseconds": u32,
    };
    EventLogged: DEVICE, Warning, "event {Number} of the system log, data {First}, {Second}", {
        interface "Interface": u32,
        number "Number": u32,
        first "First": u32,
        second "Second": u32,
    };
    SequenceNumber: SEQUENCE, Verbose, "queue pair {QueuePair}, PSN {Psn}: {Event}", {
        interface "Interface": u32,
        queue_pair "QueuePair": u32,
        psn "Psn": u32,
        event "Event": &'static str,
    };
}

#[cfg(test)]
mod tests {
    use super::super::{keywords, value};
    use super::*;

    #[test]
    fn each_event_has_a_keyword_fits_and_names_its_fields_in_its_text() {
        for row in ROWS {
            assert!(keywords::KEYWORDS.iter().any(|keyword| keyword.bit == row.keyword), "{}", row.name);
            let most: usize = row.fields.iter().map(|field| value::most_bytes(field.kind)).sum();
            assert!(most <= value::SIZE, "{}: {most} bytes", row.name);
            let mut text = row.text.to_owned();
            for field in row.fields {
                text = text.replace(&format!("{{{}}}", field.name), "");
            }
            assert!(!text.contains(['{', '}']), "{}: {text}", row.name);
            let has = |name: &str| row.fields.iter().any(|field| field.name == name);
            assert!(has("Interface"), "{}", row.name);
            assert!(!has("Psn") || row.keyword == SEQUENCE, "{}", row.name);
        }
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
