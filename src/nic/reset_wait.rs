// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wait for the end of a reset that takes longer than a second: reports it, and notices that the device is gone.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use ndk_abi::ndis::NDIS_HANDLE;
use virtio_net::{Error, RESET_LIMIT};

use super::pci_resources::is_absent;
use crate::etw::{self, table};
use crate::events;
use crate::trace::interface_of;

/// Seconds of a reset that are not reported.
const FIRST: u32 = RESET_LIMIT.as_secs() as u32;

/// Time between two reports, in nanoseconds.
const REPORT_INTERVAL: u64 = 60 * 1_000_000_000;

/// A reset that has not ended, if there is one.
pub struct ResetWait {
    /// When its first second was over, in nanoseconds; 0 without a reset.
    began: AtomicU64,
    /// When it was reported last.
    reported: AtomicU64,
}

impl ResetWait {
    /// Longest time that the start of an adapter waits. Windows ends the system after six minutes in a PnP request (bug check 0x1D5).
    pub const LIMIT: Duration = Duration::from_secs(300);

    pub const fn new() -> Self {
        Self { began: AtomicU64::new(0), reported: AtomicU64::new(0) }
    }

    /// Notes that the reset of an adapter's device has not ended in another second, and reports it, then each minute. Returns the time that it
    /// has taken longer than a second. `PASSIVE_LEVEL`, one caller at a time.
    ///
    /// # Errors
    /// [`Error::Removed`] if configuration space says that the device is gone.
    pub fn go_on(&self, handle: NDIS_HANDLE) -> Result<Duration, Error> {
        if is_absent(handle) {
            self.end();
            return Err(Error::Removed);
        }
        let now = nt::time::now().max(1);
        let before = self.began.load(Ordering::Relaxed);
        let began = if before == 0 { now } else { before };
        self.began.store(began, Ordering::Relaxed);
        let taken = now.saturating_sub(began);
        etw::write(None, || table::DeviceWaited {
            interface: interface_of(handle),
            wait: "reset, beyond its first second",
            milliseconds: u32::try_from(taken / 1_000_000).unwrap_or(u32::MAX),
        });
        if before == 0 || now.saturating_sub(self.reported.load(Ordering::Relaxed)) >= REPORT_INTERVAL {
            self.reported.store(now, Ordering::Relaxed);
            let seconds = u32::try_from(taken / 1_000_000_000).unwrap_or(u32::MAX);
            events::write(handle, events::table::RESET_LATE, [seconds.saturating_add(FIRST), 0]);
        }
        Ok(Duration::from_nanos(taken))
    }

    /// Notes that no reset is waited for.
    pub fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }
}
