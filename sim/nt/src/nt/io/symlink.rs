// SPDX-License-Identifier: MIT OR Apache-2.0

//! Symbolic links, by which programs name devices.

use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS, UNICODE_STRING};

use super::namespace::NAMESPACE;
use crate::{Host, guest::Guest, imports, nt::runtime::unicode, thread::current};

const LINK: &str = "IoCreateSymbolicLink";

fn text(string: Guest<UNICODE_STRING>) -> String {
    String::from_utf16_lossy(&unicode(string))
}

/// Makes a symbolic link to a device.
///
/// # Errors
/// The status of the object manager.
pub fn create(host: &Host, name: &str, target: &str) -> Result<(), i32> {
    let id = host.state(&NAMESPACE).lock().insert_link(name, target)?;
    host.objects.add(LINK, id);
    Ok(())
}

/// Removes a symbolic link.
///
/// # Errors
/// The status of the object manager.
pub fn remove(host: &Host, name: &str) -> Result<(), i32> {
    let id = host.state(&NAMESPACE).lock().remove_link(name)?;
    let _ = host.objects.remove(LINK, id);
    Ok(())
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Makes a symbolic link to a device, which need not exist.
    [<= PASSIVE_LEVEL]
    fn IoCreateSymbolicLink(name: Guest<UNICODE_STRING>, target: Guest<UNICODE_STRING>) -> i32 {
        let (name, target) = (text(name), text(target));
        if target.is_empty() {
            return STATUS_INVALID_PARAMETER;
        }
        create(current().host(), &name, &target).err().unwrap_or(STATUS_SUCCESS)
    }

    /// Removes a symbolic link.
    [<= PASSIVE_LEVEL]
    fn IoDeleteSymbolicLink(name: Guest<UNICODE_STRING>) -> i32 {
        remove(current().host(), &text(name)).err().unwrap_or(STATUS_SUCCESS)
    }
}
