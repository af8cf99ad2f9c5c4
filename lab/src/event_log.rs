// SPDX-License-Identifier: MIT OR Apache-2.0

//! Entries of the event log in the words of the driver's table of events.

use ndis_sim::LogEntry;
use viordma_inf::events::Message;

/// Returns an event as a line: its number, the sentence that Event Viewer shows, and its data.
#[must_use]
pub fn text(entry: &LogEntry) -> String {
    let number = number(entry);
    let sentence = Message::of(number).map_or("no event of the driver", Message::sentence);
    let data = if entry.data.is_empty() { String::new() } else { format!(" {:?}", entry.data) };
    format!("event {number}: {sentence}{data}")
}

/// Returns the number of an event, without severity and facility.
#[must_use]
pub fn number(entry: &LogEntry) -> u32 {
    entry.code & 0xFFFF
}

#[cfg(test)]
mod tests {
    use viordma_inf::events::{self, Event};

    use super::*;

    fn entry(event: Event, data: &[u32]) -> LogEntry {
        LogEntry { interface: 1, time: 0, code: event.id, data: data.to_vec() }
    }

    #[test]
    fn an_event_is_a_sentence_with_its_data() {
        let text = text(&entry(events::RESET_LATE, &[7]));
        assert!(text.starts_with("event 14: the device has not completed its reset yet."), "{text}");
        assert!(text.ends_with(" [7]"), "{text}");
        let unknown = LogEntry { code: 0xE0DA_0FFF, ..entry(events::RESET_LATE, &[]) };
        assert_eq!(super::text(&unknown), "event 4095: no event of the driver");
    }
}
