// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of a driver that the verifier records without stopping the host.
//!
//! The sources of a driver under test may not be available. Its known faults are then named, for its image alone;
//! everything else is checked as without them.

use std::{fmt, str::FromStr};

/// A kind of fault that can be tolerated of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tolerance {
    /// A failed assertion (`int 2Ch`): the image continues.
    Assertions,
    /// Access to pool after it was freed: the image's freed blocks keep their contents until it unloads.
    UseAfterFree,
    /// Pool and other objects that are left at unload.
    Leaks,
    /// Pool that is freed with another tag than it was allocated with.
    PoolTags,
    /// NDIS 6.30 or later, and `NDIS_PM_CAPABILITIES` of revision 1.
    PowerRevision,
    /// A disconnected link with a speed or a duplex state.
    DisconnectedLink,
    /// Received NBLs whose `NetBufferListInfo` the miniport has not written since NDIS returned them.
    StaleInfo,
    /// A driver registered with `NdisMRegisterMiniportDriver` a second time.
    RegisteredTwice,
    /// Registration attributes of an adapter set a second time.
    AttributesTwice,
    /// NDK capabilities that change, or are freed, while the adapter exists.
    ChangedCapabilities,
    /// A failed `OpenNDKAdapterHandler` that stores an adapter.
    FailedOpen,
    /// `NdisMNetPnPEvent` while another event of the adapter is delivered.
    NestedEvents,
    /// MDLs of a received frame that are longer than its data.
    LongMdls,
    /// D3 with NDK enabled.
    NdkInSleep,
    /// `OID_PM_PARAMETERS` refused although it enables nothing.
    PmParameters,
    /// `MiniportHaltEx` that returns with open NDK adapters.
    OpenAtHalt,
    /// An OID refused that NDIS sets again after a reset.
    RestoreFailed,
    /// A link speed of 0.
    ZeroSpeed,
    /// Shared memory freed that a running device has for a ring.
    SharedMemoryInUse,
    /// Scatter/gather DMA registered without `NDIS_SG_DMA_64_BIT_ADDRESS`.
    Dma32,
    /// Scatter/gather DMA deregistered while the device runs.
    DmaInUse,
    /// Shared memory of 0 bytes.
    EmptyMemory,
    /// An event or a timer freed or initialized while a thread waits for it.
    AwaitedObject,
    /// `ResolveIpNetEntry2` in a work item.
    ResolveInWorkItem,
}

impl Tolerance {
    pub const ALL: [Self; 24] = [
        Self::Assertions,
        Self::UseAfterFree,
        Self::Leaks,
        Self::PoolTags,
        Self::PowerRevision,
        Self::DisconnectedLink,
        Self::StaleInfo,
        Self::RegisteredTwice,
        Self::AttributesTwice,
        Self::ChangedCapabilities,
        Self::FailedOpen,
        Self::NestedEvents,
        Self::LongMdls,
        Self::NdkInSleep,
        Self::PmParameters,
        Self::OpenAtHalt,
        Self::RestoreFailed,
        Self::ZeroSpeed,
        Self::SharedMemoryInUse,
        Self::Dma32,
        Self::DmaInUse,
        Self::EmptyMemory,
        Self::AwaitedObject,
        Self::ResolveInWorkItem,
    ];

    /// Returns the name, as [`Tolerances::from_str`] reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assertions => "assertions",
            Self::UseAfterFree => "use-after-free",
            Self::Leaks => "leaks",
            Self::PoolTags => "pool-tags",
            Self::PowerRevision => "power-revision",
            Self::DisconnectedLink => "disconnected-link",
            Self::StaleInfo => "stale-info",
            Self::RegisteredTwice => "registered-twice",
            Self::AttributesTwice => "attributes-twice",
            Self::ChangedCapabilities => "changed-capabilities",
            Self::FailedOpen => "failed-open",
            Self::NestedEvents => "nested-events",
            Self::LongMdls => "long-mdls",
            Self::NdkInSleep => "ndk-in-sleep",
            Self::PmParameters => "pm-parameters",
            Self::OpenAtHalt => "open-at-halt",
            Self::RestoreFailed => "restore-failed",
            Self::ZeroSpeed => "zero-speed",
            Self::SharedMemoryInUse => "shared-memory-in-use",
            Self::Dma32 => "dma-32",
            Self::DmaInUse => "dma-in-use",
            Self::EmptyMemory => "empty-memory",
            Self::AwaitedObject => "awaited-object",
            Self::ResolveInWorkItem => "resolve-in-work-item",
        }
    }
}

/// A set of faults that are tolerated.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tolerances(u32);

impl Tolerances {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u32::MAX);

    #[must_use]
    pub const fn with(self, fault: Tolerance) -> Self {
        Self(self.0 | 1 << fault as u8)
    }

    #[must_use]
    pub const fn contains(self, fault: Tolerance) -> bool {
        self.0 & 1 << fault as u8 != 0
    }
}

/// A name that is not that of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownTolerance(String);

impl fmt::Display for UnknownTolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Tolerance::ALL.map(Tolerance::name).join(", ");
        write!(f, "'{}' is not a fault that can be tolerated; known: {known}", self.0)
    }
}

impl std::error::Error for UnknownTolerance {}

impl FromStr for Tolerances {
    type Err = UnknownTolerance;

    /// Reads names separated by commas; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, UnknownTolerance> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.into_iter().try_fold(Self::NONE, |set, name| {
            let fault = Tolerance::ALL.into_iter().find(|fault| fault.name() == name);
            fault.map(|fault| set.with(fault)).ok_or_else(|| UnknownTolerance(name.to_owned()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_unknown_ones_refused() {
        let set: Tolerances = "leaks, pool-tags".parse().unwrap();
        let held: Vec<_> = Tolerance::ALL.into_iter().filter(|fault| set.contains(*fault)).collect();
        assert_eq!(held, [Tolerance::Leaks, Tolerance::PoolTags]);
        assert_eq!("".parse(), Ok(Tolerances::NONE));
        let refused = "leaks,everything".parse::<Tolerances>().unwrap_err().to_string();
        assert!(refused.starts_with("'everything' is not a fault"), "{refused}");
    }
}
