// SPDX-License-Identifier: MIT OR Apache-2.0

//! The image's message table (`RT_MESSAGETABLE`), generated from the driver's table of events. The INF names the image as event
//! message file, so that Event Viewer finds the texts in it.
//!
//! Layouts: `MESSAGE_RESOURCE_DATA`, `MESSAGE_RESOURCE_BLOCK`, `MESSAGE_RESOURCE_ENTRY`.

use crate::{
    Edition,
    events::{MESSAGES, Message},
};

/// Returns the resource's data: the texts of the events that an edition of the driver writes.
#[must_use]
pub fn data(edition: Edition) -> Vec<u8> {
    let messages = MESSAGES.iter().copied().filter(|message| message.edition() <= edition);
    message_table(messages.collect())
}

/// Blocks of consecutive identifiers, then their entries.
fn message_table(mut messages: Vec<Message>) -> Vec<u8> {
    const COUNT_BYTES: usize = 4;
    const BLOCK_BYTES: usize = 12;
    messages.sort_by_key(|message| message.event.id);
    let blocks: Vec<&[Message]> = messages.chunk_by(|a, b| a.event.id + 1 == b.event.id).collect();
    let mut head = (blocks.len() as u32).to_le_bytes().to_vec();
    let mut entries = Vec::new();
    for block in &blocks {
        let offset = COUNT_BYTES + BLOCK_BYTES * blocks.len() + entries.len();
        let [Some(first), Some(last)] = [block.first(), block.last()] else { continue };
        head.extend(first.event.id.to_le_bytes());
        head.extend(last.event.id.to_le_bytes());
        head.extend((offset as u32).to_le_bytes());
        block.iter().for_each(|message| entries.extend(entry(message.text)));
    }
    head.extend(entries);
    head
}

/// `Length Flags Text`, the text in UTF-16 with line end and terminator, padded to four bytes.
fn entry(text: &str) -> Vec<u8> {
    const UNICODE: u16 = 1;
    let mut units: Vec<u16> = text.encode_utf16().chain("\r\n\0".encode_utf16()).collect();
    units.resize(units.len().next_multiple_of(2), 0);
    let length = 4 + 2 * units.len() as u16;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(UNICODE.to_le_bytes());
    bytes.extend(units.into_iter().flat_map(u16::to_le_bytes));
    bytes
}
