// SPDX-License-Identifier: MIT OR Apache-2.0

//! The trace that the driver writes to ETW on simulated hosts, as JSON and as lines for people. Sentences are those of the driver's table.

use std::{fmt::Write as _, path::Path};

use ndk_abi::nt::GUID;
use nt_sim::{
    Host,
    nt::{
        trace_logging::Value,
        trace_sessions::{Event, Session},
    },
};
use serde_json::json;
use viordma_inf::{
    events::Message,
    tracing::{self, keywords, page, profile},
};

/// The session of the profile that `Viordma.wprp` records.
pub const ORDINARY: Session = Session { level: 5, any: keywords::ORDINARY, all: 0 };

/// Returns the GUID of the driver's provider.
#[must_use]
pub const fn provider() -> GUID {
    GUID::from_u128(tracing::GUID)
}

/// An event of the driver on a host.
#[derive(Clone, Debug)]
pub struct TracedEvent {
    /// Name of the host.
    pub host: String,
    pub event: Event,
}

impl TracedEvent {
    /// Returns the events of hosts, by time.
    #[must_use]
    pub fn of(hosts: &[&Host]) -> Vec<Self> {
        let of_host = |host: &Host| {
            let name = host.name().to_owned();
            host.trace().into_iter().map(move |event| Self { host: name.clone(), event })
        };
        let mut events: Vec<_> = hosts.iter().flat_map(|&host| of_host(host)).collect();
        events.sort_by_key(|event| event.event.time);
        events
    }

    /// Returns the name of the event.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.event.content.name
    }

    /// Returns the text of a field; empty if the event has no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> String {
        self.event.content.field(name).map(Value::to_string).unwrap_or_default()
    }

    /// Returns the event as a sentence; one of an event of the system log with that one's sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let fields = self.event.content.fields.iter();
        let values: Vec<_> = fields.map(|(name, value)| (name.clone(), value.to_string())).collect();
        let sentence = page::sentence(self.name(), &values);
        let logged = self.field("Number").parse().ok().and_then(Message::of);
        match logged {
            Some(message) => format!("{sentence}: {}", message.sentence()),
            None => sentence,
        }
    }

    /// Returns the event as a line: milliseconds, host, sentence.
    #[must_use]
    pub fn line(&self) -> String {
        let time = self.event.time as f64 / 1e6;
        format!("{time:>12.3} ms  {:<6} {}", self.host, self.sentence())
    }

    fn json(&self) -> serde_json::Value {
        let value = |value: &Value| match value {
            Value::Number(number) => json!(number),
            other => json!(other.to_string()),
        };
        let fields = self.event.content.fields.iter().map(|(name, field)| (name.clone(), value(field)));
        json!({
            "time_us": self.event.time as f64 / 1e3,
            "host": self.host,
            "event": self.name(),
            "level": self.event.level,
            "keyword": format!("{:#x}", self.event.keyword),
            "activity": self.event.activity.map(|activity| profile::text_of(activity.to_u128())),
            "fields": fields.collect::<serde_json::Map<_, _>>(),
            "text": self.sentence(),
        })
    }
}

/// Returns the last `count` events as lines, after a line that says how many there were before.
#[must_use]
pub fn last_lines(events: &[TracedEvent], count: usize) -> String {
    let (before, last) = events.split_at(events.len().saturating_sub(count));
    let mut text = format!("trace, {} events before:", before.len());
    for event in last {
        text += "\n";
        text += &event.line();
    }
    text
}

/// Returns the content of a file of events: one JSON object a line if the file's name ends with `.jsonl`, lines for people otherwise.
#[must_use]
pub fn text(events: &[TracedEvent], file: &Path) -> String {
    let is_json = file.extension().is_some_and(|extension| extension == "jsonl");
    events.iter().fold(String::new(), |mut text, event| {
        let _ = if is_json { writeln!(text, "{}", event.json()) } else { writeln!(text, "{}", event.line()) };
        text
    })
}
