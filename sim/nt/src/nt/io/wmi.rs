// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration for management requests (WMI): accepted, and none is ever sent.

use crate::imports;

use ndk_abi::nt::STATUS_SUCCESS;

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Registers a device or, with the highest bit of `action`, a callback; or removes the registration.
    [<= PASSIVE_LEVEL]
    fn IoWMIRegistrationControl(device: usize, action: u32) -> i32 {
        let _ = (device, action);
        STATUS_SUCCESS
    }
}
