// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sleeps, for a thread that polls a condition without an event.

use ndk_abi::ndis::NdisMSleep;

/// Sleeps for at least this time, on Windows until the next clock tick. `PASSIVE_LEVEL`.
pub fn sleep(microseconds: u32) {
    // SAFETY: PASSIVE_LEVEL, as this function asks for.
    unsafe { NdisMSleep(microseconds) };
}
