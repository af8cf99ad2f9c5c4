// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sleep of a thread that waits for something that has no event.

use ndk_abi::ndis::NdisMSleep;

/// Sleeps for at least this time, on Windows until a tick of the clock. The caller is at `PASSIVE_LEVEL`.
pub fn sleep(microseconds: u32) {
    // SAFETY: PASSIVE_LEVEL, as this function asks for.
    unsafe { NdisMSleep(microseconds) };
}
