// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Os`] for a driver: the kernel.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::AliasableBytes;
use ndk_abi::nt::{IoAllocateMdl, IoFreeMdl, MDL, MmBuildMdlForNonPagedPool, PAGE_SIZE};
use ndk_consumer::os::{self, Os};
use nt::SpinLock;

/// The kernel.
pub struct Kernel;

/// A synchronization event, built on the notification event.
pub struct Event {
    signaled: AtomicBool,
    /// Set after `signaled`; stays set until a waiter looks at `signaled`. `None` if pool was exhausted: waits then end at once.
    changed: Option<nt::Event>,
}

/// A spin lock.
pub struct Lock<T>(SpinLock<T>);

/// Nonpaged pool, and the MDL that describes it.
pub struct Buffer {
    mdl: NonNull<MDL>,
    length: usize,
    /// Whole pages, and therefore page-aligned.
    bytes: AliasableBytes,
}

impl Os for Kernel {
    type Event = Event;
    type Buffer = Buffer;
    type Lock<T: Send> = Lock<T>;

    fn now(&self) -> Duration {
        Duration::from_nanos(nt::time::now())
    }

    fn event(&self) -> Event {
        Event::new()
    }

    fn allocate(&self, length: usize) -> Option<Buffer> {
        Buffer::new(length)
    }
}

impl Event {
    pub fn new() -> Self {
        Self { signaled: AtomicBool::new(false), changed: nt::Event::try_new() }
    }
}

impl os::Event for Event {
    fn set(&self) {
        self.signaled.store(true, Ordering::Release);
        if let Some(changed) = &self.changed {
            changed.set();
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|timeout| Kernel.now().saturating_add(timeout));
        let Some(changed) = &self.changed else { return self.signaled.swap(false, Ordering::Acquire) };
        loop {
            changed.clear();
            if self.signaled.swap(false, Ordering::Acquire) {
                return true;
            }
            match deadline {
                None => changed.wait(),
                Some(deadline) => {
                    if !changed.wait_for(deadline.saturating_sub(Kernel.now())) {
                        return self.signaled.swap(false, Ordering::Acquire);
                    }
                }
            }
        }
    }
}

impl<T: Send> os::Lock<T> for Lock<T> {
    fn new(value: T) -> Self {
        Self(SpinLock::new(value))
    }

    fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(&mut self.0.lock())
    }
}

impl Buffer {
    fn new(length: usize) -> Option<Self> {
        let size = u32::try_from(length).ok().filter(|size| *size != 0)?;
        let bytes = AliasableBytes::try_new(length.checked_next_multiple_of(PAGE_SIZE as usize)?).ok()?;
        // SAFETY: the range is that of the block, which stays until it is dropped.
        let mdl = unsafe { IoAllocateMdl(bytes.as_ptr().cast(), size, 0, 0, null_mut()) };
        let mdl = NonNull::new(mdl)?;
        // SAFETY: the MDL describes nonpaged pool.
        unsafe { MmBuildMdlForNonPagedPool(mdl.as_ptr()) };
        Some(Self { mdl, length, bytes })
    }
}

// SAFETY: the MDL describes the allocation, which is nonpaged; both stay until `drop`.
unsafe impl os::Buffer for Buffer {
    fn address(&self) -> NonNull<u8> {
        self.bytes.as_non_null()
    }

    fn len(&self) -> usize {
        self.length
    }

    fn mdl(&self) -> NonNull<MDL> {
        self.mdl
    }
}

// SAFETY: memory and MDL are accessed from any thread; access goes through raw copies.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives out raw copies only; the owners of ranges keep accesses apart.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; the provider has deregistered what was registered of it.
        unsafe { IoFreeMdl(self.mdl.as_ptr()) };
    }
}
