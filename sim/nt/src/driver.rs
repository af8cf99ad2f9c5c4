// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loading, starting and unloading drivers, and the checks for leaks after one is unloaded.

use std::{
    mem::transmute,
    path::Path,
    sync::{Arc, Weak},
};

use ndk_abi::nt::{DRIVER_INITIALIZE, DRIVER_OBJECT, DRIVER_UNLOAD, STATUS_SUCCESS, UNICODE_STRING};
use parking_lot::Mutex;

use crate::{
    guest::Guest,
    host::Host,
    image::{Image, LoadError, call::call, frame::Walk},
    import::missing::{missing_import, unlisted_function},
    nt::{io::device, system_threads, work},
    services::{Services, Slot},
    thread::current::current,
    verifier::{
        codes::BugCheck,
        report::finding,
        rules::{self, broken},
        tolerance::{Tolerance, Tolerances},
    },
};

/// The drivers of a host, in the order they were loaded; unloaded ones included.
static DRIVERS: Slot<Mutex<Vec<Arc<Driver>>>> = Slot::new();

/// Adds the state of this module to a new host.
pub(crate) fn install(services: &mut Services) {
    services.add(&DRIVERS, Mutex::default());
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

/// Configuration of a driver.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Name of its service: the last component of its registry path.
    pub service: String,
    /// Faults of the image that are recorded, but are no violations.
    pub tolerate: Tolerances,
}

impl DriverOptions {
    /// Returns options for a driver of which no fault is tolerated.
    #[must_use]
    pub fn new(service: &str) -> Self {
        Self { service: service.to_owned(), tolerate: Tolerances::NONE }
    }

    #[must_use]
    pub fn tolerate(mut self, tolerate: Tolerances) -> Self {
        self.tolerate = tolerate;
        self
    }
}

/// Life of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverState {
    /// Its image is loaded; `DriverEntry` was not called.
    Loaded,
    /// From the call of `DriverEntry` on.
    Started,
    /// Its unload routine has returned, or its `DriverEntry` has failed. It cannot start again.
    Unloaded,
}

/// A driver: an image with its driver object.
pub struct Driver {
    host: Weak<Host>,
    options: DriverOptions,
    image: Arc<Image>,
    page: Guest<u8>,
    state: Mutex<DriverState>,
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
    /// Loads the image of a driver and makes its driver object. The driver does not start.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_driver(
        self: &Arc<Self>,
        path: &Path,
        options: DriverOptions,
    ) -> Result<Arc<Driver>, LoadError> {
        let image = self.load_image(path, options.tolerate, (missing_import, unlisted_function))?;
        let Some(page) = self.memory.allocate(1) else {
            return Err(LoadError::Refused("the host has no memory left".to_owned()));
        };
        let driver = Driver {
            host: Arc::downgrade(self),
            options,
            image,
            page,
            state: Mutex::new(DriverState::Loaded),
        };
        driver.write_object();
        device::prepare_driver(self, driver.object());
        let driver = Arc::new(driver);
        self.state(&DRIVERS).lock().push(driver.clone());
        Ok(driver)
    }

    /// Returns all drivers, in the order they were loaded, unloaded ones included.
    #[must_use]
    pub fn drivers(&self) -> Vec<Arc<Driver>> {
        self.state(&DRIVERS).lock().clone()
    }
}

