// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random numbers of the Cryptography API, Next Generation (`cng.sys`).

use core::ffi::c_void;

use crate::nt::NTSTATUS;

pub const BCRYPT_USE_SYSTEM_PREFERRED_RNG: u32 = 2;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "cng"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn BCryptGenRandom(
        hAlgorithm: *mut c_void,
        pbBuffer: *mut u8,
        cbBuffer: u32,
        dwFlags: u32,
    ) -> NTSTATUS;
}
