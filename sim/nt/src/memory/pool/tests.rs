// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{
    super::{addresses::Addresses, space},
    *,
};

struct Fixture {
    _addresses: Addresses,
    physical: Physical,
    space: Space,
    paged: Arc<Paged>,
    pool: Pool,
}

impl Fixture {
    fn new(special: bool) -> Self {
        let (addresses, paged) = (Addresses::take(false), Arc::<Paged>::default());
        Self {
            physical: Physical::new(64 << 20, addresses.direct(), fastrand::Rng::with_seed(1)).unwrap(),
            space: Space::new(addresses.space()).unwrap(),
            _addresses: addresses,
            pool: Pool::new(special, |_| Walk::default(), paged.clone()),
            paged,
        }
    }

    fn allocate(&self, size: usize) -> Guest<u8> {
        let request = Request { size, tag: TAG, zeroed: true, cache_aligned: false };
        self.pool.allocate(&self.physical, &self.space, request).unwrap()
    }

    fn place(&self, block: Guest<u8>) -> Place {
        self.pool.state.lock().blocks[&block.address()].place
    }

    /// Returns the blocks in quarantine and their pages.
    fn quarantine(&self) -> (usize, usize) {
        let state = self.pool.state.lock();
        (state.quarantine.len(), state.quarantine_pages)
    }

    fn check_freed(&self) -> Result<(), Misuse> {
        self.pool.check_freed(&self.physical, &self.space)
    }

    fn free(&self, block: Guest<u8>) -> Result<(), Misuse> {
        self.pool.free(&self.physical, &self.space, block, Some(TAG))
    }
}

const TAG: Tag = Tag(u32::from_le_bytes(*b"test"));

#[test]
fn a_block_is_found_by_size_and_tag() {
    let fixture = Fixture::new(true);
    let [first, other] = [fixture.allocate(100), fixture.allocate(200)];
    assert_eq!(fixture.pool.find(100, Some(TAG)), Some(first));
    assert_eq!(fixture.pool.find(200, None), Some(other));
    assert_eq!(fixture.pool.find(100, Some(Tag(1))), None);
    fixture.free(first).unwrap();
    assert_eq!(fixture.pool.find(100, None), None);
}

#[test]
fn all_pages_are_freed() {
    for special in [true, false] {
        let fixture = Fixture::new(special);
        let before = fixture.physical.available();
        let blocks: Vec<_> =
            [1, 16, 100, 4095, 4096, 4097, 100_000].map(|size| fixture.allocate(size)).into();
        for block in blocks {
            assert_eq!(block.read(), 0);
            fixture.free(block).unwrap();
        }
        fixture.pool.check_freed(&fixture.physical, &fixture.space).unwrap();
        assert!(fixture.pool.blocks().is_empty());
        // Size classes keep their pages.
        assert!(before - fixture.physical.available() <= if special { 0 } else { 8 });
    }
}

#[test]
fn block_ends_at_a_page_without_access() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(32);
    assert_eq!((block.address() + 32) % PAGE_SIZE, 0);
    assert_eq!(fixture.space.pfn(block.address() + 32), None);
    let (code, text) = fixture.pool.explain(block.address() + 33).unwrap();
    assert_eq!(code, BugCheck::DRIVER_PAGE_FAULT_BEYOND_END_OF_ALLOCATION);
    assert!(text.contains("1 bytes beyond the end of block 0 of 32 bytes, tag 'test'"), "{text}");
}

#[test]
fn double_free_and_free_of_another_address_have_different_reports() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(8);
    fixture.free(block).unwrap();
    assert!(fixture.free(block).unwrap_err().text.contains("freed twice"));
    assert!(fixture.free(Guest::from_address(0x1000)).unwrap_err().text.contains("not a pool block"));
    let other = fixture.allocate(64);
    assert!(fixture.free(other.add(8)).unwrap_err().text.contains("8 bytes into"));
}

#[test]
fn write_before_the_block_is_detected_when_it_is_freed() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(100);
    Guest::<u8>::from_address(block.address() - 1).write(0);
    assert!(fixture.free(block).unwrap_err().text.contains("1 bytes before block"));
}

#[test]
fn write_to_a_freed_block_by_a_device_is_detected() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(4096);
    let page = fixture.space.pfn(block.address()).unwrap();
    fixture.free(block).unwrap();
    fixture.physical.direct(page.address() + 5).write(1);
    let misuse = fixture.check_freed().unwrap_err();
    assert_eq!(misuse.code, BugCheck::DRIVER_VERIFIER_DMA_VIOLATION);
    assert!(misuse.text.contains("at page offset 0x5 "), "{}", misuse.text);
    let block = fixture.allocate(8192);
    let page = fixture.space.pfn(block.address() + PAGE_SIZE).unwrap();
    fixture.free(block).unwrap();
    fixture.physical.direct(page.address() + 5).write(1);
    let misuse = fixture.check_freed().unwrap_err().to_string();
    assert!(misuse.contains("DRIVER_VERIFIER_DMA_VIOLATION"), "{misuse}");
    assert!(misuse.contains("at page offset 0x1005 "), "{misuse}");
}

