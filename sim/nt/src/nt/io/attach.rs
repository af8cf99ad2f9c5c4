// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stacks of devices: requests to a device go to the highest one that is attached, whose driver passes them on.

use ndk_abi::nt::{DEVICE_OBJECT, STATUS_NO_SUCH_DEVICE, STATUS_SUCCESS};

use super::device::{DEVICES, NotAttached};
use crate::{
    Host,
    guest::Guest,
    imports,
    nt::thread_objects,
    thread::current,
    verifier::{BugCheck, Rule, broken, rules},
};

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

/// Attaches a device for `function`; returns the device below, or 0.
fn attach(source: usize, target: usize, function: &str) -> usize {
    let me = current();
    let result = me.host().state(&DEVICES).lock().attach(source, target);
    match result {
        Ok(below) => below.unwrap_or(0),
        Err(reason) => misuse(rules::ATTACHED, format!("{function} of {source:#x}, {reason}")),
    }
}

fn top(host: &Host, device: usize, function: &str) -> usize {
    let top = host.state(&DEVICES).lock().top(device);
    top.map_or_else(
        || misuse(rules::ATTACHED, format!("{function} of {device:#x}, which is no device")),
        |(top, _)| top,
    )
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Puts a device on top of the stack of another; returns the one below it, or null.
    [<= DISPATCH_LEVEL]
    fn IoAttachDeviceToDeviceStack(
        source: Guest<DEVICE_OBJECT>,
        target: Guest<DEVICE_OBJECT>,
    ) -> Guest<DEVICE_OBJECT> {
        Guest::from_address(attach(source.address(), target.address(), "IoAttachDeviceToDeviceStack"))
    }

    /// Puts a device on top of the stack of another; writes the one below it before a request can arrive.
    [<= DISPATCH_LEVEL]
    fn IoAttachDeviceToDeviceStackSafe(
        source: Guest<DEVICE_OBJECT>,
        target: Guest<DEVICE_OBJECT>,
        below: Guest<usize>,
    ) -> i32 {
        let found = attach(source.address(), target.address(), "IoAttachDeviceToDeviceStackSafe");
        below.write(found);
        if found == 0 { STATUS_NO_SUCH_DEVICE } else { STATUS_SUCCESS }
    }

    /// Detaches the device that is attached to `target`.
    [== PASSIVE_LEVEL]
    fn IoDetachDevice(target: Guest<DEVICE_OBJECT>) {
        let me = current();
        let host = me.host();
        let detached = host.state(&DEVICES).lock().detach(target.address());
        match detached {
            Err(NotAttached) => misuse(rules::ATTACHED, format!(
                "IoDetachDevice of {:#x}, to which no device is attached",
                target.address()
            )),
            Ok(None) => {}
            Ok(Some((pages, count))) => host.memory.free(pages, count),
        }
    }

    /// Returns the highest device of the stack of a device, with a reference.
    [<= DISPATCH_LEVEL]
    fn IoGetAttachedDeviceReference(device: Guest<DEVICE_OBJECT>) -> Guest<DEVICE_OBJECT> {
        let me = current();
        let top = top(me.host(), device.address(), "IoGetAttachedDeviceReference");
        thread_objects::reference(me.host(), top);
        Guest::from_address(top)
    }

    /// Returns the highest device of the stack of a device.
    [<= DISPATCH_LEVEL]
    fn IoGetAttachedDevice(device: Guest<DEVICE_OBJECT>) -> Guest<DEVICE_OBJECT> {
        Guest::from_address(top(current().host(), device.address(), "IoGetAttachedDevice"))
    }
}
