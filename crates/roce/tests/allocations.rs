// SPDX-License-Identifier: MIT OR Apache-2.0

//! When the engine allocates memory, and how it handles failed allocations.
//!
//! A test binary of its own, since it replaces the global allocator.
#![allow(unsafe_code, reason = "implements an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use roce::{
    Access, Backing, CompletionStatus, Config, ConnError, ConnEvent, CreateError, Engine, ListenSpec,
    RecvRequest, Registration, SendData, SendFlags, SendOperation, SendRequest, SrqSpec, Transmit, Verdict,
    WindowType,
};

use roce_testkit::{Lock, Options, TwoHosts, pattern, spec};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Number of allocations that succeed before all further ones fail.
    static FAIL_AT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Number of [`CountedLock`]s that the thread holds.
    static LOCKS: Cell<usize> = const { Cell::new(0) };
    /// Number of allocations and releases while it held one.
    static UNDER_LOCK: Cell<usize> = const { Cell::new(0) };
    /// Bytes that are allocated, by a thread that frees what it allocates.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// A lock that counts how many of its kind the thread holds.
struct CountedLock(Lock);

// SAFETY: the lock inside excludes other holders; the counts change none of its calls.
unsafe impl lock_api::RawMutex for CountedLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait wants it so")]
    const INIT: Self = Self(<Lock as lock_api::RawMutex>::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.0.lock();
        LOCKS.set(LOCKS.get() + 1);
    }

    fn try_lock(&self) -> bool {
        let locked = self.0.try_lock();
        LOCKS.set(LOCKS.get() + usize::from(locked));
        locked
    }

    unsafe fn unlock(&self) {
        LOCKS.set(LOCKS.get() - 1);
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }
}

struct Counting;

impl Counting {
    /// Counts an allocation and returns whether it succeeds.
    fn count() -> bool {
        COUNT.set(COUNT.get() + 1);
        Self::count_under_lock();
        let left = FAIL_AT.get();
        if left != usize::MAX && left != 0 {
            FAIL_AT.set(left - 1);
        }
        left != 0
    }

    fn count_under_lock() {
        UNDER_LOCK.set(UNDER_LOCK.get() + usize::from(LOCKS.get() > 0));
    }
}

// SAFETY: forwards to the system's allocator, or returns null, which callers must handle.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::count() {
            return std::ptr::null_mut();
        }
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the layout is the caller's, whose size must not be zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::count_under_lock();
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's contract; all memory is the system's.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !Self::count() {
            return std::ptr::null_mut();
        }
        LIVE.set(LIVE.get().wrapping_add(size).wrapping_sub(layout.size()));
        // SAFETY: the caller's contract; all memory is the system's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of `act`.
fn allocations<T>(act: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.get();
    let result = act();
    (COUNT.get() - before, result)
}

/// Runs `act` with its allocations failing from the `nth` on.
fn failing_at<T>(nth: usize, act: impl FnOnce() -> T) -> T {
    FAIL_AT.set(nth);
    let result = act();
    FAIL_AT.set(usize::MAX);
    result
}

/// Runs `create` with each of its allocations failing in turn and asserts that it returns `no`. Returns the
/// number of allocations of `create`.
fn survives<T, E: std::fmt::Debug + PartialEq>(no: &E, mut create: impl FnMut() -> Result<T, E>) -> usize {
    for nth in 0..1000 {
        match failing_at(nth, &mut create) {
            Ok(_) => return nth,
            Err(error) => assert_eq!(error, *no, "allocation {nth}"),
        }
    }
    panic!("it never succeeds");
}

