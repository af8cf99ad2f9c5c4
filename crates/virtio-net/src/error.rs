// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of bring-up and of the rings.

use core::fmt;

use fallible::AllocError;
use state_table::TransitionError;

use crate::state::State;

/// Why a device could not be brought up, or had to be given up.
///
/// The reasons are distinguished because an administrator acts on them differently; the driver
/// maps each to one event in the system log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Reads of configuration space or registers return all ones: the device is gone.
    Removed,
    /// The function has no virtio capability (a legacy device).
    NoCapabilities,
    /// The capability list loops, leaves configuration space or holds a truncated entry.
    BrokenCapabilityList,
    /// No usable capability of this structure: absent, too short, or outside its BAR.
    MissingStructure(Structure),
    /// The device has not finished its reset yet.
    ResetTimeout,
    /// The device does not offer VERSION_1: it has only the legacy interface.
    NoVersion1,
    /// The system remaps DMA, and the device does not offer ACCESS_PLATFORM: it would take addresses for physical ones.
    BypassesIommu,
    /// The device cleared FEATURES_OK: it rejects the accepted features.
    FeaturesRejected,
    /// The device has no queue of this index.
    NoQueue(u16),
    /// The queue size that the device reports is not a power of two, or too large.
    BadQueueSize(u16),
    /// The device refused an interrupt vector for its configuration or this queue.
    VectorRefused,
    /// A queue's notification address lies outside the notification structure.
    NotifyOutOfRange(u16),
    /// DMA memory or pool is exhausted.
    NoMemory,
    /// The used ring contradicts the available ring. The queue stops until a reset.
    BrokenRing(RingFault),
    /// The device reports DEVICE_NEEDS_RESET.
    NeedsReset,
    /// After a reset, the device offers other features, smaller queues or fewer vectors than before.
    Changed,
    /// The configuration changed during each of several reads, so that no consistent one was found.
    UnsteadyConfig,
    /// The device refused to change a filter that it has, so that it does not deliver frames that are wanted.
    CommandRefused,
    /// The step is not allowed in the current state: a defect of the caller.
    OutOfOrder,
}

/// The PCI structures a driver needs, by their `cfg_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    Common,
    Notify,
    Isr,
    Device,
}

/// Inconsistency in the ring that the device caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingFault {
    /// The used index is ahead of the available index; in a packed ring, a descriptor is used that was not made available.
    IndexJump,
    /// The id is not a descriptor of this ring, or its buffer is not outstanding.
    BadId,
    /// The header of a received frame states 0 buffers, or more than the device has returned.
    BadBufferCount,
}

impl From<TransitionError<State>> for Error {
    fn from(_: TransitionError<State>) -> Self {
        Self::OutOfOrder
    }
}

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("the device is gone (registers read all ones)"),
            Self::NoCapabilities => f.write_str("the device has no virtio PCI capability (legacy only)"),
            Self::BrokenCapabilityList => f.write_str("the PCI capability list is broken"),
            Self::MissingStructure(which) => {
                write!(f, "the device has no usable {which} structure")
            }
            Self::ResetTimeout => f.write_str("the device has not finished its reset"),
            Self::NoVersion1 => f.write_str("the device does not offer VERSION_1"),
            Self::BypassesIommu => {
                f.write_str("the system remaps DMA, but the device does not offer ACCESS_PLATFORM")
            }
            Self::FeaturesRejected => f.write_str("the device rejected the accepted features"),
            Self::NoQueue(index) => write!(f, "the device has no queue {index}"),
            Self::BadQueueSize(size) => write!(f, "the device reports a queue size of {size}"),
            Self::VectorRefused => f.write_str("the device refused an interrupt vector"),
            Self::NotifyOutOfRange(index) => {
                write!(f, "the notification address of queue {index} is out of range")
            }
            Self::NoMemory => f.write_str("out of memory"),
            Self::BrokenRing(fault) => write!(f, "the device's used ring is inconsistent: {fault}"),
            Self::NeedsReset => f.write_str("the device asks for a reset"),
            Self::Changed => f.write_str("the device is not the same after its reset"),
            Self::UnsteadyConfig => f.write_str("the device's configuration changes at each read"),
            Self::CommandRefused => f.write_str("the device refused a command of the control queue"),
            Self::OutOfOrder => f.write_str("a bring-up step was called in the wrong state"),
        }
    }
}

impl core::error::Error for Error {}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "common configuration",
            Self::Notify => "notification",
            Self::Isr => "ISR status",
            Self::Device => "device-specific configuration",
        })
    }
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IndexJump => "the used index is ahead of the buffers made available",
            Self::BadBufferCount => "a frame has more buffers than the device has returned",
            Self::BadId => "an element's id is not that of an outstanding buffer",
        })
    }
}

impl core::error::Error for RingFault {}
