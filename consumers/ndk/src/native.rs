// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Os`] for a natively linked provider: the current process.
//!
//! Physical addresses are virtual ones, as the backend of the crate `nt` for targets other than Windows expects of an MDL.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::time::Duration;
use std::alloc::{alloc_zeroed, dealloc};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ndk_abi::nt::{MDL, MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL, PAGE_SIZE, PFN_NUMBER};

use crate::os::{self, Os};

const PAGE: usize = PAGE_SIZE as usize;
/// Size of the MDL header in units of frame numbers.
const HEADER: usize = size_of::<MDL>() / size_of::<PFN_NUMBER>();

/// The current process.
pub struct Native {
    started: Instant,
}

/// An event of the process.
#[derive(Default)]
pub struct Event {
    signaled: Mutex<bool>,
    changed: Condvar,
}

/// Memory of the process and its MDL.
pub struct Buffer {
    memory: NonNull<u8>,
    length: usize,
    mdl: NonNull<MDL>,
}

/// A thread of the process.
pub struct Thread(JoinHandle<()>);

impl Native {
    /// Returns the current process; its time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Os for Native {
    type Event = Event;
    type Buffer = Buffer;
    type Lock<T: Send> = Mutex<T>;

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn event(&self) -> Event {
        Event::default()
    }

    fn allocate(&self, length: usize) -> Option<Buffer> {
        Buffer::new(length)
    }
}

impl os::Threads for Native {
    type Thread = Thread;

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Thread {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        Thread(thread.expect("the system can start a thread"))
    }
}

impl<T: Send> os::Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl os::Event for Event {
    fn set(&self) {
        *self.signaled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let signaled = self.signaled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut signaled = match timeout {
            None => self
                .changed
                .wait_while(signaled, |signaled| !*signaled)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(signaled, timeout, |signaled| !*signaled);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        core::mem::take(&mut *signaled)
    }
}

impl os::Thread for Thread {
    fn join(self) {
        if let Err(panic) = self.0.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Buffer {
    fn new(length: usize) -> Option<Self> {
        let (memory_layout, mdl_layout) = layouts(length)?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(memory_layout) })?;
        // SAFETY: the layout is not empty.
        let Some(mdl) = NonNull::new(unsafe { alloc_zeroed(mdl_layout) }) else {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(memory.as_ptr(), memory_layout) };
            return None;
        };
        let mdl = mdl.cast::<MDL>();
        let header = MDL {
            Size: i16::try_from(mdl_layout.size()).unwrap_or(i16::MAX),
            MdlFlags: MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL,
            MappedSystemVa: memory.as_ptr().cast(),
            StartVa: memory.as_ptr().cast(),
            ByteCount: u32::try_from(length).ok()?,
            ..MDL::zeroed()
        };
        // SAFETY: allocated above, large enough and aligned for an MDL.
        unsafe { mdl.write(header) };
        for page in 0..length.div_ceil(PAGE) {
            // SAFETY: frame numbers follow the header, one per page: the layout has room for them.
            let frame = unsafe { mdl.cast::<PFN_NUMBER>().add(HEADER + page) };
            // SAFETY: within the allocation, see above; aligned to 8 behind the header of 48 bytes.
            unsafe { frame.write(memory.as_ptr() as usize / PAGE + page) };
        }
        Some(Self { memory, length, mdl })
    }
}

// SAFETY: the MDL describes the allocation; both stay until `drop`.
unsafe impl os::Buffer for Buffer {
    fn address(&self) -> NonNull<u8> {
        self.memory
    }

    fn len(&self) -> usize {
        self.length
    }

    fn mdl(&self) -> NonNull<MDL> {
        self.mdl
    }
}

// SAFETY: the buffer owns its memory; access to it goes through raw copies.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives out raw copies only, as `Send` argues.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some((memory_layout, mdl_layout)) = layouts(self.length) else { return };
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), memory_layout) };
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.mdl.as_ptr().cast(), mdl_layout) };
    }
}

/// Returns the layouts of `length` bytes in whole pages and of their MDL; `None` if `length` is 0 or too large.
fn layouts(length: usize) -> Option<(Layout, Layout)> {
    u32::try_from(length).ok().filter(|length| *length != 0)?;
    let pages = length.div_ceil(PAGE);
    let frames = pages * size_of::<PFN_NUMBER>();
    let mdl = Layout::from_size_align(size_of::<MDL>() + frames, align_of::<MDL>()).ok()?;
    const { assert!(offset_of!(MDL, ByteOffset) + 4 == size_of::<MDL>(), "frames follow the header") };
    Some((Layout::from_size_align(pages * PAGE, PAGE).ok()?, mdl))
}
