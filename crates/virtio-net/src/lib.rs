// SPDX-License-Identifier: MIT OR Apache-2.0

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]
#![doc = include_str!("../README.md")]

extern crate alloc;

mod buffers;
mod coalesced;
mod common_config;
mod control_queue;
mod error;
mod features;
mod hal;
mod hash;
mod idle;
mod interrupt_status;
mod nic;
mod notify;
mod offload;
mod offload_slots;
mod pair_queue;
pub mod pci;
mod queue;
mod receive;
mod register_map;
mod ring;
mod state;
mod transmit;
mod transport;
mod vectors;
mod wait;

pub use buffers::{HEADER_LEN, MAX_HEADER_LEN};
pub use coalesced::{Coalesced, MAX_COALESCED};
pub use control_queue::{ControlQueue, Hashing, InterruptCoalescing, ReceiveMode, Steering};
pub use error::{Error, RingFault, Structure};
pub use features::{Feature, Features, Policy, TABLE as FEATURES};
pub use hal::{DMA_ALIGNMENT, DmaBlock, Hal, Registers};
pub use hash::{HASH_KEY_LEN, HashTypes, Toeplitz};
pub use idle::IdleQueues;
pub use interrupt_status::{Causes, InterruptStatus};
pub use nic::{Nic, Options, QueuePair};
pub use offload::{
    CoalescedHeader, MAX_HEADERS, MAX_UDP_SEGMENTS, Offload, Protocol, Transport, complete_checksum,
    ipv4_checksum_is_valid, write_ipv4_checksum,
};
pub use offload_slots::MAX_LARGE_FRAME;
pub use pair_queue::PairQueue;
pub use pci::Layout;
pub use receive::{FrameInfo, Polled, ReceiveCounters, ReceiveQueue, receive_buffer_len};
pub use state::{Event, State};
pub use transmit::{MIN_FRAME, TransmitCounters, TransmitQueue};
pub use transport::{
    Control, Duplex, LinkState, NetConfig, NotifyRegister, QueueReset, RESET_LIMIT, RssLimits, Status,
};
pub use vectors::Vectors;
pub use wait::Wait;
