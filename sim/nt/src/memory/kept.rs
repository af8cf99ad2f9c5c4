// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical memory of simulations that have ended, for those that follow in the process: most of what the system does for a short simulation
//! is to make pages of zeros at the first access to each, and to map pages.
//!
//! While no host uses a memory, it is mapped behind all slots of addresses, and what is left in the range of mappings has no access: an access
//! where its host was faults.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, ptr, sync::Arc};

use parking_lot::Mutex;

use super::{
    addresses::{self, Addresses},
    left_mappings::LeftMappings,
    physical::{PAGE_SIZE, Physical},
    space::Space,
};

/// Memories that are kept at a time: those of the hosts of one simulation, by their slots.
const PLACES: usize = 8;

/// Hosts whose mappings are left, too, since their number is limited for the process.
const SPACES: usize = 2;

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
    places: Mutex<[Option<KeptMemory>; PLACES]>,
}

/// A memory that no host uses.
pub struct KeptMemory {
    pub file: File,
    /// The slot that had it: others have the same place.
    slot: usize,
    size: usize,
    /// Of its pages, in the range of mappings of its slot.
    pub left: Option<Arc<LeftMappings>>,
}

impl Kept {
    const fn new(first: usize) -> Self {
        Self { first, places: Mutex::new([const { None }; PLACES]) }
    }

    /// Returns whether what a host unmaps may be left where it was.
    pub fn may_leave(addresses: &Addresses) -> bool {
        addresses.is_deterministic() && addresses.slot() < SPACES
    }

    /// Takes the memory of `size` bytes that the slot of these addresses had before. It has any content, and is mapped in the slot
    /// again, in which nothing else is mapped but what is left. Returns `None` if there is none; nothing is mapped in the slot then.
    pub fn take(&self, addresses: &Addresses, size: u64) -> Option<KeptMemory> {
        let place = addresses.slot() % PLACES;
        // Held until the place is free: another slot may keep its memory there then.
        let mut places = self.places.lock();
        let kept = places[place].take_if(|kept| kept.slot == addresses.slot())?;
        let size = usize::try_from(size).ok()?.next_multiple_of(PAGE_SIZE);
        let from = self.address(place);
        if kept.size == size && move_mapping(from, addresses.direct(), size).is_ok() {
            return Some(kept);
        }
        addresses::unmap(from, kept.size);
        if kept.left.is_some() {
            addresses::unmap(addresses.space(), addresses::SPACE_SIZE);
        }
        None
    }

