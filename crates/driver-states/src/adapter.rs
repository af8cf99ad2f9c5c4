// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a miniport adapter, as NDIS defines them.

state_table::state_table! {
    /// State of an adapter.
    #[repr(u8)]
    pub enum State {
        /// Not initialized, or halted.
        Halted,
        /// `MiniportInitializeEx` runs.
        Initializing,
        /// OID requests are handled; no frame passes between NDIS and the device. RDMA runs.
        Paused,
        /// `MiniportRestart` runs.
        Restarting,
        /// Frames pass.
        Running,
        /// The pause waits for received frames that the stack still holds.
        Pausing,
    }
    /// Events of an adapter.
    pub enum Event {
        Initialize: Halted => Initializing;
        InitializeFailed: Initializing => Halted;
        Initialized: Initializing => Paused;
        Restart: Paused => Restarting;
        Restarted: Restarting => Running;
        Pause: Running => Pausing;
        Paused: Pausing => Paused;
        Halt: Paused => Halted;
    }
}
