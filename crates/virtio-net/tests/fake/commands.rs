// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of the control queue. (virtio §12)

use std::time::Duration;

use vm_memory::{Bytes, GuestMemoryMmap};

use super::{Device, Fake};

/// How the device answers commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    /// Refuses commands that begin with these bytes, or all after the first so many.
    Refused(&'static [u8]),
    RefusedAfter(usize),
    /// Returns the command without an answer.
    Unwritten,
    /// Does not return the command.
    Never,
    /// Returns a command that was not sent.
    BadId,
}

impl Device {
    /// The control queue was notified.
    pub(super) fn command_arrived(&mut self, memory: &GuestMemoryMmap) {
        self.answer_at = Some(self.time + self.quirks.answer_time.as_nanos() as u64);
        self.execute_due(memory);
    }

    fn execute_due(&mut self, memory: &GuestMemoryMmap) {
        if self.answer_at.is_some_and(|due| due <= self.time) {
            self.answer_at = None;
            self.execute(memory);
        }
    }

    /// Executes the commands of the control queue.
    fn execute(&mut self, memory: &GuestMemoryMmap) {
        let control = self.control();
        while let Some((id, chain)) = self.queues[control].pop_parts(memory) {
            let has_tables = self.queues[control].indirect;
            assert!(
                chain.iter().all(|part| part.in_table == has_tables),
                "a table where the device has them"
            );
            let [command, answer] = chain[..] else { panic!("a command of {} descriptors", chain.len()) };
            assert!(!command.writable && answer.writable, "the answer alone is written");
            assert_eq!(answer.len, 1);
            let mut bytes = vec![0; command.len as usize];
            memory.read_slice(&mut bytes, command.address).unwrap();
            let value = match self.quirks.answer {
                Answer::Never => None,
                Answer::Refused(start) if bytes.starts_with(start) => Some(1),
                Answer::RefusedAfter(count) if self.commands.len() >= count => Some(1),
                _ => Some(0_u8),
            };
            self.commands.push(bytes);
            match (self.quirks.answer, value) {
                (_, None) => {}
                (Answer::Unwritten, _) => self.queues[control].push(memory, id, 0),
                (Answer::BadId, _) => self.queues[control].forge(memory, u32::from(id) + 1, 1, 1),
                (_, Some(value)) => {
                    memory.write_obj(value, answer.address).unwrap();
                    self.queues[control].push(memory, id, 1);
                }
            }
        }
        self.queues[control].enable_notifications(memory);
    }
}

impl Fake {
    /// Takes the commands that the driver sent.
    pub fn commands(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock().commands)
    }

    /// Time that the driver has waited.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.lock().time)
    }

    /// Lets time pass, and answers commands that are due.
    pub(super) fn pass(&self, time: impl Fn(u64) -> u64) {
        let mut device = self.lock();
        device.time = time(device.time);
        device.execute_due(&self.memory);
    }
}
