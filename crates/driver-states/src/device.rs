// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of the device, as the driver sees it.

state_table::state_table! {
    /// State of a device.
    #[repr(u8)]
    pub enum DeviceState {
        /// The device moves frames.
        Running,
        /// The device reported an error or violated a ring's format. It must be reset.
        Failed,
        /// The device was reset and lost its state, or is about to lose it in a low-power state. No register is accessed.
        Stopped,
        /// The device was removed, or was given up.
        Absent,
    }
    /// Events of a device.
    pub enum DeviceEvent {
        Fail: Running => Failed;
        Stop: Running | Failed => Stopped;
        Start: Stopped => Running;
        Remove: Running | Failed | Stopped => Absent;
    }
}
