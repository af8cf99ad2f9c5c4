// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver of a [`Fake`] device.

use std::ops::ControlFlow;
use std::sync::MutexGuard;
use std::time::Duration;

use virtio_net::{Control, Error, FrameInfo, Nic, Polled, ReceiveQueue, TransmitQueue};

use super::{Device, Fake, QueueReset};

impl Fake {
    /// Returns how many registers the driver has read.
    pub fn register_reads(&self) -> u64 {
        self.lock().register_reads
    }

    /// Returns the number of queues that the driver has enabled.
    pub fn enabled(&self) -> usize {
        self.lock().queues.iter().filter(|queue| queue.is_enabled()).count()
    }

    /// Ends the reset of a queue, and those that follow at once.
    pub fn end_queue_reset(&self) {
        let mut device = self.lock();
        device.quirks.reset = QueueReset::After(Duration::ZERO);
        device.queue_reset = None;
    }

    /// Takes the numbers of the queues that the driver has reset.
    pub fn queue_resets(&self) -> Vec<usize> {
        std::mem::take(&mut self.lock().queue_resets)
    }

    pub(super) fn read_register(&self) -> MutexGuard<'_, Device> {
        let mut device = self.lock();
        device.register_reads += 1;
        device
    }
}

/// A device after bring-up; reset before its queues are dropped.
pub struct Driver {
    pub nic: Option<Nic<Fake, Fake>>,
    pub control: Control<Fake, Fake>,
}

impl Driver {
    pub fn nic(&mut self) -> &mut Nic<Fake, Fake> {
        self.nic.as_mut().unwrap()
    }

    /// The receive queue of the first pair.
    pub fn receive(&mut self) -> &mut ReceiveQueue<Fake, Fake> {
        &mut self.nic().pairs[0].receive
    }

    /// Polls the receive queue of the first pair, until `budget` buffers are used up.
    pub fn poll(&mut self, budget: u32, mut sink: impl FnMut(&mut [u8], FrameInfo)) -> Result<Polled, Error> {
        self.receive().poll(budget, |frame, info| {
            sink(frame, info);
            ControlFlow::Continue(())
        })
    }

    /// The transmit queue of the first pair.
    pub fn transmit(&mut self) -> &mut TransmitQueue<Fake, Fake> {
        &mut self.nic().pairs[0].transmit
    }

    /// Resets the device, and brings it back with the queues that it had.
    pub fn restart(&mut self) -> Result<(), Error> {
        let Self { nic: Some(nic), control } = self else { panic!("a driver has queues") };
        control.renegotiate()?;
        control.reassign_config_vector(nic.vectors.of_config())?;
        for (number, pair) in nic.pairs.iter_mut().enumerate() {
            let [receive, transmit] = nic.vectors.of_pair(number as u16);
            pair.receive.reprogram(control, receive)?;
            pair.transmit.reprogram(control, transmit)?;
        }
        nic.idle.reprogram(control)?;
        if let Some(commands) = nic.commands.as_deref_mut() {
            commands.reprogram(control)?;
        }
        nic.start(control)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.control.reset();
        self.nic = None;
    }
}
