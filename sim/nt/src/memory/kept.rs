// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical memory of simulations that have ended, for those that follow in the process: most of what the system does for a short simulation
//! is to make pages of zeros at the first access to each.
//!
//! While no host uses a memory, it is mapped behind all slots of addresses: an access where its host was faults.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, ptr};

use parking_lot::Mutex;

use super::addresses;

/// Memories that are kept at a time: those of the hosts of one simulation.
const PLACES: usize = 8;

/// Maximum bytes of a memory that is kept. What no access has touched does not count.
const MAX_BYTES: u64 = 256 << 20;

/// Bytes of a block in the metadata of a file, for each file system.
const BLOCK: u64 = 512;

/// Those of deterministic simulations.
pub static KEPT: Kept = Kept::new(0);

/// Memories that no host uses.
pub struct Kept {
    /// The address of the first place is behind so many others.
    first: usize,
    places: Mutex<Places>,
}

struct Places {
    memories: [Option<(File, usize)>; PLACES],
    /// The place to clear for the next memory when all are taken.
    next: usize,
}

impl Kept {
    const fn new(first: usize) -> Self {
        let places = Places { memories: [const { None }; PLACES], next: 0 };
        Self { first, places: Mutex::new(places) }
    }

    /// Takes a memory of this size, which is then mapped at `address`, where nothing may be mapped. It has any content. Returns `None`
    /// if none is kept.
    pub fn take(&self, size: usize, address: usize) -> Option<File> {
        let mut places = self.places.lock();
        let is_equal =
            |memory: &Option<(File, usize)>| memory.as_ref().is_some_and(|(_, kept)| *kept == size);
        let place = places.memories.iter().position(is_equal)?;
        let (file, _) = places.memories[place].take()?;
        let from = self.address(place);
        if move_mapping(from, address, size).is_err() {
            unmap(from, size);
            return None;
        }
        Some(file)
    }

    /// Keeps a memory that is mapped at `address`. Nothing is mapped there afterwards, unless the memory is too large or the system refuses
    /// to move it.
    pub fn keep(&self, file: &File, size: usize, address: usize) {
        if file.metadata().map_or(u64::MAX, |metadata| metadata.blocks().saturating_mul(BLOCK)) > MAX_BYTES {
            return;
        }
        let Ok(file) = file.try_clone() else { return };
        let mut places = self.places.lock();
        let place = places.memories.iter().position(Option::is_none).unwrap_or(places.next);
        places.next = (place + 1) % PLACES;
        let to = self.address(place);
        if let Some((_, size)) = places.memories[place].take() {
            unmap(to, size);
        }
        if move_mapping(address, to, size).is_ok() {
            places.memories[place] = Some((file, size));
        }
    }

    fn address(&self, place: usize) -> usize {
        addresses::behind_slots(self.first + place)
    }
}

/// Moves a mapping, with the pages that are mapped in it, to an address at which nothing is mapped.
fn move_mapping(from: usize, to: usize, size: usize) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let to = ptr::with_exposed_provenance_mut::<libc::c_void>(to);
    // SAFETY: the caller owns both ranges. Code that still accesses the first one faults, as if it were unmapped.
    let moved = unsafe { libc::mremap(ptr::with_exposed_provenance_mut(from), size, size, flags, to) };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn unmap(address: usize, size: usize) {
    // SAFETY: the mapping is one of a memory that no host uses.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), size) };
}

#[cfg(test)]
mod tests {
    use super::{
        super::{addresses::Addresses, physical::Physical},
        *,
    };
    use crate::guest::Guest;

    const SIZE: usize = 1 << 20;

    fn memory(addresses: &Addresses, size: usize) -> Physical {
        Physical::new(size as u64, addresses.direct(), fastrand::Rng::with_seed(1)).unwrap()
    }

    /// Returns whether something is mapped at an address.
    fn is_mapped(address: usize) -> bool {
        // SAFETY: has no effect on what is mapped; the system checks the address.
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(address), 4096, libc::MADV_NORMAL) == 0 }
    }

    #[test]
    fn a_memory_that_is_kept_is_that_of_the_next_host_of_its_size() {
        let kept = Kept::new(PLACES);
        let [addresses, next] = [(); 2].map(|()| Addresses::take(false));
        let physical = memory(&addresses, SIZE);
        Guest::<u8>::from_address(addresses.direct() + 5).write(7);
        kept.keep(physical.file(), SIZE, addresses.direct());
        assert!(!is_mapped(addresses.direct()), "the host is still reached");
        assert!(kept.take(2 * SIZE, next.direct()).is_none());
        assert!(kept.take(SIZE, next.direct()).is_some());
        assert_eq!(Guest::<u8>::from_address(next.direct() + 5).read(), 7);
        assert!(kept.take(SIZE, addresses.direct()).is_none(), "a memory has two hosts");
    }

    #[test]
    fn the_oldest_memory_makes_room_when_all_places_are_taken() {
        let kept = Kept::new(2 * PLACES);
        for count in 1..=PLACES + 1 {
            let addresses = Addresses::take(false);
            kept.keep(memory(&addresses, count * SIZE).file(), count * SIZE, addresses.direct());
        }
        let addresses = Addresses::take(false);
        assert!(kept.take(SIZE, addresses.direct()).is_none());
        assert!(kept.take((PLACES + 1) * SIZE, addresses.direct()).is_some());
    }

    #[test]
    fn a_memory_of_which_much_was_used_is_not_kept() {
        let kept = Kept::new(3 * PLACES);
        let addresses = Addresses::take(false);
        let size = usize::try_from(MAX_BYTES).unwrap() + SIZE;
        let physical = memory(&addresses, size);
        addresses::populate(addresses.direct(), size);
        kept.keep(physical.file(), size, addresses.direct());
        assert!(is_mapped(addresses.direct()));
        assert!(kept.take(size, Addresses::take(false).direct()).is_none());
    }
}
