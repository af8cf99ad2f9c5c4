// SPDX-License-Identifier: MIT OR Apache-2.0

//! CPU time, which depends little on other load of the machine.
#![allow(unsafe_code, reason = "asks the system")]

use std::time::Duration;

/// Returns the CPU time of the calling thread.
pub fn now() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all threads of this process.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writes during the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Returns the CPU time of the calling thread since `start`.
pub fn since(start: Duration) -> Duration {
    now().saturating_sub(start)
}