//= R-CONN-9
#[test]
fn creation_reports_each_failed_allocation_and_succeeds_afterwards() {
    let no = CreateError::OutOfMemory;
    let config = || {
        let mut config = Config::new(1, [1; 32]);
        config.max_qps = 600;
        config
    };
    assert!(survives(&no, || Engine::<Lock>::try_new(config())) >= 3);
    let engine = Engine::<Lock>::try_new(config()).unwrap();
    let pd = engine.create_pd();
    assert!(survives(&no, || engine.create_cq(10, 0)) >= 2);
    assert!(
        survives(&no, || engine.create_srq(&SrqSpec { depth: 4, sges: 2, threshold: 0, context: 0 })) >= 3
    );
    let cq = engine.create_cq(10, 0).unwrap();
    let options = Options::default();
    // More than one chunk of the table, so that growing the table fails, too.
    for _ in 0..260 {
        let qp_spec = || spec(pd, &cq, &options);
        let mut made = None;
        let tried = survives(&no, || engine.create_qp(qp_spec()).map(|qp| made = Some(qp)));
        assert!(tried >= 6, "{tried}");
    }
    let mut memory = vec![0u8; 64];
    let start = std::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: nothing is posted: the memory is not accessed.
    let backing = || unsafe { Backing::contiguous(start, 64) };
    let register = || {
        let backing = backing()?;
        // SAFETY: no request names the region, so that the engine does not access `memory`.
        unsafe { engine.memory().register(pd, 0x1000, 64, Access::all(), backing) }
    };
    assert!(survives(&no, register) >= 2);
    let map = || {
        let backing = backing()?;
        // SAFETY: no request names the mapping either, so that nothing is read or written.
        unsafe { engine.memory().map_logical(0, backing) }
    };
    assert!(survives(&no, map) >= 2);
    assert!(survives(&no, || engine.memory().allocate_region(pd, 16, true)) >= 3);
    assert!(survives(&no, || engine.memory().create_window(pd, WindowType::Type2).map(drop)) >= 1);
    let listen = || {
        engine.connections().listen(&ListenSpec {
            ip: None,
            port: 1,
            datagrams: false,
            backlog: 1,
            context: 0,
        })
    };
    assert!(survives(&ConnError::OutOfMemory, listen) >= 1);
}

/// The memory of a queue pair is in a chunk of many, which is freed after its last one, when another queue pair is destroyed.
#[test]
fn memory_of_queue_pairs_that_were_destroyed_is_freed() {
    const QPS: usize = 200;
    let mut config = Config::new(1, [1; 32]);
    config.max_qps = QPS as u32;
    let engine = Engine::<Lock>::try_new(config).unwrap();
    let pd = engine.create_pd();
    let cq = engine.create_cq(10, 0).unwrap();
    let options = Options::default();
    let before = LIVE.get();
    let mut qps: Vec<_> = (0..QPS).map(|_| engine.create_qp(spec(pd, &cq, &options)).unwrap()).collect();
    let inside = size_of_val(&*qps[0]) * QPS;
    while let Some(qp) = qps.pop() {
        engine.destroy_qp(&qp);
    }
    // The tables stay.
    let kept = LIVE.get() - before;
    assert!(kept < inside / 8, "{kept} of {inside} bytes");
}

#[test]
fn large_pages_are_requested_for_memory_of_many_queue_pairs() {
    const LARGE_PAGE: usize = 2 << 20;
    thread_local!(static REQUESTED: Cell<usize> = const { Cell::new(0) });
    fn request(memory: std::ptr::NonNull<u8>, size: usize) {
        assert_eq!((memory.addr().get() % LARGE_PAGE, size), (0, LARGE_PAGE));
        REQUESTED.set(REQUESTED.get() + 1);
    }
    let mut config = Config::new(1, [1; 32]);
    config.max_qps = 4000;
    let engine = Engine::<Lock>::try_new(config).unwrap();
    let pd = engine.create_pd();
    let cq = engine.create_cq(10, 0).unwrap();
    engine.use_large_pages(request);
    let options = Options { send_depth: 1, recv_depth: 1, ..Options::default() };
    let mut qps = Vec::new();
    while REQUESTED.get() == 0 && qps.len() < 4000 {
        qps.push(engine.create_qp(spec(pd, &cq, &options)).unwrap());
    }
    assert_eq!(REQUESTED.get(), 1, "{} queue pairs", qps.len());
}

/// Producers and consumers of a queue wait for its lock at `DISPATCH_LEVEL`.
#[test]
fn changing_the_depth_of_a_queue_allocates_and_frees_without_its_lock() {
    let engine = Engine::<CountedLock>::try_new(Config::new(1, [1; 32])).unwrap();
    let cq = engine.create_cq(10, 0).unwrap();
    let srq = engine.create_srq(&SrqSpec { depth: 4, sges: 2, threshold: 0, context: 0 }).unwrap();
    srq.post(&RecvRequest { context: 0, sges: &[] }, 1).unwrap();
    let before = UNDER_LOCK.get();
    let (count, ()) = allocations(|| {
        for depth in [2000, 5] {
            engine.resize_cq(&cq, depth).unwrap();
            engine.modify_srq(&srq, depth, 0).unwrap();
        }
    });
    assert!(count >= 6, "{count} allocations");
    assert_eq!(UNDER_LOCK.get() - before, 0, "allocations and releases with a lock held");
}

