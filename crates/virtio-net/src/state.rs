// SPDX-License-Identifier: MIT OR Apache-2.0

//! Life cycle of a device. (virtio §3, §16)

//= virtio §3
state_table::state_table! {
    /// Progress of bring-up.
    pub enum State {
        /// Found on the bus, in the state in which an earlier driver left it.
        Found,
        /// `device_status` is 0: the device uses no memory.
        Reset,
        /// ACKNOWLEDGE is set.
        Acknowledged,
        /// DRIVER is set: features and configuration may be read.
        Driver,
        /// FEATURES_OK is set and the device kept it: queues and vectors may be programmed.
        Negotiated,
        /// DRIVER_OK is set: the device uses the queues.
        Live,
        /// FAILED is set, or the device needs a reset. Only a reset leads out of this state.
        Failed,
        /// A reset did not end. The driver accesses registers only for another reset.
        Unresponsive,
        /// Registers read all ones: the device is gone.
        Removed,
    }
    /// Steps of bring-up, and events of a device.
    pub enum Event {
        Reset: Found | Reset | Acknowledged | Driver | Negotiated | Live | Failed | Unresponsive => Reset;
        ResetTimeout: Found | Reset | Acknowledged | Driver | Negotiated | Live | Failed | Unresponsive => Unresponsive;
        Acknowledge: Reset => Acknowledged;
        Drive: Acknowledged => Driver;
        Accept: Driver => Negotiated;
        Start: Negotiated => Live;
        Fail: Reset | Acknowledged | Driver | Negotiated | Live => Failed;
        Remove: Found | Reset | Acknowledged | Driver | Negotiated | Live | Failed | Unresponsive | Removed => Removed;
    }
}
