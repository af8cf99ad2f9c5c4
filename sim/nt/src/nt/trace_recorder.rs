// SPDX-License-Identifier: MIT OR Apache-2.0

//! The in-flight recorder of WPP traces (`WppRecorder.sys`): present, and it records nothing.

use crate::{guest::Guest, imports};

imports! { IMPORTS: "wpprecorder.sys" =>
    /// Starts recording for a driver.
    [<= PASSIVE_LEVEL]
    fn WppAutoLogStart(control: Guest<u8>, driver: usize, registry_path: usize) {
        let _ = (control, driver, registry_path);
    }

    /// Stops recording.
    [<= PASSIVE_LEVEL]
    fn WppAutoLogStop(control: Guest<u8>, driver: usize) {
        let _ = (control, driver);
    }

    /// Records a message; its arguments follow the ones listed.
    [any]
    fn WppAutoLogTrace(control: Guest<u8>, level: u8, flags: u32, message: usize) -> i32 {
        let _ = (control, level, flags, message);
        0
    }

    /// Traces what was recorded to a session that has started.
    [any]
    fn imp_WppRecorderReplay(control: Guest<u8>, session: u64, flags: u32, level: u8) {
        let _ = (control, session, flags, level);
    }
}
