// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starting and unloading a driver, and the checks for leaks after it is unloaded.

use std::{mem::transmute, sync::Arc};

use ndk_abi::nt::{DRIVER_INITIALIZE, DRIVER_OBJECT, DRIVER_UNLOAD, STATUS_SUCCESS, UNICODE_STRING};

use parking_lot::Mutex;

use crate::{
    guest::Guest,
    host::Host,
    image::{call::call, frame::Walk, stack},
    services::{Services, Slot},
    thread::current::current,
    verifier::{codes::BugCheck, report::violation, verdict::Violation},
};

/// The driver that runs on a host.
static DRIVER: Slot<Mutex<Option<Driver>>> = Slot::new();

/// Adds the state of this module to a new host.
pub(crate) fn install(services: &mut Services) {
    services.add(&DRIVER, Mutex::default());
}

/// Number of leaks that are reported individually; the rest is summarized.
const REPORTED_LEAKS: usize = 16;

/// Members of a `DRIVER_OBJECT`.
mod member {
    pub const TYPE: usize = 0x00;
    pub const SIZE: usize = 0x02;
    pub const DRIVER_START: usize = 0x18;
    pub const DRIVER_SIZE: usize = 0x20;
    pub const DRIVER_EXTENSION: usize = 0x30;
    pub const DRIVER_NAME: usize = 0x38;
    pub const DRIVER_INIT: usize = 0x58;
    pub const DRIVER_UNLOAD: usize = 0x68;
}

/// Layout of the page with the arguments of `DriverEntry`.
mod layout {
    pub const OBJECT: usize = 0x000;
    pub const EXTENSION: usize = 0x200;
    pub const NAME: usize = 0x300;
    pub const PATH: usize = 0x600;
    pub const PATH_STRING: usize = 0x580;
}

/// A started driver.
#[derive(Clone, Copy)]
struct Driver {
    page: Guest<u8>,
}

impl Driver {
    fn object(self) -> Guest<DRIVER_OBJECT> {
        self.page.field(layout::OBJECT)
    }
}

/// Writes a counted string at `string` with its characters at `characters`.
fn write_string(string: Guest<UNICODE_STRING>, characters: Guest<u16>, text: &str) {
    let mut length = 0_u16;
    for (index, character) in text.encode_utf16().enumerate() {
        characters.add(index).write(character);
        length += 2;
    }
    string.write(UNICODE_STRING { Length: length, MaximumLength: length + 2, Buffer: characters.as_ptr() });
}

impl Host {
    /// Calls the image's `DriverEntry`, from a thread of this host; returns its status.
    ///
    /// # Panics
    /// Without an image, when a driver runs already, or on a thread of another host.
    pub fn start_driver(&self, service: &str) -> i32 {
        assert!(
            std::ptr::eq(Arc::as_ptr(current().host()), self),
            "drivers are started on a thread of their host"
        );
        let image = self.image().expect("an image is loaded");
        let page = self.memory.allocate(1).expect("a new host has memory");
        let driver = Driver { page };
        let object = driver.object();
        object.field::<i16>(member::TYPE).write(4);
        object.field::<i16>(member::SIZE).write(i16::try_from(size_of::<DRIVER_OBJECT>()).unwrap_or(0));
        object.field::<usize>(member::DRIVER_START).write(image.base());
        object.field::<u32>(member::DRIVER_SIZE).write(u32::try_from(image.size()).unwrap_or(0));
        object.field::<usize>(member::DRIVER_EXTENSION).write(page.address() + layout::EXTENSION);
        object.field::<usize>(member::DRIVER_INIT).write(image.entry());
        page.field::<usize>(layout::EXTENSION).write(object.address());
        write_string(
            object.field(member::DRIVER_NAME),
            page.field(layout::NAME),
            &format!(r"\Driver\{service}"),
        );
        let path = format!(r"\Registry\Machine\System\CurrentControlSet\Services\{service}");
        write_string(page.field(layout::PATH_STRING), page.field(layout::PATH), &path);
        let known = self.state(&DRIVER).lock().replace(driver);
        assert!(known.is_none(), "a driver runs already");
        // SAFETY: the entry point of a native image is its DriverEntry.
        let entry: DRIVER_INITIALIZE = unsafe { transmute(image.entry()) };
        let registry_path = page.field::<UNICODE_STRING>(layout::PATH_STRING);
        // SAFETY: the arguments of a DriverEntry.
        let status = call("DriverEntry", || unsafe { entry(object.as_ptr(), registry_path.as_ptr()) });
        if status < STATUS_SUCCESS {
            self.end_driver();
        }
        status
    }

    /// Calls the driver's unload routine, from a thread of this host, and checks for leaks.
    ///
    /// # Panics
    /// When no driver runs.
    pub fn stop_driver(&self) {
        let driver = self.state(&DRIVER).lock().expect("a driver runs");
        let unload = driver.object().field::<usize>(member::DRIVER_UNLOAD).read();
        if unload == 0 {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "the driver cannot be unloaded: DriverUnload is not set in its driver object",
            );
        }
        // SAFETY: the driver (or NDIS for it) stored its unload routine there.
        let unload: DRIVER_UNLOAD = unsafe { transmute(unload) };
        // SAFETY: the driver object that was passed to DriverEntry.
        call("DriverUnload", || unsafe { unload(driver.object().as_ptr()) });
        self.end_driver();
    }

    /// Reports what the driver left behind, and makes its code inaccessible.
    fn end_driver(&self) {
        let Some(driver) = self.state(&DRIVER).lock().take() else { return };
        self.memory.free(driver.page, 1);
        if let Some(image) = self.image() {
            image.discard();
        }
        self.check_pending();
        self.check_leaks();
    }

    fn check_pending(&self) {
        if let Some(pending) = self.pending_after_unload() {
            let code = BugCheck::DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS;
            self.report_leak(code, format!("the driver unloaded with {pending}"), Walk::default());
        }
    }

    fn check_leaks(&self) {
        let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
        let blocks = self.memory.pool.blocks();
        for block in blocks.iter().take(REPORTED_LEAKS) {
            let text = format!(
                "pool leak: the driver unloaded without freeing block {} of {} bytes, tag '{}'",
                block.sequence, block.size, block.tag
            );
            self.report_leak(code, text, block.stack);
        }
        if blocks.len() > REPORTED_LEAKS {
            let bytes: usize = blocks.iter().map(|block| block.size).sum();
            let text = format!("pool leak: {} blocks in all, {bytes} bytes", blocks.len());
            self.report_leak(code, text, Walk::default());
        }
        for object in self.objects.list().iter().take(REPORTED_LEAKS) {
            let text = format!(
                "leak: the driver unloaded without releasing object {1} of {0}",
                object.kind, object.sequence
            );
            self.report_leak(code, text, object.stack);
        }
        let memory = &self.memory;
        if let Err(misuse) = memory.pool.check_freed(&memory.physical, &memory.space) {
            self.report_leak(misuse.code, misuse.text, Walk::default());
        }
    }

    fn report_leak(&self, code: BugCheck, text: String, stack: Walk) {
        let me = current();
        self.world().record(Violation {
            host: self.name().to_owned(),
            thread: me.name().to_owned(),
            code,
            text,
            irql: me.irql(),
            cpu: me.cpu(),
            stack: stack::name(&stack),
        });
    }
}
