//! Interrupt request levels, as far as a miniport meets them.

use crate::sys;

/// Threads run here; waiting and address resolution are allowed only here.
pub const PASSIVE_LEVEL: u8 = 0;
/// Special kernel APCs are held off.
pub const APC_LEVEL: u8 = 1;
/// DPCs, timer callbacks and holders of spin locks run here.
pub const DISPATCH_LEVEL: u8 = 2;

/// The IRQL of the calling processor. Callable at any level.
pub fn current() -> u8 {
    sys::irql()
}

/// Debug builds stop when the caller is above `limit`.
#[inline]
pub fn debug_assert_at_most(limit: u8) {
    debug_assert!(current() <= limit, "IRQL {} above {limit}", current());
}
