// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupt request levels, as far as a miniport runs at them.

/// The level of ordinary threads. Waiting and address resolution are allowed only here.
pub const PASSIVE_LEVEL: u8 = 0;
/// Special kernel APCs are disabled.
pub const APC_LEVEL: u8 = 1;
/// The level of DPCs, timer callbacks and holders of spin locks.
pub const DISPATCH_LEVEL: u8 = 2;
