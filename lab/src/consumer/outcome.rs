// SPDX-License-Identifier: MIT OR Apache-2.0

//! The outcomes of a script's steps, compared with the expected ones.

use std::{sync::Arc, time::Duration};

use ndk_abi::nt;
use nt_sim::{nt::io::IoResult, world::World};
use parking_lot::Mutex;

use super::script::{Compare, Content, Field, Variables, layout};

/// A line of a script's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Simulated time since the script's begin.
    pub time: Duration,
    pub thread: String,
    pub text: String,
    /// Not as the script says.
    pub is_failure: bool,
}

/// The log of a script.
pub struct Log {
    world: Arc<World>,
    begin: u64,
    lines: Mutex<Vec<Line>>,
}

impl Log {
    #[must_use]
    pub fn new(world: &Arc<World>) -> Self {
        Self { world: world.clone(), begin: world.now(), lines: Mutex::default() }
    }

    pub fn note(&self, thread: &str, text: String) {
        self.push(thread, text, false);
    }

    pub fn failure(&self, thread: &str, text: String) {
        self.push(thread, text, true);
    }

    fn push(&self, thread: &str, text: String, is_failure: bool) {
        let time = Duration::from_nanos(self.world.now().saturating_sub(self.begin));
        self.lines.lock().push(Line { time, thread: thread.to_owned(), text, is_failure });
    }

    /// Takes the lines.
    #[must_use]
    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines.lock())
    }
}

/// Names of statuses that consumers return.
const NAMES: [(i32, &str); 23] = [
    (nt::STATUS_SUCCESS, "SUCCESS"),
    (nt::STATUS_TIMEOUT, "TIMEOUT"),
    (nt::STATUS_PENDING, "PENDING"),
    (nt::STATUS_DEVICE_BUSY, "DEVICE_BUSY"),
    (nt::STATUS_UNSUCCESSFUL, "UNSUCCESSFUL"),
    (nt::STATUS_INVALID_PARAMETER, "INVALID_PARAMETER"),
    (nt::STATUS_INVALID_DEVICE_REQUEST, "INVALID_DEVICE_REQUEST"),
    (nt::STATUS_ACCESS_DENIED, "ACCESS_DENIED"),
    (nt::STATUS_BUFFER_TOO_SMALL, "BUFFER_TOO_SMALL"),
    (nt::STATUS_OBJECT_NAME_NOT_FOUND, "OBJECT_NAME_NOT_FOUND"),
    (nt::STATUS_INSUFFICIENT_RESOURCES, "INSUFFICIENT_RESOURCES"),
    (nt::STATUS_DEVICE_NOT_READY, "DEVICE_NOT_READY"),
    (nt::STATUS_IO_TIMEOUT, "IO_TIMEOUT"),
    (nt::STATUS_NOT_SUPPORTED, "NOT_SUPPORTED"),
    (nt::STATUS_CANCELLED, "CANCELLED"),
    (nt::STATUS_INVALID_DEVICE_STATE, "INVALID_DEVICE_STATE"),
    (nt::STATUS_CONNECTION_DISCONNECTED, "CONNECTION_DISCONNECTED"),
    (nt::STATUS_CONNECTION_REFUSED, "CONNECTION_REFUSED"),
    (nt::STATUS_CONNECTION_INVALID, "CONNECTION_INVALID"),
    (nt::STATUS_CONNECTION_ACTIVE, "CONNECTION_ACTIVE"),
    (nt::STATUS_CONNECTION_ABORTED, "CONNECTION_ABORTED"),
    (nt::STATUS_NETWORK_UNREACHABLE, "NETWORK_UNREACHABLE"),
    (nt::STATUS_HOST_UNREACHABLE, "HOST_UNREACHABLE"),
];

/// Returns a status as text, with its name if it is a usual one.
#[must_use]
pub fn status(status: u32) -> String {
    match NAMES.iter().find(|(known, _)| known.cast_unsigned() == status) {
        Some((_, name)) => format!("{status:#010x} (STATUS_{name})"),
        None => format!("{status:#010x}"),
    }
}

/// Returns alternatives as text.
#[must_use]
pub fn statuses(expected: &[u32]) -> String {
    expected.iter().map(|&one| status(one)).collect::<Vec<_>>().join(" or ")
}

fn numbers(expected: &[usize]) -> String {
    expected.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}

