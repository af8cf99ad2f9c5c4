// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processor time of a thread: what its work costs, whoever else wants the processor meanwhile.
#![allow(unsafe_code, reason = "asks the system")]

use std::time::Duration;

/// Processor time of the calling thread so far.
pub fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is there to be written to for the length of the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(result, 0, "Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Processor time of the calling thread since `start`.
pub fn since(start: Duration) -> Duration {
    now().saturating_sub(start)
}
