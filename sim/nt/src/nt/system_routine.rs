// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions of the kernel that a driver finds by name.

use std::collections::HashMap;

use ndk_abi::nt::UNICODE_STRING;
use parking_lot::Mutex;

use super::runtime::unicode;
use crate::{
    guest::Guest,
    image::EntryPoints,
    import::table::{Import, Kind},
    imports,
    services::Slot,
    thread::current,
};

pub(super) static SYSTEM_ROUTINES: Slot<SystemRoutines> = Slot::new();

/// The exports of `ntoskrnl.exe`.
pub struct SystemRoutines {
    exports: &'static [&'static [Import]],
    /// By the index of the slice; made when one of its functions is asked for.
    addresses: Mutex<HashMap<usize, EntryPoints>>,
}

impl SystemRoutines {
    #[must_use]
    pub fn new(exports: &'static [&'static [Import]]) -> Self {
        Self { exports, addresses: Mutex::default() }
    }

    /// Returns the address of an export of `ntoskrnl.exe`; 0 when there is none of this name.
    pub(super) fn find(&self, name: &str) -> usize {
        let known = |export: &Import| export.module == "ntoskrnl.exe" && export.name == name;
        let place = self.exports.iter().enumerate().find_map(|(index, slice)| {
            slice.iter().find(|export| known(export)).map(|export| (index, export))
        });
        match place {
            Some((_, export)) if export.kind == Kind::Variable => (export.address)(),
            Some((index, export)) => {
                let mut addresses = self.addresses.lock();
                let slice = addresses
                    .entry(index)
                    .or_insert_with(|| EntryPoints::new(self.exports[index]).expect("memory for code"));
                slice.address(export.name)
            }
            None => 0,
        }
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the address of an export of the kernel or the HAL; null when there is none of this name.
    [<= PASSIVE_LEVEL]
    fn MmGetSystemRoutineAddress(name: Guest<UNICODE_STRING>) -> usize {
        let name = String::from_utf16_lossy(&unicode(name));
        current().host().state(&SYSTEM_ROUTINES).find(&name)
    }
}
