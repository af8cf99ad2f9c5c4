// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operating system interface of an NDK consumer, implemented on a simulated host.
#![allow(unsafe_code, reason = "memory that a provider reads and writes")]

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ndk_abi::nt::{MDL, MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL};
use ndk_consumer::os;
use nt_sim::{BugCheck, Host, Irql, JoinHandle, current, guest::Guest, memory::PAGE_SIZE, violation};

/// Threads, events and memory of a simulated host, for an NDK consumer.
#[derive(Clone)]
pub struct SimOs {
    host: Arc<Host>,
    /// Memory that is allocated from now on is not nonpaged pool.
    pageable: Arc<AtomicBool>,
}

impl SimOs {
    /// Returns the interface of `host`.
    #[must_use]
    pub fn new(host: &Arc<Host>) -> Self {
        Self { host: host.clone(), pageable: Arc::default() }
    }

    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// From now on, memory is allocated whose MDL describes locked pages without a system address, so that a provider must
    /// map them.
    pub fn allocate_locked_pages(&self) {
        self.pageable.store(true, Ordering::Relaxed);
    }
}

impl os::Os for SimOs {
    type Event = Event;
    type Buffer = Buffer;
    type Lock<T: Send> = Lock<T>;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.host.world().now())
    }

    fn event(&self) -> Event {
        Event { signaled: AtomicBool::new(false), changed: self.host.event() }
    }

    fn allocate(&self, length: usize) -> Option<Buffer> {
        Buffer::allocate(&self.host, length, self.pageable.load(Ordering::Relaxed))
    }

    fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        nt_sim::image::call("a function of the provider", call)
    }

    fn callback<R>(&self, name: &'static str, body: impl FnOnce() -> R) -> R {
        nt_sim::image::switch::on_host_stack(|| {
            let level = current().irql();
            if level > Irql::DISPATCH_LEVEL {
                violation(
                    BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                    format!("the provider called the consumer's {name} at {level}"),
                );
            }
            body()
        })
    }
}

impl os::Threads for SimOs {
    type Thread = Thread;

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Thread {
        Thread(self.host.spawn(name, body))
    }
}

/// A lock of the process, held for moments.
pub struct Lock<T>(parking_lot::Mutex<T>);

impl<T: Send> os::Lock<T> for Lock<T> {
    fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(&mut self.0.lock())
    }
}

/// A synchronization event, built on the simulation's notification event.
pub struct Event {
    signaled: AtomicBool,
    /// Set after `signaled`; stays set until a waiter checks `signaled`.
    changed: nt_sim::Event,
}

impl os::Event for Event {
    fn set(&self) {
        self.signaled.store(true, Ordering::Release);
        self.changed.set();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let world = current().world().clone();
        let deadline = timeout.map(|timeout| Duration::from_nanos(world.now()).saturating_add(timeout));
        loop {
            self.changed.reset();
            if self.signaled.swap(false, Ordering::Acquire) {
                return true;
            }
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_sub(Duration::from_nanos(world.now())));
            if !self.changed.wait(left) {
                return self.signaled.swap(false, Ordering::Acquire);
            }
        }
    }
}

/// Value of the bytes behind a buffer in its last page.
const BEHIND: u8 = 0xB5;

/// Pages of a host's physical memory, and the MDL that describes them. The bytes behind it in its last page have to stay as they are.
pub struct Buffer {
    host: Arc<Host>,
    address: Guest<u8>,
    length: usize,
    /// The MDL and the page frame numbers behind it.
    list: Box<[u64]>,
}

impl Buffer {
    fn allocate(host: &Arc<Host>, length: usize, pageable: bool) -> Option<Self> {
        let pages = length.div_ceil(PAGE_SIZE);
        let address = host.memory.allocate(pages)?;
        address.add(length).fill(BEHIND, pages * PAGE_SIZE - length);
        let header = size_of::<MDL>();
        let mut list = vec![0u64; header / 8 + pages].into_boxed_slice();
        for (page, entry) in list[header / 8..].iter_mut().enumerate() {
            *entry = host.memory.pfn(address.address() + page * PAGE_SIZE)?.0;
        }
        let mdl = Guest::new(list.as_mut_ptr().cast::<MDL>());
        mdl.write(MDL {
            Next: std::ptr::null_mut(),
            Size: i16::try_from(header + pages * 8).unwrap_or(0),
            MdlFlags: if pageable { MDL_PAGES_LOCKED } else { MDL_SOURCE_IS_NONPAGED_POOL },
            Process: std::ptr::null_mut(),
            MappedSystemVa: if pageable { std::ptr::null_mut() } else { address.as_ptr().cast() },
            StartVa: address.as_ptr().cast(),
            ByteCount: u32::try_from(length).ok()?,
            ByteOffset: 0,
        });
        Some(Self { host: host.clone(), address, length, list })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let behind = self.length.next_multiple_of(PAGE_SIZE) - self.length;
        if !self.host.is_dead() && !self.address.add(self.length).holds(&[BEHIND; PAGE_SIZE][..behind]) {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("bytes behind a buffer of {} bytes were written", self.length),
            );
        }
        self.host.memory.free(self.address, self.length.div_ceil(PAGE_SIZE));
    }
}

// SAFETY: the MDL describes the pages at the address. Both are allocated in `allocate` and stay in place until the
// value is dropped; the list is in a box of its own.
unsafe impl os::Buffer for Buffer {
    fn address(&self) -> NonNull<u8> {
        NonNull::new(self.address.as_ptr()).expect("allocated memory has an address")
    }

    fn len(&self) -> usize {
        self.length
    }

    fn mdl(&self) -> NonNull<MDL> {
        NonNull::new(self.list.as_ptr().cast_mut().cast()).expect("a box has an address")
    }
}

/// A thread of the host. It ends if its host is killed.
pub struct Thread(JoinHandle<()>);

impl os::Thread for Thread {
    fn join(self) {
        drop(self.0.join());
    }
}
