// SPDX-License-Identifier: MIT OR Apache-2.0

//! RegionTable and windows as their consumers see them, at `PASSIVE_LEVEL` and from several threads.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;

use lock_api::Mutex;

use super::access::RegionAccess;
use super::access_rights::{Access, PRIVILEGED_KEY, Pd, Scope};
use super::fast_register::Registration;
use super::key_state::State;
use super::memory_region::Region;
use super::table::RegionTable;
use super::window::{Binding, WindowType};
use crate::error::PostError;
use crate::memory::Backing;
use crate::random::Random;
use crate::testing::{Lock, preemptible_visits};
use crate::work::Sge;
use fallible::Arc;
use roce_wire::Qpn;

const BY: Scope = Scope { pd: Pd(1), qpn: Qpn::new(5) };
const BASE: u64 = 0x5000;
const LENGTH: u64 = 4096;

/// Memory, regions of every kind, and a lock as queue pairs have it.
struct Bench {
    regions: RegionTable<Lock>,
    qp: Mutex<Lock, ()>,
    memory: Vec<AtomicU64>,
}

impl Bench {
    fn new() -> Self {
        Self {
            regions: RegionTable::try_new(8, 4, core::hint::spin_loop, &mut Random::new([3; 32])).unwrap(),
            qp: Mutex::new(()),
            memory: (0..LENGTH / 8).map(AtomicU64::new).collect(),
        }
    }

    #[allow(unsafe_code, reason = "memory for a backing")]
    fn backing(&self) -> Backing {
        let start = NonNull::from(&self.memory[0]).cast();
        // SAFETY: the memory goes with the regions.
        unsafe { Backing::contiguous(start, LENGTH as usize) }.unwrap()
    }

    fn fixed(&self) -> Arc<Region> {
        self.regions.register(BY.pd, BASE, LENGTH, Access::all(), self.backing()).unwrap()
    }

    /// Stages and executes a bind, as a post does. Returns whether the window is bound.
    fn bind(&self, key: u32, region: &Region) -> bool {
        let access = Access::REMOTE_READ;
        let asked = Binding { region: region.key(), address: BASE, length: LENGTH, access };
        let _at_dispatch_level = self.qp.lock();
        let noted = self.regions.stage_binding(BY, key, &asked);
        noted.is_ok_and(|ticket| self.regions.activate(BY, key, ticket).is_ok())
    }

    fn register(&self, key: u32, pages: &[u64]) {
        let asked = Registration { base: BASE, offset: 0, length: LENGTH, access: Access::all(), pages };
        let _at_dispatch_level = self.qp.lock();
        let ticket = self.regions.stage_registration(BY.pd, key, &asked).unwrap();
        self.regions.activate(BY, key, ticket).unwrap();
    }

    fn invalidate(&self, key: u32) {
        let _at_dispatch_level = self.qp.lock();
        self.regions.invalidate(BY, key).unwrap();
    }
}

/// A spinning waiter at `DISPATCH_LEVEL` would wait for ever for a thread that it has preempted.
#[test]
fn no_thread_waits_for_a_preemptible_user() {
    let bench = Bench::new();
    let visits = preemptible_visits();
    let logical = bench.regions.map_logical(0, bench.backing()).unwrap();
    let (fixed, fast) = (bench.fixed(), bench.regions.allocate(BY.pd, 1, true).unwrap());
    let window = bench.regions.create_window(BY.pd, WindowType::Type2).unwrap();
    let look = || {
        for region in [&fixed, &fast, &window.0] {
            let _ = (region.base(), region.length(), region.access(), region.state(), region.windows());
        }
        [fixed.key(), fast.key(), window.key()]
    };
    let [_, fast_key, window_key] = look();
    for _ in 0..2 {
        bench.register(fast_key, &[logical]);
        assert!(bench.bind(window_key, &fixed));
        look();
        bench.invalidate(fast_key);
        bench.invalidate(window_key);
        look();
    }
    assert!(bench.bind(window_key, &fixed));
    bench.register(fast_key, &[logical]);
    assert!(bench.regions.destroy_window(&window));
    assert!(bench.regions.deregister(&fast));
    assert!(bench.regions.deregister(&fixed));
    assert!(bench.regions.unmap_logical(logical));
    look();
    assert_eq!(preemptible_visits(), visits);
    // As packets do under the lock of their queue pair.
    let _ = RegionAccess::new(&bench.regions).check_remote(BY, fixed.key(), BASE, 1, Access::REMOTE_READ);
    assert_eq!(preemptible_visits(), visits + 1);
}

