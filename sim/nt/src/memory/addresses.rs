// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of hosts in the address space of this process.
//!
//! An image observes addresses, and sends some of them (the virtual address of an RDMA request), so that a run
//! repeats only if its hosts have the same addresses. Each host takes a slot of fixed addresses;
//! deterministic simulations take the first ones, one simulation at a time.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, RawMutex, lock_api::RawMutex as _};

/// Address of slot 0: far from the addresses at which Linux maps executables, heaps, libraries and stacks. Slots below 16 TiB
/// can be used under valgrind, those of all deterministic simulations.
const FIRST: usize = 0x0100_0000_0000;
/// Bytes of a slot.
const SLOT: usize = 64 << 30;
/// Slots of deterministic simulations; other simulations take later ones.
const DETERMINISTIC: usize = 64;
const SLOTS: usize = 1024;

/// Offsets inside a slot.
const DIRECT: usize = 0;
const SPACE: usize = 32 << 30;
const IMAGE: usize = 56 << 30;

/// Bytes from which on it pays to have pages prepared at once.
const POPULATED: usize = 32 << 10;

/// Bytes of the range of mappings.
pub const SPACE_SIZE: usize = 16 << 30;

/// Maximum physical memory of a host: the distance between the offsets.
pub const MAX_PHYSICAL: usize = SPACE - DIRECT;

static TAKEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A slot of addresses. Its mappings are removed on drop.
pub struct Addresses {
    slot: usize,
    vacated: AtomicBool,
}

impl Addresses {
    /// Takes the first free slot.
    ///
    /// # Panics
    /// When no slot is free.
    pub fn take(deterministic: bool) -> Self {
        let slots = if deterministic { 0..DETERMINISTIC } else { DETERMINISTIC..SLOTS };
        let mut taken = TAKEN.lock();
        let slot = slots.into_iter().find(|slot| !taken.contains(slot)).expect("a free slot of addresses");
        taken.insert(slot);
        Self { slot, vacated: AtomicBool::new(false) }
    }

    /// Returns the address of the direct map of physical memory.
    pub fn direct(&self) -> usize {
        self.base() + DIRECT
    }

    /// Returns the address of the range of mappings.
    pub fn space(&self) -> usize {
        self.base() + SPACE
    }

    /// Returns the address of the first image.
    pub fn image(&self) -> usize {
        self.base() + IMAGE
    }

    /// Returns the number of the slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns whether the slot is one of a deterministic simulation.
    pub fn is_deterministic(&self) -> bool {
        self.slot < DETERMINISTIC
    }

    fn base(&self) -> usize {
        FIRST + self.slot * SLOT
    }

    /// Returns whether [`Addresses::vacate`] was called: nothing may be mapped then.
    pub fn is_vacated(&self) -> bool {
        self.vacated.load(Relaxed)
    }

    /// Unmaps everything in the slot, or everything but the range of mappings, and releases it. Its addresses must not be used afterwards.
    pub fn vacate(&self, but_space: bool) {
        let mut taken = TAKEN.lock();
        if !self.vacated.swap(true, Relaxed) {
            let ranges = if but_space {
                [DIRECT..SPACE, SPACE + SPACE_SIZE..SLOT]
            } else {
                [DIRECT..SPACE, SPACE..SLOT]
            };
            for range in ranges {
                unmap(self.base() + range.start, range.len());
            }
            taken.remove(&self.slot);
        }
    }
}

/// Maps memory at an unused address of a slot.
pub fn map(address: usize, size: usize, protection: i32, flags: i32, file: Option<&File>) -> io::Result<()> {
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing; the address is part of a slot that the caller owns.
    let at = unsafe { libc::mmap(ptr::with_exposed_provenance_mut(address), size, protection, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Unmaps addresses of a slot or of a place behind the slots that no host uses: its threads have ended or stopped forever.
pub fn unmap(address: usize, size: usize) {
    // SAFETY: by the function's contract no code accesses them.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), size) };
}

/// Changes the access to pages of a slot, in which no Rust object lives. Returns `false` if the system refuses it, which limits the number
/// of mappings; some of the pages may have the new access then.
pub fn protect(address: usize, size: usize, protection: i32) -> bool {
    // SAFETY: memory of an image, which is accessed by functions that tolerate a fault.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(address), size, protection) == 0 }
}

/// Returns the address of a place behind all slots, in which there is room for [`MAX_PHYSICAL`] bytes.
pub fn behind_slots(place: usize) -> usize {
    FIRST + (SLOTS + place) * SLOT
}

/// Has the system prepare pages of a slot that are soon written to, if they are many: a fault at the first access to each takes longer.
pub fn populate(address: usize, size: usize) {
    if size >= POPULATED {
        let start = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the content of the pages stays. An error has no effect but that of a fault for each page.
        unsafe { libc::madvise(start, size, libc::MADV_POPULATE_WRITE) };
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.vacate(false);
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
