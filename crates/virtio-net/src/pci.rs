// SPDX-License-Identifier: MIT OR Apache-2.0

//! virtio's structures in PCI configuration space: identity and the capability walk.
//!
//! Works on a snapshot of the first 256 bytes, trusting nothing in it: the list may loop, point outside,
//! or describe ranges that no BAR holds. (virtio §1)

use crate::error::{Error, Structure};

/// Configuration space of a conventional function, in bytes.
pub const CONFIG_LEN: usize = 256;

/// PCI vendor of virtio devices.
pub const VENDOR_ID: u16 = 0x1AF4;
/// Modern network device (0x1040 + device type 1).
pub const DEVICE_ID_MODERN: u16 = 0x1041;
/// Transitional network device; usable if it has the modern structures too.
pub const DEVICE_ID_TRANSITIONAL: u16 = 0x1000;

const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const CAPABILITIES_POINTER: usize = 0x34;
/// Capabilities lie behind the header, four-byte aligned: no walk has more steps than this.
const FIRST_CAPABILITY: u8 = 0x40;
const MAX_CAPABILITIES: usize = (CONFIG_LEN - FIRST_CAPABILITY as usize) / 4;
const CAPABILITY_VENDOR: u8 = 0x09;
const CAPABILITY_MSIX: u8 = 0x11;

/// Least length the driver needs of each structure, in bytes.
const COMMON_LEN: u32 = 0x38;
const NOTIFY_LEN: u32 = 2;
const ISR_LEN: u32 = 1;
const DEVICE_LEN: u32 = 12;

/// One structure in a BAR, checked to lie inside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub bar: u8,
    pub offset: u64,
    pub len: u32,
}

/// Where the device's structures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub common: Region,
    pub notify: Region,
    /// Bytes between the notification addresses of consecutive `queue_notify_off` values.
    pub notify_multiplier: u32,
    pub isr: Region,
    pub device: Region,
    /// Vectors in the MSI-X table; 0 without MSI-X.
    pub msix_vectors: u16,
}

impl Layout {
    /// Walks the capability list of `config`. `bar_len` gives the length of a memory BAR that is mapped.
    ///
    /// Of several capabilities of one kind the first usable one counts: the device lists them by preference.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::NoCapabilities`], [`Error::BrokenCapabilityList`] or
    /// [`Error::MissingStructure`].
    pub fn find(config: &[u8; CONFIG_LEN], bar_len: impl Fn(u8) -> Option<u64>) -> Result<Self, Error> {
        let mut common = None;
        let mut notify = None;
        let mut isr = None;
        let mut device = None;
        let mut msix_vectors = 0;
        for capability in Capabilities::new(config)? {
            let capability = capability?;
            match capability.id {
                CAPABILITY_MSIX => {
                    let control = capability.u16(2).ok_or(Error::BrokenCapabilityList)?;
                    msix_vectors = (control & 0x7FF).wrapping_add(1);
                }
                CAPABILITY_VENDOR => {
                    let structure =
                        VendorCapability::parse(&capability).ok_or(Error::BrokenCapabilityList)?;
                    match structure.cfg_type {
                        CfgType::COMMON => common = common.or(structure.region(COMMON_LEN, &bar_len)),
                        CfgType::ISR => isr = isr.or(structure.region(ISR_LEN, &bar_len)),
                        CfgType::DEVICE => device = device.or(structure.region(DEVICE_LEN, &bar_len)),
                        CfgType::NOTIFY if notify.is_none() => {
                            let region = structure.region(NOTIFY_LEN, &bar_len);
                            let multiplier = capability.u32(16).ok_or(Error::BrokenCapabilityList)?;
                            notify = region.map(|region| (region, multiplier));
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let (notify, notify_multiplier) = notify.ok_or(Error::MissingStructure(Structure::Notify))?;
        Ok(Self {
            common: common.ok_or(Error::MissingStructure(Structure::Common))?,
            notify,
            notify_multiplier,
            isr: isr.ok_or(Error::MissingStructure(Structure::Isr))?,
            device: device.ok_or(Error::MissingStructure(Structure::Device))?,
            msix_vectors,
        })
    }
}

/// `cfg_type` of a vendor capability; unknown ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CfgType(u8);

impl CfgType {
    const COMMON: Self = Self(1);
    const NOTIFY: Self = Self(2);
    const ISR: Self = Self(3);
    const DEVICE: Self = Self(4);
}

struct VendorCapability {
    cfg_type: CfgType,
    bar: u8,
    offset: u32,
    len: u32,
}

impl VendorCapability {
    fn parse(capability: &Capability<'_>) -> Option<Self> {
        Some(Self {
            cfg_type: CfgType(capability.u8(3)?),
            bar: capability.u8(4)?,
            offset: capability.u32(8)?,
            len: capability.u32(12)?,
        })
    }

    /// The region, if it has at least `needed` bytes and lies inside a BAR that is there.
    fn region(&self, needed: u32, bar_len: impl Fn(u8) -> Option<u64>) -> Option<Region> {
        if self.bar > 5 || self.len < needed {
            return None;
        }
        let end = u64::from(self.offset).checked_add(u64::from(self.len))?;
        (end <= bar_len(self.bar)?).then_some(Region {
            bar: self.bar,
            offset: u64::from(self.offset),
            len: self.len,
        })
    }
}

/// One entry of the list: everything from its id byte to the end of configuration space. Its own length, where
/// it has one, limits the accessors.
struct Capability<'a> {
    id: u8,
    bytes: &'a [u8],
}

impl Capability<'_> {
    fn u8(&self, offset: usize) -> Option<u8> {
        self.bytes.get(offset).copied()
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.bytes.get(offset..)?.first_chunk()?))
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes.get(offset..)?.first_chunk()?))
    }
}

/// The capability list, ending after [`MAX_CAPABILITIES`] steps with an error.
struct Capabilities<'a> {
    config: &'a [u8; CONFIG_LEN],
    next: u8,
    steps: usize,
}

impl<'a> Capabilities<'a> {
    fn new(config: &'a [u8; CONFIG_LEN]) -> Result<Self, Error> {
        let space = Capability { id: 0, bytes: config };
        let vendor = space.u16(0).unwrap_or(u16::MAX);
        let status = space.u16(STATUS).unwrap_or(0);
        if vendor == u16::MAX {
            return Err(Error::Removed);
        }
        if status & STATUS_CAPABILITIES == 0 {
            return Err(Error::NoCapabilities);
        }
        // The low two bits are reserved and to be masked.
        let next = space.u8(CAPABILITIES_POINTER).unwrap_or(0) & !3;
        Ok(Self { config, next, steps: 0 })
    }
}

impl<'a> Iterator for Capabilities<'a> {
    type Item = Result<Capability<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == 0 {
            return None;
        }
        self.steps = self.steps.saturating_add(1);
        let bytes = self.config.get(usize::from(self.next)..);
        let (Some(&[id, next, ..]), Some(bytes)) = (bytes, bytes) else {
            self.next = 0;
            return Some(Err(Error::BrokenCapabilityList));
        };
        if self.next < FIRST_CAPABILITY || self.steps > MAX_CAPABILITIES {
            self.next = 0;
            return Some(Err(Error::BrokenCapabilityList));
        }
        self.next = next & !3;
        let bytes = match id {
            // A vendor capability states its own length; nothing beyond it belongs to it.
            CAPABILITY_VENDOR => bytes.get(2).and_then(|&len| bytes.get(..usize::from(len))),
            _ => Some(bytes),
        };
        Some(bytes.map(|bytes| Capability { id, bytes }).ok_or(Error::BrokenCapabilityList))
    }
}
