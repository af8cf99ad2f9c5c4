// SPDX-License-Identifier: MIT OR Apache-2.0

//! Misbehavior of a device that begins while a driver uses it. [Quirks](super::Quirks) are there from the start.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    device::Device,
    features::Features,
    options::{Role, receive_index},
    quirks::UsedQuirk,
};

/// Makes a device misbehave, until a reset or [`Nic::behave`](super::Nic::behave).
pub struct Misbehavior<'a> {
    device: &'a Device,
}

impl Device {
    /// Returns what makes the device misbehave.
    #[must_use]
    pub const fn misbehavior(&self) -> Misbehavior<'_> {
        Misbehavior { device: self }
    }
}

impl Misbehavior<'_> {
    /// From now on the device takes no frames out of the transmit queue of a pair, until that or the device is reset.
    pub fn hang(&self, pair: usize) {
        self.device.hung[pair].store(true, Relaxed);
    }

    /// Returns whether [`hang`](Self::hang) is in effect for the transmit queue of a pair.
    #[must_use]
    pub fn is_hung(&self, pair: usize) -> bool {
        self.device.hung[pair].load(Relaxed)
    }

    /// From now on the status register does not return to 0: the device goes on with what it does.
    pub fn stop_resetting(&self) {
        self.device.common.lock().stop_resetting();
    }

    /// From now on the device needs a reset whenever the driver sets DRIVER_OK.
    pub fn fail_starts(&self) {
        self.device.fails_starts.store(true, Relaxed);
    }

    /// From now on the status register reads all ones, as that of a removed device, and a reset has no effect: the device goes on with
    /// what it does.
    pub fn hide_status(&self) {
        self.device.common.lock().hide_status();
    }

    /// From now on the device answers no command of the control queue, until it is reset.
    pub fn leave_commands(&self) {
        self.device.leaves_commands.store(true, Relaxed);
    }

    /// Returns the number of commands since the last reset that the device has left without an answer.
    #[must_use]
    pub fn left_commands(&self) -> u32 {
        self.device.left_commands.load(Relaxed)
    }

    /// Corrupts the used ring's entry of the next buffer of a queue, unless that or the device is reset before. An index that jumps
    /// does so until then.
    pub fn corrupt(&self, role: Role, quirk: UsedQuirk) {
        if let Some(index) = self.index_of(role) {
            self.device.lies[index].lock().used = Some(quirk);
        }
    }

    /// Writes this number of buffers to the header of the next frame that a pair receives into one buffer, unless its queue or the
    /// device is reset before.
    pub fn misstate_buffers(&self, pair: usize, buffers: u16) {
        self.device.lies[receive_index(pair)].lock().num_buffers = Some(buffers);
    }

    /// Offers these features no more, nor those that need one of them, after the next reset, until the device is replaced by
    /// another.
    pub fn withdraw(&self, features: Features) {
        self.device.common.lock().withdraw(features);
    }

    /// Returns the index of a queue with the features in force.
    fn index_of(&self, role: Role) -> Option<usize> {
        let common = self.device.common.lock();
        (0..self.device.queues.len()).find(|&index| common.role(index) == Some(role))
    }

    /// Refuses commands of this class of the control queue from now on.
    pub fn refuse_class(&self, class: u8) {
        *self.device.refused_class.lock() = Some(class);
    }

    /// Sets whether the generation of the configuration differs at each read; see
    /// [`Quirks::unsteady_config`](super::Quirks::unsteady_config).
    pub fn set_config_unsteady(&self, unsteady: bool) {
        self.device.common.lock().set_config_unsteady(unsteady);
    }
}
