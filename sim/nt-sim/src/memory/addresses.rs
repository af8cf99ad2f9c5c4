//! Where the memory of hosts lies in the address space of this process.
//!
//! An image sees addresses, and some of them go over the wire (the virtual address of an RDMA request),
//! so that a run can be replayed only if its hosts lie where they lay. Each host takes a slot of fixed
//! addresses; deterministic simulations take the first ones, one simulation at a time.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, RawMutex, lock_api::RawMutex as _};

/// Address of slot 0: far from where Linux puts executables, heaps, libraries and stacks.
const FIRST: usize = 0x1000_0000_0000;
/// Bytes of a slot.
const SLOT: usize = 64 << 30;
/// Slots of deterministic simulations; other simulations take later ones.
const DETERMINISTIC: usize = 64;
const SLOTS: usize = 1024;

/// Offsets inside a slot.
const DIRECT: usize = 0;
const SPACE: usize = 32 << 30;
const IMAGE: usize = 56 << 30;

/// The most physical memory of a host: what lies between the offsets.
pub const MAX_PHYSICAL: usize = SPACE - DIRECT;

static TAKEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A slot of addresses. What is mapped there goes with it.
pub struct Addresses {
    slot: usize,
    vacated: AtomicBool,
}

impl Addresses {
    /// Takes the first slot that is free.
    ///
    /// # Panics
    /// When there are none.
    pub fn take(deterministic: bool) -> Self {
        let slots = if deterministic { 0..DETERMINISTIC } else { DETERMINISTIC..SLOTS };
        let mut taken = TAKEN.lock();
        let slot =
            slots.into_iter().find(|slot| !taken.contains(slot)).expect("not that many hosts at a time");
        taken.insert(slot);
        Self { slot, vacated: AtomicBool::new(false) }
    }

    /// Where the direct map of physical memory goes.
    pub fn direct(&self) -> usize {
        self.base() + DIRECT
    }

    /// Where the range of mappings goes.
    pub fn space(&self) -> usize {
        self.base() + SPACE
    }

    /// Where the image goes.
    pub fn image(&self) -> usize {
        self.base() + IMAGE
    }

    fn base(&self) -> usize {
        FIRST + self.slot * SLOT
    }

    /// Whether [`Addresses::vacate`] was called: nothing may be mapped any more.
    pub fn is_vacated(&self) -> bool {
        self.vacated.load(Relaxed)
    }

    /// Unmaps everything in the slot and lets others take it. Nobody may use its addresses any more.
    pub fn vacate(&self) {
        let mut taken = TAKEN.lock();
        if !self.vacated.swap(true, Relaxed) {
            // SAFETY: addresses of this slot are used by its host only, whose threads have ended or stopped for ever.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.base()), SLOT) };
            taken.remove(&self.slot);
        }
    }
}

/// Maps at an address of a slot that is free so far.
pub fn map(address: usize, size: usize, protection: i32, flags: i32, file: Option<&File>) -> io::Result<()> {
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing; the address is part of a slot that the caller owns.
    let at = unsafe { libc::mmap(ptr::with_exposed_provenance_mut(address), size, protection, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.vacate();
    }
}

static ALONE: RawMutex = RawMutex::INIT;

/// Held by the one deterministic simulation of the process.
pub struct Alone(());

impl Alone {
    /// Waits until no other deterministic simulation runs.
    pub fn wait() -> Self {
        ALONE.lock();
        Self(())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // SAFETY: locked by `wait`, and unlocked once.
        unsafe { ALONE.unlock() };
    }
}
