// SPDX-License-Identifier: MIT OR Apache-2.0

//! A ring that a driver must not write: QEMU then sets NEEDS_RESET, and its device does nothing until it is reset.

use std::io;

use trapped_access::Width;

use crate::{
    capabilities::Structures,
    common::{
        DEVICE_STATUS, DRIVER_FEATURE, DRIVER_FEATURE_SELECT, NEEDS_RESET, QUEUE_DESC, QUEUE_DRIVER,
        QUEUE_SELECT, QUEUE_SIZE,
    },
    qtest::Qtest,
};

/// RING_PACKED, in the upper half of the features.
const RING_PACKED: u64 = 1 << (34 - 32);
/// Offsets in the available ring of a split ring: its index, and its entries. (virtio §5)
const AVAILABLE_INDEX: u64 = 2;
const AVAILABLE: u64 = 4;
/// Not the number of a descriptor.
const NO_DESCRIPTOR: u64 = 0xffff;
/// Descriptor of a packed ring: its size, the offset of length, ID and flags, and flags. (virtio §6)
const DESCRIPTOR: u64 = 16;
const LENGTH: u64 = 8;
const INDIRECT: u64 = 1 << 2;
const FLAG_AVAILABLE: u64 = 1 << 7;
const FLAG_USED: u64 = 1 << 15;

/// Not the length of a table of descriptors, but long enough for a frame with its header: QEMU 7.2 aborts at a shorter one, and the driver
/// may make one of a descriptor whose flags it writes last.
const NO_TABLE: u64 = 12 + 60 + 1;

/// How often the status is read.
const READS: usize = 20;

/// Damages the ring of transmit queue `queue` in memory and notifies the queue. Entries of a split ring name no descriptor;
/// each descriptor of a packed one is a table with a part of a descriptor, which needs the feature INDIRECT_DESC: of this round of the ring if
/// `attempt` is even, otherwise of the next one. Returns whether the device has set NEEDS_RESET.
///
/// # Errors
/// When QEMU does not reply.
pub fn damage(device: &Structures, qtest: &mut Qtest, queue: u64, attempt: usize) -> io::Result<bool> {
    let common = device.common.address;
    let selected = qtest.read(common + QUEUE_SELECT, Width::Word)?;
    qtest.write(common + QUEUE_SELECT, Width::Word, queue)?;
    let size = qtest.read(common + QUEUE_SIZE, Width::Word)?;
    let mut address = |offset| {
        let low = qtest.read(common + offset, Width::Dword)?;
        Ok::<_, io::Error>(qtest.read(common + offset + 4, Width::Dword)? << 32 | low)
    };
    let (descriptors, driver) = (address(QUEUE_DESC)?, address(QUEUE_DRIVER)?);
    qtest.write(common + QUEUE_SELECT, Width::Word, selected)?;
    let half = qtest.read(common + DRIVER_FEATURE_SELECT, Width::Dword)?;
    qtest.write(common + DRIVER_FEATURE_SELECT, Width::Dword, 1)?;
    let is_packed = qtest.read(common + DRIVER_FEATURE, Width::Dword)? & RING_PACKED != 0;
    qtest.write(common + DRIVER_FEATURE_SELECT, Width::Dword, half)?;
    if is_packed {
        let flags = INDIRECT | if attempt.is_multiple_of(2) { FLAG_AVAILABLE } else { FLAG_USED };
        for number in 0..size {
            let at = descriptors + number * DESCRIPTOR + LENGTH;
            qtest.write(at, Width::Qword, flags << 48 | number << 32 | NO_TABLE)?;
        }
    } else {
        for number in 0..size {
            qtest.write(driver + AVAILABLE + 2 * number, Width::Word, NO_DESCRIPTOR)?;
        }
        let index = qtest.read(driver + AVAILABLE_INDEX, Width::Word)?;
        qtest.write(driver + AVAILABLE_INDEX, Width::Word, index + 1)?;
    }
    let register = device.notify.address + queue * device.multiplier;
    qtest.write(register, Width::Word, queue)?;
    for _ in 0..READS {
        if qtest.read(common + DEVICE_STATUS, Width::Byte)? & NEEDS_RESET != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