#[test]
fn connect_without_memory_fails_and_the_next_attempt_succeeds() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    let path = hosts.path(0);
    let (now, alice) = (hosts.now, &mut hosts.sides[0]);
    let connect_spec = roce::ConnectSpec {
        path,
        local_port: 50000,
        remote_port: roce_testkit::PORT,
        mtu: Options::default().mtu,
        reads: Options::default().reads,
        private_data: b"",
        context: 100,
    };
    let mut made = None;
    let tried = survives(&ConnError::OutOfMemory, || {
        alice.engine.connections().connect(now, &alice.qp, &connect_spec).map(|conn| made = Some(conn))
    });
    assert!(tried >= 1);
    alice.conn = made;
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    hosts.run_until("the connection", |p| p.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
}

/// A transmit queue with preallocated slots.
struct Slots {
    room: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    used: usize,
}

impl Transmit for Slots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.room.get_mut(self.used).map(Vec::as_mut_slice)
    }

    fn commit(&mut self, len: usize) {
        self.lengths[self.used] = len;
        self.used += 1;
    }
}

#[test]
fn processing_packets_allocates_no_memory() {
    let hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let data = pattern(200_000, 1);
    let (source, target, back) = (alice.source(&data), bob.shared(data.len()), alice.sink(data.len()));
    let sink = bob.sink(64);
    let (page, fast) =
        (bob.memory(4096, Access::empty()), bob.engine.memory().allocate_region(bob.pd, 1, true).unwrap());
    let (pages, key) = ([bob.map(&page)], fast.key());
    let registration =
        Registration { base: 0x4000, offset: 0, length: 4096, access: Access::all(), pages: &pages };
    let mut queue = Slots { room: vec![vec![0; 1300]; 64], lengths: vec![0; 64], used: 0 };
    let (count, frames) = allocations(|| {
        let mut frames = 0;
        for context in 0..8 {
            bob.recv(context, &[sink.all()]);
            alice.send(context, &[source.sge(0, 64)]);
        }
        alice.write(8, &[source.all()], &target, 0);
        alice.read(9, &[back.all()], &target, 0);
        let flags = SendFlags::empty();
        let operation = SendOperation::FastRegister { key };
        let request =
            SendRequest { context: 20, operation, flags, data: SendData::Registration(&registration) };
        bob.engine.post_send(&bob.qp, &request).unwrap();
        alice.post(10, SendOperation::Write { address: 0x4000, key }, flags, &[source.sge(0, 4096)]).unwrap();
        bob.recv(21, &[]);
        alice.post(11, SendOperation::SendInvalidate { key }, flags, &[]).unwrap();
        let mut now = hosts.now;
        while !alice.qp.is_drained() {
            let before = frames;
            for (from, to) in [(alice, bob), (bob, alice)] {
                queue.used = 0;
                from.engine.first_shard().poll_transmit(now, &mut queue, 64);
                for (slot, len) in queue.room.iter().zip(&queue.lengths).take(queue.used) {
                    // One frame in fifty is lost: recovery does not allocate, either.
                    frames += 1;
                    if frames % 50 != 0 {
                        let verdict = to.engine.first_shard().handle_frame(now, &slot[..*len]);
                        assert!(!matches!(verdict, Verdict::NotOurs));
                    }
                }
            }
            if frames == before {
                // A lost last packet is detected by the timer.
                now = alice.engine.first_shard().poll_timeout().unwrap();
                alice.engine.first_shard().handle_timeout(now);
            }
        }
        frames
    });
    assert!(frames > 300, "{frames} frames");
    assert_eq!(count, 0, "allocations for {frames} frames");
    assert_eq!(target.read(), data);
    let done = alice.outcomes();
    assert_eq!(page.read(), data[..4096]);
    assert_eq!(fast.state(), roce::KeyState::Free);
    let expected: Vec<_> = (0..12).map(|context| (context, CompletionStatus::Success)).collect();
    assert_eq!(done, expected);
}

//= R-CREATE-38
#[test]
fn only_the_first_read_with_more_elements_than_its_queue_pair_was_created_with_allocates() {
    let options = Options { config: |config| config.read_sges = 8, ..Options::default() };
    let mut hosts = TwoHosts::connected(options);
    let [alice, bob] = &hosts.sides;
    let (remote, sink) = (bob.shared(64), alice.sink(64));
    let many: Vec<_> = (0..8).map(|at| sink.sge(at * 8, 8)).collect();
    let operation = SendOperation::Read { address: remote.address(0), key: remote.key() };
    let read = |sges: &[_]| alice.post(1, operation, SendFlags::empty(), sges);
    assert_eq!(allocations(|| read(&many[..4])), (0, Ok(())));
    assert_eq!(failing_at(0, || read(&many)), Err(roce::PostError::QueueFull));
    assert_eq!(allocations(|| read(&many)), (1, Ok(())));
    assert_eq!(allocations(|| read(&many)), (0, Ok(())));
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success); 3]);
}
