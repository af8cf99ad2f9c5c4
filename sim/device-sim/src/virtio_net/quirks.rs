//! What a device may do wrong on purpose.

use super::features::Features;
use crate::pci::BrokenCapabilities;

/// Deviations from what a device should do. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quirks {
    pub capabilities: Option<BrokenCapabilities>,
    /// Offers the legacy interface only.
    pub no_version_1: bool,
    /// Clears FEATURES_OK whatever the driver accepted.
    pub rejects_features: bool,
    /// The status register never returns to 0.
    pub never_resets: bool,
    /// Refuses interrupt vectors from this one on.
    pub refuses_vectors_from: Option<u16>,
    /// Every so many buffers, the used ring says something else.
    pub used: Option<(u32, UsedQuirk)>,
    /// Needs a reset after so many frames sent.
    pub needs_reset_after: Option<u64>,
    /// Leaves its slot after so many frames sent.
    pub removed_after: Option<u64>,
}

/// What a used ring may say instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsedQuirk {
    /// An id that is no descriptor.
    IdOutOfRange,
    /// The id of a buffer returned before.
    IdTwice,
    /// More bytes than the buffer has.
    LengthTooLarge,
    /// Fewer bytes than the header.
    LengthTooSmall,
    /// An index that runs ahead of everything that was made available.
    IndexJump,
}

impl Quirks {
    pub(super) fn offered(&self, features: Features) -> Features {
        if self.no_version_1 { features.without(Features::VERSION_1) } else { features }
    }
}