/// Compares the outcome of an IOCTL.
///
/// # Errors
/// What is not as expected.
pub fn check_result(result: &IoResult, compare: &Compare, variables: &Variables) -> Result<(), String> {
    if !compare.status.is_empty() && !compare.status.contains(&result.status.cast_unsigned()) {
        return Err(format!("expected {}", statuses(&compare.status)));
    }
    if !compare.length.is_empty() && !compare.length.contains(&result.information) {
        return Err(format!("{} output bytes, expected {}", result.information, numbers(&compare.length)));
    }
    for (at, expected) in layout(&compare.fields, variables)? {
        check_range("the output", &result.output, at, &expected)?;
    }
    for &(at, to, length) in &compare.equal {
        let range = |at: usize| result.output.get(at..at + length);
        let (one, other) = (range(at), range(to));
        if one.is_none() || one != other {
            return Err(format!(
                "{length} bytes of the output at {at} and {to} differ: {} and {}",
                hex(one.unwrap_or_default()),
                hex(other.unwrap_or_default())
            ));
        }
    }
    Ok(())
}

/// Compares a file.
///
/// # Errors
/// What is not as expected.
pub fn check_file(bytes: &[u8], content: &Content, variables: &Variables) -> Result<(), String> {
    if !content.length.is_empty() && !content.length.contains(&bytes.len()) {
        return Err(format!("{} bytes, expected {}", bytes.len(), numbers(&content.length)));
    }
    for (at, expected) in layout(&content.fields, variables)? {
        check_range("the file", bytes, at, &expected)?;
    }
    if let Some((text, times)) = &content.repeats {
        let chunks = bytes.chunks(text.len());
        let count = chunks.clone().take_while(|chunk| *chunk == text.as_bytes()).count();
        if !times.contains(&count) || count * text.len() != bytes.len() {
            return Err(format!(
                "{count} times {text:?} and {} other bytes, expected {} times",
                bytes.len() - count * text.len(),
                numbers(times)
            ));
        }
    }
    Ok(())
}

/// Compares a block of memory.
///
/// # Errors
/// What is not as expected.
pub fn check_block(bytes: &[u8], fields: &[Field], variables: &Variables) -> Result<(), String> {
    for (at, expected) in layout(fields, variables)? {
        check_range("the block", bytes, at, &expected)?;
    }
    Ok(())
}

fn check_range(what: &str, bytes: &[u8], at: usize, expected: &[u8]) -> Result<(), String> {
    let Some(found) = bytes.get(at..at + expected.len()) else {
        return Err(format!("{what} has {} bytes, expected bytes at {at}", bytes.len()));
    };
    match found.iter().zip(expected).position(|(one, other)| one != other) {
        None => Ok(()),
        Some(index) => Err(format!(
            "{what} differs at byte {}: {}, expected {}",
            at + index,
            hex(&found[index..]),
            hex(&expected[index..])
        )),
    }
}

/// The first bytes, in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    let digits: Vec<_> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ") + if bytes.len() > SHOWN { " …" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: i32, output: &[u8]) -> IoResult {
        IoResult { status, information: output.len(), output: output.to_vec() }
    }

    fn compare() -> Compare {
        Compare { status: vec![0, 0x102], length: vec![4], equal: vec![(0, 2, 2)], ..Compare::default() }
    }

    #[test]
    fn outcomes_are_compared_with_all_that_is_expected() {
        let check = |result: &IoResult| check_result(result, &compare(), &Variables::default());
        assert_eq!(check(&result(0, &[1, 2, 1, 2])), Ok(()));
        assert_eq!(check(&result(0x102, &[1, 2, 1, 2])), Ok(()));
        let refused = check(&result(nt::STATUS_CANCELLED, &[1, 2, 1, 2])).unwrap_err();
        assert_eq!(refused, "expected 0x00000000 (STATUS_SUCCESS) or 0x00000102 (STATUS_TIMEOUT)");
        assert_eq!(check(&result(0, &[1])).unwrap_err(), "1 output bytes, expected 4");
        assert!(check(&result(0, &[1, 2, 1, 3])).unwrap_err().ends_with("differ: 01 02 and 01 03"));
    }

    #[test]
    fn files_that_repeat_a_text_are_counted() {
        let content = |times: &[usize]| Content {
            length: Vec::new(),
            fields: Vec::new(),
            repeats: Some(("ab\n".to_owned(), times.to_vec())),
        };
        let check = |bytes: &[u8], times: &[usize]| check_file(bytes, &content(times), &Variables::default());
        assert_eq!(check(b"ab\nab\n", &[3, 2]), Ok(()));
        assert!(check(b"ab\nab\n", &[3]).is_err());
        assert!(check(b"ab\nab\nc", &[2]).is_err());
        assert!(check(b"", &[1]).is_err());
    }
}
