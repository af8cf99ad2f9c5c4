//! The clock.

use crate::sys;

/// Nanoseconds since boot, never going backwards. Callable at any IRQL.
pub fn now() -> u64 {
    sys::interrupt_time().saturating_mul(100)
}
