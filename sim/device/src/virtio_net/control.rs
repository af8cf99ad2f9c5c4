// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control queue. (virtio §12)

use std::sync::atomic::Ordering::Relaxed;

use super::{
    device::{Device, Outcome},
    features::Features,
    interrupt_coalescing::Parameters,
    options::Role,
    scaling::{Hashing, Scaling},
};
use crate::registers::Misuse;

const ACK_OK: u8 = 0;
const ACK_ERROR: u8 = 1;

/// The control queue of a device.
pub(super) struct ControlQueue<'a> {
    pub(super) device: &'a Device,
}

impl ControlQueue<'_> {
    /// Executes the commands in queue `index`, the control queue.
    pub(super) fn control(&self, index: usize) -> Result<Outcome, Misuse> {
        if let Some(end) = self.device.pauses.of_commands(self.device.bus.now()) {
            return Ok(Outcome { later: Some(end), ..Outcome::default() });
        }
        let accepted = self.device.common.lock().accepted();
        if !accepted.contains(Features::CTRL_VQ) {
            return Err(Misuse::ring("the control queue is used, but CTRL_VQ was not negotiated"));
        }
        let mut queue = self.device.queues[index].lock();
        let mut done = false;
        while queue.is_enabled() {
            let Some(chain) = queue.pop(&self.device.memory, accepted.contains(Features::INDIRECT_DESC))?
            else {
                if queue.enable_notifications(&self.device.memory)? {
                    continue;
                }
                break;
            };
            let mut request = Vec::new();
            for &(address, len) in &chain.readable {
                self.device.memory.read(address, len, &mut request)?;
            }
            let Some(&(ack, writable @ 1..)) = chain.writable.last() else {
                return Err(Misuse::ring(
                    "a control command has no writable byte for its status (virtio 5.1.6.5)",
                ));
            };
            let number = self.device.commands.fetch_add(1, Relaxed);
            if let Some(command) = request.first_chunk() {
                *self.device.sent_commands.lock().entry(*command).or_default() += 1;
            }
            let quirks = &self.device.options.quirks;
            let is = |command: Option<[u8; 2]>| command.is_some_and(|command| request.starts_with(&command));
            if self.device.leaves_commands.load(Relaxed)
                || quirks.commands_unanswered_from.is_some_and(|first| number >= first)
                || is(quirks.leaves_command)
            {
                self.device.left_commands.fetch_add(1, Relaxed);
                continue;
            }
            let answer = match request.split_first_chunk::<2>() {
                _ if quirks.commands_refused_from.is_some_and(|first| number >= first) => None,
                _ if is(quirks.refuses_command) => None,
                Some((&[class, _], _)) if *self.device.refused_class.lock() == Some(class) => None,
                Some((&[4, 0], data)) if accepted.contains(Features::MQ) => self.set_pairs(data)?,
                Some((&[4, 1], data)) => self.set_scaling(data, accepted)?,
                Some((&[4, 2], data)) => self.set_hashing(data, accepted)?,
                Some((&[5, 0], data)) if accepted.contains(Features::CTRL_GUEST_OFFLOADS) => {
                    self.set_guest_offloads(data, accepted)
                }
                Some((&[6, 3], data)) => match self.interrupt_parameters(data, accepted) {
                    Some(result) if writable as usize > result.len() => {
                        Some(self.device.memory.write(ack + 1, &result)?)
                    }
                    _ => None,
                },
                Some((&[6, command], data)) => self.coalesce_interrupts(command, data, accepted),
                Some((&[3, 0], [])) => self.device.common.lock().acknowledge_announcement(),
                Some((&[class, command], data)) => {
                    self.device.filter.lock().command(class, command, data, accepted)
                }
                None => None,
            };
            self.device.memory.write(ack, &[if answer.is_some() { ACK_OK } else { ACK_ERROR }])?;
            queue.push(&self.device.memory, chain.head, 1, self.device.used_quirk(index))?;
            done = true;
        }
        let interrupt = done && queue.needs_interrupt(&self.device.memory)?;
        Ok(Outcome { interrupt, ..Outcome::default() })
    }

    /// Sets which offloads of received frames are in force; `None` if the driver has not accepted one of them.
    fn set_guest_offloads(&self, data: &[u8], accepted: Features) -> Option<()> {
        let wanted = Features(u64::from_le_bytes(data.try_into().ok()?));
        if wanted.and(accepted).and(Features::GUEST_OFFLOADS) != wanted {
            return None;
        }
        *self.device.guest_offloads.lock() = wanted;
        Some(())
    }

    /// Sets how interrupts are coalesced: of all transmit queues, of all receive queues, or of one queue. `None` if the driver has not
    /// accepted the command, or the queue is none of these or not enabled.
    fn coalesce_interrupts(&self, command: u8, data: &[u8], accepted: Features) -> Option<()> {
        let needed = if command < 2 { Features::NOTF_COAL } else { Features::VQ_NOTF_COAL };
        if !accepted.contains(needed) {
            return None;
        }
        let role_of = |queue| self.device.common.lock().role(queue);
        let set_all = |of| {
            let parameters = Parameters::parse(data)?;
            self.device.interrupt_coalescing.lock().set_all(of, parameters, role_of);
            Some(())
        };
        match command {
            0 => set_all(Role::Transmit(0)),
            1 => set_all(Role::Receive(0)),
            2 => {
                let (queue, data) = self.enabled_queue(data)?;
                let parameters = Parameters::parse(data)?;
                self.device.interrupt_coalescing.lock().set(queue, parameters);
                Some(())
            }
            _ => None,
        }
    }

    /// Returns how a queue coalesces interrupts; `None` as above.
    fn interrupt_parameters(&self, data: &[u8], accepted: Features) -> Option<[u8; 8]> {
        let (queue, _) = self.enabled_queue(data).filter(|_| accepted.contains(Features::VQ_NOTF_COAL))?;
        Some(self.device.interrupt_coalescing.lock().get(queue).bytes())
    }

    /// Parses the number of an enabled receive or transmit queue, and returns the data after it.
    fn enabled_queue<'d>(&self, data: &'d [u8]) -> Option<(usize, &'d [u8])> {
        let (&[low, high, 0, 0], data) = data.split_first_chunk()? else { return None };
        let queue = usize::from(u16::from_le_bytes([low, high]));
        let role = self.device.common.lock().role(queue);
        role.filter(|role| *role != Role::Control)?;
        let is_enabled = self.device.queues[queue].lock().is_enabled();
        is_enabled.then_some((queue, data))
    }

    /// Sets the number of queue pairs in use; `None` if the device has fewer.
    fn set_pairs(&self, data: &[u8]) -> Result<Option<()>, Misuse> {
        let Ok(pairs) = <[u8; 2]>::try_from(data).map(u16::from_le_bytes) else { return Ok(None) };
        if !(1..=self.device.options.pairs).contains(&pairs) {
            return Ok(None);
        }
        if !self.device.common.lock().has_enabled(pairs.into()) {
            return Err(Misuse::ring(format!(
                "{pairs} queue pairs are used, but not all are enabled (virtio 5.1.6.5.5)"
            )));
        }
        let dropped = self.device.steering.lock().set_pairs(pairs.into());
        self.device.counters.dropped.fetch_add(dropped, Relaxed);
        Ok(Some(()))
    }

    /// Steers by the indirection table of the driver.
    fn set_scaling(&self, data: &[u8], accepted: Features) -> Result<Option<()>, Misuse> {
        if !accepted.contains(Features::RSS) {
            return Err(Misuse::ring("RSS_CONFIG is sent, but RSS was not negotiated (virtio 5.1.6.5.7)"));
        }
        let limits = self.device.common.lock().rss_limits();
        let scaling = Scaling::parse(data, limits, self.device.options.pairs)?;
        let pairs = scaling.pairs();
        if pairs > self.device.options.pairs.into() || !self.device.common.lock().has_enabled(pairs) {
            return Err(Misuse::ring(format!(
                "the indirection table has queue {} of those that are enabled (virtio 5.1.6.5.7)",
                pairs - 1
            )));
        }
        let dropped = self.device.steering.lock().set_scaling(scaling);
        self.device.counters.dropped.fetch_add(dropped, Relaxed);
        Ok(Some(()))
    }

    /// Reports hashes as the driver sets them.
    fn set_hashing(&self, data: &[u8], accepted: Features) -> Result<Option<()>, Misuse> {
        if !accepted.contains(Features::HASH_REPORT) {
            return Err(Misuse::ring(
                "HASH_CONFIG is sent, but HASH_REPORT was not negotiated (virtio 5.1.6.5.6)",
            ));
        }
        let hashing = Hashing::parse(data, self.device.common.lock().rss_limits())?;
        self.device.steering.lock().set_hashing(hashing);
        Ok(Some(()))
    }
}