    /// Keeps a memory. It is not mapped at these addresses afterwards, unless it is too large, another slot's has the place, or the system
    /// refuses to move it. Returns whether the range of mappings has to stay for it, without access.
    pub fn keep(&self, addresses: &Addresses, physical: &Physical, space: &Space) -> bool {
        let (file, size) = (physical.file(), physical.size());
        if file.metadata().map_or(u64::MAX, |metadata| metadata.blocks().saturating_mul(BLOCK)) > MAX_BYTES {
            return false;
        }
        let Ok(file) = file.try_clone() else { return false };
        let slot = addresses.slot();
        let place = slot % PLACES;
        let mut places = self.places.lock();
        if places[place].is_some() || move_mapping(addresses.direct(), self.address(place), size).is_err() {
            return false;
        }
        let left = space.leave_all();
        let keeps_space = left.is_some();
        places[place] = Some(KeptMemory { file, slot, size, left });
        keeps_space
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{guest::Guest, memory::Protection};

    const SIZE: usize = 1 << 20;

    struct Host {
        addresses: Addresses,
        physical: Physical,
        space: Space,
    }

    impl Host {
        fn new(size: usize) -> Self {
            let addresses = Addresses::take(false);
            let random = fastrand::Rng::with_seed(1);
            Self {
                physical: Physical::new(size as u64, addresses.direct(), random).unwrap(),
                space: Space::leaving(addresses.space()).unwrap(),
                addresses,
            }
        }

        fn keep(&self, kept: &Kept) -> bool {
            kept.keep(&self.addresses, &self.physical, &self.space)
        }
    }

    /// Returns whether something is mapped at an address.
    fn is_mapped(address: usize) -> bool {
        // SAFETY: has no effect on what is mapped; the system checks the address.
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(address), 4096, libc::MADV_NORMAL) == 0 }
    }

    /// Returns whether a byte at an address can be read.
    fn can_be_read(host: &Host, address: usize) -> bool {
        use std::os::fd::AsRawFd as _;
        let fd = host.physical.file().as_raw_fd();
        // SAFETY: the system checks the address that it copies from.
        unsafe { libc::pwrite(fd, ptr::with_exposed_provenance(address), 1, 0) == 1 }
    }

    #[test]
    fn a_memory_that_is_kept_is_that_of_the_next_host_of_its_size_in_the_slot() {
        let kept = Kept::new(PLACES);
        let host = Host::new(SIZE);
        let direct = host.addresses.direct();
        Guest::<u8>::from_address(direct + 5).write(7);
        host.keep(&kept);
        assert!(!is_mapped(direct), "the host is still reached");
        assert!(kept.take(&host.addresses, SIZE as u64).is_some());
        assert_eq!(Guest::<u8>::from_address(direct + 5).read(), 7);
        assert!(kept.take(&host.addresses, SIZE as u64).is_none(), "a memory has two hosts");
    }

    #[test]
    fn a_memory_of_another_size_is_not_taken_and_nothing_of_it_stays() {
        let kept = Kept::new(2 * PLACES);
        let host = Host::new(SIZE);
        assert!(host.keep(&kept));
        assert!(kept.take(&host.addresses, 2 * SIZE as u64).is_none());
        assert!(!is_mapped(host.addresses.direct()) && !is_mapped(host.addresses.space()));
        let place = host.addresses.slot() % PLACES;
        assert!(!is_mapped(kept.address(place)));
    }

    #[test]
    fn pages_at_their_former_addresses_are_reached_again_by_the_next_host_alone() {
        let kept = Kept::new(3 * PLACES);
        let host = Host::new(SIZE);
        let frame = host.physical.take_for(0, 1).unwrap();
        let map = |space: &Space| {
            let address = space.reserve_small(2).unwrap();
            assert!(space.map(&host.physical, address, &frame, Protection::ReadWrite));
            address
        };
        let address = map(&host.space);
        Guest::<u8>::from_address(address).write(9);
        assert!(host.keep(&kept));
        assert!(is_mapped(address) && !can_be_read(&host, address));
        let memory = kept.take(&host.addresses, SIZE as u64).unwrap();
        let next = Space::reused(host.addresses.space(), memory.left.unwrap());
        assert_eq!(next.pfn(address), None);
        assert_eq!(map(&next), address);
        assert_eq!(Guest::<u8>::from_address(address).read(), 9);
    }

    /// With many hosts, two slots have one place.
    #[test]
    fn a_place_keeps_the_memory_of_one_slot_for_that_slot() {
        let kept = Kept::new(5 * PLACES);
        let hosts: Vec<Host> = (0..=8 * PLACES).map(|_| Host::new(SIZE)).collect();
        let place = |host: &Host| host.addresses.slot() % PLACES;
        let first = &hosts[0];
        let other = hosts[1..].iter().find(|&host| place(host) == place(first)).unwrap();
        assert!(first.keep(&kept));
        assert!(!other.keep(&kept));
        assert!(kept.take(&other.addresses, SIZE as u64).is_none());
        assert!(kept.take(&first.addresses, SIZE as u64).is_some());
    }

    #[test]
    fn a_memory_of_which_much_was_used_is_not_kept() {
        let kept = Kept::new(4 * PLACES);
        let host = Host::new(usize::try_from(MAX_BYTES).unwrap() + SIZE);
        addresses::populate(host.addresses.direct(), host.physical.size());
        assert!(!host.keep(&kept));
        assert!(is_mapped(host.addresses.direct()));
        assert!(kept.take(&host.addresses, host.physical.size() as u64).is_none());
    }
}