/// A WRITE of another peer, as that which releases a lock, may come between the comparison and its end.
#[test]
fn a_number_that_stays_as_it_is_is_not_written() {
    let bench = Bench::new();
    let region = bench.fixed();
    let access = RegionAccess::new(&bench.regions);
    let number = &bench.memory[0];
    let update = |after: fn(u64) -> u64| {
        number.store(40, Ordering::Relaxed);
        access.update_remote(BY, region.key(), BASE, |before| {
            number.store(7, Ordering::Relaxed);
            after(before)
        })
    };
    assert_eq!((update(|before| before), number.load(Ordering::Relaxed)), (Ok(40), 7));
    assert_eq!((update(|before| before + 2), number.load(Ordering::Relaxed)), (Ok(40), 42));
}

/// Each right of peers is one: a region that has none for them gets none, and a peer that has one may invalidate the key.
//= R-MR-31
#[test]
fn a_right_to_atomic_operations_is_a_right_of_peers() {
    let bench = Bench::new();
    let logical = bench.regions.map_logical(0, bench.backing()).unwrap();
    for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let access = Access::LOCAL_WRITE | right;
        let asked = Registration { base: BASE, offset: 0, length: LENGTH, access, pages: &[logical] };
        let [local, remote] = [false, true].map(|remote| bench.regions.allocate(BY.pd, 1, remote).unwrap());
        let staged = bench.regions.stage_registration(BY.pd, local.key(), &asked);
        assert!(matches!(staged, Err(PostError::NoRight)), "{right:?}");
        let ticket = bench.regions.stage_registration(BY.pd, remote.key(), &asked).unwrap();
        bench.regions.activate(BY, remote.key(), ticket).unwrap();
        assert!(bench.regions.invalidate_remotely(BY, remote.key()).is_ok(), "{right:?}");
    }
}

/// Queue pairs of several processors update the same number.
#[test]
fn numbers_are_updated_one_at_a_time() {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 10 } else { 5000 };
    let bench = Bench::new();
    bench.memory[0].store(0, Ordering::Relaxed);
    let (key, barrier) = (bench.fixed().key(), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let access = RegionAccess::new(&bench.regions);
                barrier.wait();
                for _ in 0..rounds {
                    access.update_remote(BY, key, BASE, |before| before + 1).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.memory[0].load(Ordering::Relaxed), THREADS * rounds);
}

#[test]
fn a_free_region_shows_its_last_key_and_nothing_else() {
    let bench = Bench::new();
    let logical = bench.regions.map_logical(0, bench.backing()).unwrap();
    let fast = bench.regions.allocate(BY.pd, 1, true).unwrap();
    let index = fast.key();
    let seen = || (fast.key() & 0xFF, fast.base(), fast.length(), fast.access());
    let nothing = |low| (low, 0, 0, Access::empty());
    assert_eq!(seen(), nothing(0), "before the first");
    for low in [0x77, 0x11, 0x33] {
        bench.register(index | low, &[logical]);
        assert_eq!(seen(), (low, BASE, LENGTH, Access::all()));
        let next = Registration { base: 0, offset: 0, length: 1, access: Access::empty(), pages: &[logical] };
        let ticket = bench.regions.stage_registration(BY.pd, index | 0xEE, &next).unwrap();
        assert_eq!(seen(), (low, BASE, LENGTH, Access::all()), "the next one is only staged");
        bench.invalidate(index | low);
        assert_eq!(seen(), nothing(low));
        bench.regions.cancel(index, ticket);
    }
}

