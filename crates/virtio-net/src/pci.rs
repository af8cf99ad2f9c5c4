// SPDX-License-Identifier: MIT OR Apache-2.0

//! virtio's structures in PCI configuration space: device ids and the capability list.
//!
//! Reads a snapshot of the first 256 bytes and trusts nothing in it: the list may loop, point outside of it, or
//! describe ranges outside of a BAR. (virtio §1)

use crate::error::{Error, Structure};
use crate::register_map::{capability, header, min_len};

/// Configuration space of a conventional function, in bytes.
pub const CONFIG_LEN: usize = 256;

/// PCI vendor of virtio devices.
pub const VENDOR_ID: u16 = 0x1AF4;
/// Modern network device (0x1040 + device type 1).
pub const DEVICE_ID_MODERN: u16 = 0x1041;
/// Transitional network device; usable if it has the modern structures too.
pub const DEVICE_ID_TRANSITIONAL: u16 = 0x1000;

/// Limit on the length of the capability list.
const MAX_CAPABILITIES: usize = (CONFIG_LEN - header::FIRST_CAPABILITY as usize) / 4;

/// A structure's location, checked to lie inside its BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub bar: u8,
    pub offset: u64,
    pub len: u32,
}

/// Locations of the device's structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub common: Region,
    pub notify: Region,
    /// Bytes between the notification addresses of consecutive `queue_notify_off` values.
    pub notify_multiplier: u32,
    pub isr: Region,
    pub device: Region,
    /// Number of vectors in the MSI-X table; 0 without MSI-X.
    pub msix_vectors: u16,
}

impl Layout {
    /// Finds the structures in the capability list of `config`. `bar_len` returns the length of a memory BAR in bytes,
    /// `None` if the BAR is not mapped.
    ///
    /// Of several capabilities of one type the first usable one is taken: the device lists them in order of preference.
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
        let mut is_virtio = false;
        for entry in Capabilities::new(config)? {
            let entry = entry?;
            match entry.id {
                capability::ID_MSIX => {
                    let control = entry.u16(capability::MSIX_CONTROL).ok_or(Error::BrokenCapabilityList)?;
                    msix_vectors = (control & capability::MSIX_TABLE_SIZE).wrapping_add(1);
                }
                capability::ID_VENDOR => {
                    is_virtio = true;
                    let cfg_type =
                        entry.u8(capability::CFG_TYPE).map(CfgType).ok_or(Error::BrokenCapabilityList)?;
                    let region = |needed| -> Result<Option<Region>, Error> {
                        let place = Place::parse(&entry).ok_or(Error::BrokenCapabilityList)?;
                        Ok(place.region(needed, &bar_len))
                    };
                    match cfg_type {
                        CfgType::COMMON => common = common.or(region(min_len::COMMON)?),
                        CfgType::ISR => isr = isr.or(region(min_len::ISR)?),
                        CfgType::DEVICE => device = device.or(region(min_len::DEVICE)?),
                        CfgType::NOTIFY if notify.is_none() => {
                            if let Some(region) = region(min_len::NOTIFY)? {
                                let multiplier = entry
                                    .u32(capability::NOTIFY_OFF_MULTIPLIER)
                                    .ok_or(Error::BrokenCapabilityList)?;
                                notify = Some((region, multiplier));
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        if !is_virtio {
            return Err(Error::NoCapabilities);
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

/// `cfg_type` of a vendor capability. Types without a constant here are ignored, without reading further: some have another format and may
/// be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CfgType(u8);

impl CfgType {
    const COMMON: Self = Self(1);
    const NOTIFY: Self = Self(2);
    const ISR: Self = Self(3);
    const DEVICE: Self = Self(4);
}

/// The location of a structure, as its capability states it.
struct Place {
    bar: u8,
    offset: u32,
    len: u32,
}

impl Place {
    fn parse(entry: &Capability<'_>) -> Option<Self> {
        Some(Self {
            bar: entry.u8(capability::BAR)?,
            offset: entry.u32(capability::OFFSET)?,
            len: entry.u32(capability::LENGTH)?,
        })
    }

    /// Returns the region if it has at least `needed` bytes and lies inside a mapped BAR.
    fn region(&self, needed: u32, bar_len: impl Fn(u8) -> Option<u64>) -> Option<Region> {
        if self.bar > capability::MAX_BAR || self.len < needed {
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

/// One entry of the list. `bytes` reaches from the id to the end of configuration space; a vendor capability ends at its
/// own length.
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

/// Iterates over the capability list; yields an error after [`MAX_CAPABILITIES`] entries.
struct Capabilities<'a> {
    config: &'a [u8; CONFIG_LEN],
    next: u8,
    steps: usize,
}

impl<'a> Capabilities<'a> {
    fn new(config: &'a [u8; CONFIG_LEN]) -> Result<Self, Error> {
        let space = Capability { id: 0, bytes: config };
        let vendor = space.u16(header::VENDOR_ID).unwrap_or(u16::MAX);
        let status = space.u16(header::STATUS).unwrap_or(0);
        if vendor == u16::MAX {
            return Err(Error::Removed);
        }
        if status & header::STATUS_CAPABILITIES == 0 {
            return Err(Error::NoCapabilities);
        }
        // The low two bits are reserved; software masks them.
        let next = space.u8(header::CAPABILITIES_POINTER).unwrap_or(0) & !3;
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
        if self.next < header::FIRST_CAPABILITY || self.steps > MAX_CAPABILITIES {
            self.next = 0;
            return Some(Err(Error::BrokenCapabilityList));
        }
        self.next = next & !3;
        let bytes = match id {
            // A vendor capability has a length field.
            capability::ID_VENDOR => {
                bytes.get(capability::LEN).and_then(|&len| bytes.get(..usize::from(len)))
            }
            _ => Some(bytes),
        };
        Some(bytes.map(|bytes| Capability { id, bytes }).ok_or(Error::BrokenCapabilityList))
    }
}
