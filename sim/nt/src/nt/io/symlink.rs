// SPDX-License-Identifier: MIT OR Apache-2.0

//! Symbolic links, by which programs name devices.

use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS, UNICODE_STRING};

use super::namespace::NAMESPACE;
use crate::{guest::Guest, imports, nt::runtime::unicode, thread::current};

const LINK: &str = "IoCreateSymbolicLink";

fn text(string: Guest<UNICODE_STRING>) -> String {
    String::from_utf16_lossy(&unicode(string))
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Makes a symbolic link to a device, which need not exist.
    [<= PASSIVE_LEVEL]
    fn IoCreateSymbolicLink(name: Guest<UNICODE_STRING>, target: Guest<UNICODE_STRING>) -> i32 {
        let me = current();
        let host = me.host();
        let (name, target) = (text(name), text(target));
        if target.is_empty() {
            return STATUS_INVALID_PARAMETER;
        }
        let link = host.state(&NAMESPACE).lock().insert_link(&name, &target);
        match link {
            Ok(id) => {
                host.objects.add(LINK, id);
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Removes a symbolic link.
    [<= PASSIVE_LEVEL]
    fn IoDeleteSymbolicLink(name: Guest<UNICODE_STRING>) -> i32 {
        let me = current();
        let host = me.host();
        let name = text(name);
        let link = host.state(&NAMESPACE).lock().remove_link(&name);
        match link {
            Ok(id) => {
                let _ = host.objects.remove(LINK, id);
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }
}