/// As a strict provider asks before a request is posted.
#[test]
fn a_local_element_is_known_by_its_domain_key_range_and_rights() {
    let bench = Bench::new();
    let logical = bench.regions.map_logical(0, bench.backing()).unwrap();
    let fixed = bench.fixed();
    let read_only =
        bench.regions.register(BY.pd, BASE, LENGTH, Access::REMOTE_READ, bench.backing()).unwrap();
    let fast = bench.regions.allocate(BY.pd, 1, false).unwrap();
    let window = bench.regions.create_window(BY.pd, WindowType::Type2).unwrap();
    let other = Pd(2);
    for (pd, address, length, key, to_read, to_write) in [
        (BY.pd, BASE, LENGTH, fixed.key(), true, true),
        (BY.pd, BASE + 1, LENGTH, fixed.key(), false, false),
        (BY.pd, BASE, LENGTH, fixed.key() ^ 1, false, false),
        (other, BASE, LENGTH, fixed.key(), false, false),
        (BY.pd, BASE, LENGTH, read_only.key(), true, false),
        // What will be registered when the request executes is not known yet.
        (BY.pd, BASE + 1, LENGTH, fast.key(), true, true),
        (other, BASE, LENGTH, fast.key(), false, false),
        (BY.pd, BASE, LENGTH, window.key(), false, false),
        (other, logical, LENGTH, PRIVILEGED_KEY, true, true),
        (BY.pd, logical + 1, LENGTH, PRIVILEGED_KEY, false, false),
        (BY.pd, logical + (1 << 40), 1, PRIVILEGED_KEY, false, false),
    ] {
        let sge = Sge { address, length: length as u32, key };
        let known = [false, true].map(|write| bench.regions.is_known_local(pd, &sge, write));
        assert_eq!(known, [to_read, to_write], "{pd:?} {sge:?}");
    }
}

#[test]
fn a_logical_range_ends_within_a_tebibyte() {
    let bench = Bench::new();
    let last = (1 << 40) - LENGTH;
    let base = bench.regions.map_logical(last, bench.backing()).unwrap();
    assert_eq!(bench.regions.logical(base | last | 1).map(|(_, offset)| offset), Ok(1));
    for offset in [last + 1, last + 2, 1 << 40, u64::MAX] {
        assert!(bench.regions.map_logical(offset, bench.backing()).is_err(), "{offset:#x}");
    }
}

#[test]
fn a_region_for_fast_registration_has_up_to_256_mib() {
    let bench = Bench::new();
    assert!(bench.regions.allocate(BY.pd, 1 << 16, false).is_ok());
    assert!(bench.regions.allocate(BY.pd, (1 << 16) + 1, false).is_err());
}

#[test]
fn a_window_destroyed_during_its_bind_is_no_longer_counted() {
    let bench = Bench::new();
    let fixed = bench.fixed();
    let mut bound = 0;
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let window = bench.regions.create_window(BY.pd, WindowType::Type2).unwrap();
        let (key, start) = (window.key(), Barrier::new(2));
        std::thread::scope(|scope| {
            let binder = scope.spawn(|| {
                start.wait();
                bench.bind(key, &fixed)
            });
            start.wait();
            // Sometimes it comes first, sometimes last, sometimes in between.
            (0..round % 1000).for_each(|_| core::hint::spin_loop());
            assert!(bench.regions.destroy_window(&window));
            bound += u32::from(binder.join().unwrap());
        });
        assert_eq!(fixed.windows(), 0, "round {round}");
        assert_eq!(window.state(), State::Free);
        assert!(!bench.regions.destroy_window(&window), "once");
        assert_eq!(fixed.windows(), 0, "round {round}");
    }
    assert!(cfg!(miri) || bound > 0, "no window was bound");
}
