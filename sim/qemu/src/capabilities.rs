// SPDX-License-Identifier: MIT OR Apache-2.0

//! The places of the device's structures, by its PCI capabilities. (virtio §1)

use std::io;

use device_sim::function::Bar;
use trapped_access::Width;

use crate::pci::{Address, Firmware};

const POWER: u8 = 0x01;
const VENDOR: u8 = 0x09;
const MSIX: u8 = 0x11;

/// `cfg_type` of virtio's capabilities.
const COMMON: u64 = 1;
const NOTIFY: u64 = 2;
const ISR: u64 = 3;

/// Offsets in virtio's capabilities.
const CFG_TYPE: u16 = 3;
const BAR: u16 = 4;
const OFFSET: u16 = 8;
const LENGTH: u16 = 12;
const MULTIPLIER: u16 = 16;

/// A structure in a BAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Structure {
    pub bar: u8,
    /// Offset in the BAR, and length in bytes.
    pub offset: u64,
    pub len: u64,
    /// Bus address.
    pub address: u64,
}

impl Structure {
    /// Returns the offset in the structure of byte `offset` of `bar`, if it is there.
    #[must_use]
    pub fn contains(&self, bar: u8, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.offset)?;
        (bar == self.bar && inside < self.len).then_some(inside)
    }
}

/// The places of the structures that the machine, not its driver, must know.
#[derive(Clone, Copy, Debug)]
pub struct Structures {
    pub common: Structure,
    pub notify: Structure,
    /// The interrupt status, which a read clears.
    pub isr: Structure,
    /// Bytes between the notification registers of queues.
    pub multiplier: u64,
    /// The MSI-X table.
    pub table: Structure,
    /// Number of MSI-X vectors; 0 without MSI-X.
    pub vectors: u16,
    /// Offset in configuration space of MSI-X's message control.
    pub msix_control: u16,
    /// Offset in configuration space of the power management control; `None` without D3.
    pub power_control: Option<u16>,
}

impl Structures {
    /// Finds the structures of a function whose BARs are `bars`.
    ///
    /// # Errors
    /// When one is missing, or QEMU does not reply.
    pub fn find(firmware: &mut Firmware<'_>, function: Address, bars: &[Bar]) -> io::Result<Self> {
        let (mut common, mut notify, mut isr) = (None, None, None);
        let (mut table, mut power_control) = (None, None);
        for (id, at) in firmware.capabilities(function)? {
            let mut read = |offset, width| firmware.read(function, at + offset, width);
            match id {
                POWER => power_control = Some(at + 4),
                MSIX => {
                    let vectors = (read(2, Width::Word)? as u16 & 0x7ff) + 1;
                    let place = read(4, Width::Dword)?;
                    let len = 16 * u64::from(vectors);
                    table = Some((structure(bars, place as u8 & 7, place & !7, len)?, vectors, at + 2));
                }
                VENDOR => {
                    let kind = read(CFG_TYPE, Width::Byte)?;
                    if !(COMMON..=ISR).contains(&kind) {
                        continue;
                    }
                    let (bar, offset) = (read(BAR, Width::Byte)? as u8, read(OFFSET, Width::Dword)?);
                    let place = structure(bars, bar, offset, read(LENGTH, Width::Dword)?)?;
                    match kind {
                        COMMON => common = Some(place),
                        NOTIFY => notify = Some((place, read(MULTIPLIER, Width::Dword)?)),
                        _ => isr = Some(place),
                    }
                }
                _ => {}
            }
        }
        let missing = |what: &str| io::Error::other(format!("the device has no {what}"));
        let common = common.ok_or_else(|| missing("common configuration"))?;
        let (notify, multiplier) = notify.ok_or_else(|| missing("notification structure"))?;
        let isr = isr.ok_or_else(|| missing("interrupt status"))?;
        let (table, vectors, msix_control) =
            table.unwrap_or((Structure { bar: 0, offset: 0, len: 0, address: 0 }, 0, 0));
        Ok(Self { common, notify, isr, multiplier, table, vectors, msix_control, power_control })
    }
}

fn structure(bars: &[Bar], number: u8, offset: u64, len: u64) -> io::Result<Structure> {
    let bar = bars.iter().find(|bar| bar.number == number);
    let bar = bar.ok_or_else(|| io::Error::other(format!("the device has no BAR {number}")))?;
    Ok(Structure { bar: number, offset, len, address: bar.start + offset })
}