#[test]
fn free_with_the_wrong_tag_is_a_misuse() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(8);
    let other = Tag(u32::from_le_bytes(*b"tset"));
    let misuse = fixture.pool.free(&fixture.physical, &fixture.space, block, Some(other)).unwrap_err();
    assert!(misuse.text.contains("'test' was freed with tag 'tset'"));
}
#[test]
fn mappings_and_pages_are_counted_until_they_are_released() {
    let fixture = Fixture::new(true);
    let blocks = [1, 4096, 100_000].map(|size| fixture.allocate(size));
    assert_eq!(fixture.pool.allocations(), 3);
    assert_eq!(fixture.pool.size_of(blocks[2].address()), Some(100_000));
    // A block of many pages is made of at most so many runs. Each block has a guard page.
    assert_eq!(fixture.pool.state.lock().mappings, (1 + 1) + (1 + 1) + (RUNS + 1));
    for (block, left) in blocks.into_iter().zip([2 + 17, 17, 0]) {
        fixture.free(block).unwrap();
        assert_eq!(fixture.pool.state.lock().mappings, left);
    }
    assert_eq!(fixture.quarantine(), (3, 1 + 1 + 25));
    fixture.check_freed().unwrap();
    assert_eq!(fixture.quarantine(), (0, 0));
    // The addresses of the guard pages are released, too.
    assert!(fixture.space.reserve(space::PAGES).is_some());
}

#[test]
fn blocks_beyond_the_limit_of_mappings_are_not_in_special_pool() {
    let fixture = Fixture::new(true);
    fixture.pool.state.lock().mappings = SPECIAL_MAPPINGS - 1;
    assert!(matches!(fixture.place(fixture.allocate(8)), Place::Special { .. }));
    fixture.pool.state.lock().mappings = SPECIAL_MAPPINGS;
    assert!(matches!(fixture.place(fixture.allocate(8)), Place::Cell { class: 0 }));
    let dense = Fixture::new(false);
    assert!(matches!(dense.place(dense.allocate(4096)), Place::Cell { class: 7 }));
    assert!(matches!(dense.place(dense.allocate(4097)), Place::Pages { pages: 2, .. }));
}

#[test]
fn the_oldest_blocks_leave_the_quarantine_when_it_has_too_many() {
    let fixture = Fixture::new(true);
    for _ in 0..=QUARANTINE_BLOCKS {
        fixture.free(fixture.allocate(1)).unwrap();
    }
    assert_eq!(fixture.quarantine(), (QUARANTINE_BLOCKS, QUARANTINE_BLOCKS));
    let oldest = fixture.pool.state.lock().quarantine.front().map(|freed| freed.block.sequence);
    assert_eq!(oldest, Some(1));
}

#[test]
fn the_oldest_blocks_leave_the_quarantine_when_it_has_too_many_pages() {
    let fixture = Fixture::new(true);
    fixture.free(fixture.allocate(QUARANTINE_PAGES * PAGE_SIZE)).unwrap();
    assert_eq!(fixture.quarantine(), (1, QUARANTINE_PAGES));
    fixture.free(fixture.allocate(1)).unwrap();
    assert_eq!(fixture.quarantine(), (1, 1));
}

#[test]
fn faults_up_to_the_end_of_the_guard_page_are_explained() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(5000);
    let end = block.address() + 3 * PAGE_SIZE;
    for expected in ["7287 bytes beyond the end of block 0", "offset 12287 of block 0"] {
        let (_, text) = fixture.pool.explain(end - 1).unwrap();
        assert!(text.contains(expected), "{text}");
        assert!(fixture.pool.explain(end).is_none());
        let _ = fixture.free(block);
    }
}

#[test]
fn an_address_behind_a_block_is_not_inside_it() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(64);
    assert!(fixture.free(block.add(63)).unwrap_err().text.contains("63 bytes into"));
    assert!(fixture.free(block.add(64)).unwrap_err().text.contains("not a pool block"));
}

#[test]
fn all_pages_of_a_paged_block_are_pageable_until_it_is_freed() {
    let fixture = Fixture::new(true);
    let block = fixture.allocate(5000);
    let (start, end) = (block.address(), block.address() + 2 * PAGE_SIZE);
    fixture.pool.make_pageable(block);
    assert_eq!(fixture.paged.explain(end - 1).unwrap(), "paged pool, block 0 of 5000 bytes, tag 'test'");
    assert_eq!(fixture.paged.explain(end), None);
    assert!(fixture.paged.page_in(end - 1, true));
    assert!(!fixture.paged.page_in(end, false));
    fixture.free(block).unwrap();
    assert_eq!(fixture.paged.explain(start), None);
    assert!(!fixture.paged.remove(start));
}

#[test]
fn a_write_to_pageable_memory_that_is_read_only_is_no_reason_to_make_it_accessible() {
    let fixture = Fixture::new(true);
    assert!(!fixture.paged.remove(0));
    let start = fixture.allocate(PAGE_SIZE).address();
    fixture.paged.add(start..start + PAGE_SIZE, libc::PROT_READ, "constants".into());
    assert!(!fixture.paged.page_in(start, true));
    assert!(fixture.paged.page_in(start, false));
    assert!(fixture.paged.remove(start));
    assert!(!fixture.paged.remove(start));
}