impl Driver {
    /// Returns the name of the service.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.options.service
    }

    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    #[must_use]
    pub fn state(&self) -> DriverState {
        *self.state.lock()
    }

    /// Returns the address of the driver object.
    #[must_use]
    pub fn object(&self) -> Guest<DRIVER_OBJECT> {
        self.page.field(layout::OBJECT)
    }

    fn registry_path(&self) -> Guest<UNICODE_STRING> {
        self.page.field(layout::PATH_STRING)
    }

    fn write_object(&self) {
        let (page, object, image, service) = (self.page, self.object(), &self.image, self.service());
        object.field::<i16>(member::TYPE).write(4);
        object.field::<i16>(member::SIZE).write(i16::try_from(size_of::<DRIVER_OBJECT>()).unwrap_or(0));
        object.field::<usize>(member::DRIVER_START).write(image.base());
        object.field::<u32>(member::DRIVER_SIZE).write(u32::try_from(image.size()).unwrap_or(0));
        object.field::<usize>(member::DRIVER_EXTENSION).write(page.address() + layout::EXTENSION);
        object.field::<usize>(member::DRIVER_INIT).write(image.entry());
        page.field::<usize>(layout::EXTENSION).write(object.address());
        let name = format!(r"\Driver\{service}");
        write_string(object.field(member::DRIVER_NAME), page.field(layout::NAME), &name);
        let path = format!(r"\Registry\Machine\System\CurrentControlSet\Services\{service}");
        write_string(self.registry_path(), page.field(layout::PATH), &path);
    }

    /// Returns the driver's host.
    ///
    /// # Panics
    /// On a thread of another host: drivers are started and unloaded on their own.
    fn own_host(&self) -> Arc<Host> {
        let host = current().host().clone();
        assert!(std::ptr::eq(Arc::as_ptr(&host), self.host.as_ptr()), "a thread of another host");
        host
    }

    /// Calls `DriverEntry`, from a thread of the driver's host; returns its status. The sections that can be
    /// discarded are inaccessible afterwards.
    ///
    /// # Panics
    /// When the driver was started before, or on a thread of another host.
    pub fn start(&self) -> i32 {
        let host = self.own_host();
        let before = std::mem::replace(&mut *self.state.lock(), DriverState::Started);
        assert_eq!(before, DriverState::Loaded, "a driver starts once");
        // SAFETY: the entry point of a native image is its DriverEntry.
        let entry: DRIVER_INITIALIZE = unsafe { transmute(self.image.entry()) };
        let (object, path) = (self.object(), self.registry_path());
        // SAFETY: the arguments of a DriverEntry.
        let status = call("DriverEntry", || unsafe { entry(object.as_ptr(), path.as_ptr()) });
        self.image.discard_sections();
        if status < STATUS_SUCCESS {
            self.end(&host);
        } else {
            device::driver_started(&host, self.object());
        }
        status
    }

    /// Calls the unload routine, from a thread of the driver's host, and checks for leaks. While files of the
    /// driver's devices are open this is put off, as on Windows, until the last of them is closed.
    ///
    /// # Panics
    /// When the driver does not run, or on a thread of another host.
    pub fn unload(self: &Arc<Self>) {
        let host = self.own_host();
        assert_eq!(self.state(), DriverState::Started, "a driver is unloaded that does not run");
        let this = self.clone();
        if !device::put_off_unload(&host, self.object(), move || this.unload_now()) {
            self.unload_now();
        }
    }

    fn unload_now(&self) {
        let host = self.own_host();
        let unload = self.object().field::<usize>(member::DRIVER_UNLOAD).read();
        if unload == 0 {
            broken(
                rules::UNLOAD,
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "the driver cannot be unloaded: DriverUnload is not set in its driver object",
            );
        }
        // SAFETY: the driver (or NDIS for it) stored its unload routine there.
        let unload: DRIVER_UNLOAD = unsafe { transmute(unload) };
        // SAFETY: the driver object that was passed to DriverEntry.
        call("DriverUnload", || unsafe { unload(self.object().as_ptr()) });
        self.end(&host);
    }

    /// Reports what the driver left behind, and makes its code inaccessible.
    fn end(&self, host: &Host) {
        work::wait_for_io_items(host, |routine| self.image.contains(routine));
        system_threads::wait_for_threads(host, |routine| self.image.contains(routine));
        *self.state.lock() = DriverState::Unloaded;
        device::driver_ended(host, self.object());
        host.memory.free(self.page, 1);
        self.image.make_sections_resident(&host.memory.paged);
        self.image.discard();
        let memory = &host.memory;
        let held_back = memory.pool.release_held(|block| self.owns(block.stack));
        for address in held_back {
            let _ = memory.pool.free(&memory.physical, &memory.space, address, None);
        }
        if let Some(pending) = host.pending_after_unload(&self.image) {
            let code = BugCheck::DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS;
            finding(code, format!("the driver unloaded with {pending}"), Walk::default(), false);
        }
        self.check_leaks(host);
    }

    /// Returns whether this driver's code made the allocation whose stack this is.
    fn owns(&self, stack: Walk) -> bool {
        stack.innermost().is_some_and(|address| self.image.contains(address))
    }

    fn check_leaks(&self, host: &Host) {
        let pages = || rules::UNLOAD.pages.replace('`', "");
        let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
        let tolerated = self.options.tolerate.contains(Tolerance::Leaks);
        let name = self.image.name();
        let blocks: Vec<_> =
            host.memory.pool.blocks().into_iter().filter(|block| self.owns(block.stack)).collect();
        for block in blocks.iter().take(REPORTED_LEAKS) {
            let text = format!(
                "pool leak: {name} unloaded without freeing block {} of {} bytes, tag '{}' (source: WDK, {})",
                block.sequence,
                block.size,
                block.tag,
                pages()
            );
            finding(code, text, block.stack, tolerated);
        }
        if blocks.len() > REPORTED_LEAKS {
            let bytes: usize = blocks.iter().map(|block| block.size).sum();
            let text = format!("pool leak: {} blocks in all, {bytes} bytes", blocks.len());
            finding(code, text, Walk::default(), tolerated);
        }
        let objects = host.objects.list();
        for object in objects.iter().filter(|object| self.owns(object.stack)).take(REPORTED_LEAKS) {
            let text = format!(
                "leak: {name} unloaded without releasing object {1} of {0} (source: WDK, {2})",
                object.kind,
                object.sequence,
                pages()
            );
            finding(code, text, object.stack, tolerated);
        }
        let memory = &host.memory;
        if let Err(misuse) = memory.pool.check_freed(&memory.physical, &memory.space) {
            finding(misuse.code, misuse.text, Walk::default(), false);
        }
    }
}
