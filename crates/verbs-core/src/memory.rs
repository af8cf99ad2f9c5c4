// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains, memory regions and windows.
#![allow(unsafe_code, reason = "registers memory of the application with the engine")]

use core::ptr::NonNull;
use std::sync::Arc;

use fallible::Arc as EngineArc;
use roce::{Access, Backing, Pd, Region, WindowType};

use crate::context::Context;
use crate::device::Device;
use crate::error::Error;
use crate::sys;
use crate::users::Users;

/// A protection domain.
#[derive(Debug)]
pub struct ProtectionDomain {
    context: Arc<Context>,
    pd: Pd,
    users: Users,
}

impl ProtectionDomain {
    /// Creates a protection domain.
    #[must_use]
    pub fn new(context: &Arc<Context>) -> Arc<Self> {
        let pd = context.device().engine().create_pd();
        Arc::new(Self { context: Arc::clone(context), pd, users: Users::default() })
    }

    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn device(&self) -> &Device {
        self.context.device()
    }

    pub(crate) fn engine_pd(&self) -> Pd {
        self.pd
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Ends the use of the domain.
    ///
    /// # Errors
    /// [`Error::Busy`] if other objects use it.
    pub fn destroy(&self) -> Result<(), Error> {
        self.users.check_none()
    }
}

/// Memory to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte in this process.
    pub address: usize,
    /// In bytes, at least 1.
    pub length: usize,
    /// Address of the first byte in requests.
    pub base: u64,
    pub access: Access,
}

/// A memory region.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: Arc<ProtectionDomain>,
    region: EngineArc<Region>,
    range: Range,
}

impl MemoryRegion {
    /// Registers memory. Its pages are made present.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is empty, or if peers may change the memory and local requests may not; [`Error::BadAddress`] if a page is not
    /// mapped, or not writable although it has to be; [`Error::OutOfMemory`].
    ///
    /// # Safety
    /// The memory stays mapped, and writable if `access` has [`Access::LOCAL_WRITE`], until [`MemoryRegion::destroy`] has returned. No
    /// Rust reference to it is live while requests or peers access it.
    pub unsafe fn register(pd: &Arc<ProtectionDomain>, range: &Range) -> Result<Self, Error> {
        // SAFETY: the caller guarantees that the memory stays mapped as long as the region exists.
        let backing = unsafe { backing(range) }?;
        let Range { base, access, .. } = *range;
        let length = backing.length();
        // SAFETY: as above; the region is deregistered by `destroy`.
        let region =
            unsafe { pd.device().engine().memory().register(pd.engine_pd(), base, length, access, backing) }?;
        pd.users.add();
        Ok(Self { pd: Arc::clone(pd), region, range: *range })
    }

    /// Registers other memory, or the same with other rights or in another domain of the device, with the key that the region has. Its pages
    /// are made present.
    ///
    /// # Errors
    /// Those of [`MemoryRegion::register`]; [`Error::Invalid`] if the domain is of another device; [`Error::Busy`] if windows are bound to
    /// the region. It is as before.
    ///
    /// # Safety
    /// As for [`MemoryRegion::register`].
    pub unsafe fn register_again(&mut self, pd: &Arc<ProtectionDomain>, range: &Range) -> Result<(), Error> {
        if !Arc::ptr_eq(pd.context.device(), self.pd.context.device()) {
            return Err(Error::Invalid);
        }
        // SAFETY: the caller guarantees that the memory stays mapped as long as the region exists.
        let backing = unsafe { backing(range) }?;
        let (engine, length) = (pd.device().engine(), backing.length());
        // SAFETY: as above; the region is deregistered by `destroy`.
        self.region = unsafe {
            engine.memory().reregister(
                &self.region,
                pd.engine_pd(),
                range.base,
                length,
                range.access,
                backing,
            )
        }?;
        pd.users.add();
        self.pd.users.remove();
        (self.pd, self.range) = (Arc::clone(pd), *range);
        Ok(())
    }

    /// Returns the key, local and remote.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.region.key()
    }

    /// Returns the memory.
    #[must_use]
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// Deregisters the memory. After the return nothing accesses it.
    ///
    /// # Errors
    /// [`Error::Busy`] if windows are bound to the region.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.region.windows() > 0 {
            return Err(Error::Busy);
        }
        if !self.pd.device().engine().memory().deregister(&self.region) {
            return Err(Error::Invalid);
        }
        self.pd.users.remove();
        Ok(())
    }
}

/// Makes the pages of the memory present, and returns it for the engine.
///
/// # Safety
/// As for [`MemoryRegion::register`].
unsafe fn backing(range: &Range) -> Result<Backing, Error> {
    let Range { address, length, access, .. } = *range;
    let changes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if length == 0 || changes && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::Invalid);
    }
    sys::make_resident(address, length, access.contains(Access::LOCAL_WRITE))?;
    let memory = NonNull::new(core::ptr::with_exposed_provenance_mut(address));
    let memory = memory.ok_or(Error::BadAddress)?;
    // SAFETY: the caller guarantees that the memory stays mapped as long as the region exists.
    Ok(unsafe { Backing::contiguous(memory, length) }?)
}

/// A memory window, bound by work requests.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<ProtectionDomain>,
    window: roce::MemoryWindow,
}

impl MemoryWindow {
    /// Creates a window.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(pd: &Arc<ProtectionDomain>, window_type: WindowType) -> Result<Self, Error> {
        let window = pd.device().engine().memory().create_window(pd.engine_pd(), window_type)?;
        pd.users.add();
        Ok(Self { pd: Arc::clone(pd), window })
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.window.key()
    }

    /// Destroys the window. After the return nothing is accessed through it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was destroyed before.
    pub fn destroy(&self) -> Result<(), Error> {
        if !self.pd.device().engine().memory().destroy_window(&self.window) {
            return Err(Error::Invalid);
        }
        self.pd.users.remove();
        Ok(())
    }
}
