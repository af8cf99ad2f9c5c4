// SPDX-License-Identifier: MIT OR Apache-2.0

//! A closure as the context of a C callback.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::ptr::NonNull;

use fallible::{AllocError, try_box};

/// A closure on the heap whose address a kernel object holds as its callback context.
///
/// The kernel object's C routine gets [`context`](Self::context) back and passes it to [`call`](Self::call).
/// The owner stops the kernel object, and waits for a running routine, before it drops this.
pub struct Callback(NonNull<Header>);

/// The part of the allocation that does not depend on the closure's type.
struct Header {
    call: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Block<F> {
    header: Header,
    closure: F,
}

// SAFETY: the closure is `Send + Sync` by the bound of `try_new`.
unsafe impl Send for Callback {}
// SAFETY: as above; a shared `Callback` only gives out its address.
unsafe impl Sync for Callback {}

impl Callback {
    /// Moves `closure` to the heap. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; `closure` is dropped.
    pub fn try_new<F: Fn() + Send + Sync + 'static>(closure: F) -> Result<Self, AllocError> {
        let block = try_box(Block { header: Header { call: call::<F>, free: free::<F> }, closure })?;
        // SAFETY: `Box::into_raw` returns no null pointer.
        Ok(Self(unsafe { NonNull::new_unchecked(Box::into_raw(block)) }.cast()))
    }

    /// Returns the context for the kernel object. Valid until this is dropped, also after it is moved.
    pub const fn context(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// Calls the closure.
    ///
    /// # Safety
    /// `context` is from [`context`](Self::context) of a callback that is not dropped before this returns.
    pub unsafe fn call(context: *mut c_void) {
        // SAFETY: `context` returns the address of a block, which is not null.
        let block = unsafe { NonNull::new_unchecked(context.cast::<Header>()) };
        // SAFETY: the block is alive, and is only ever borrowed shared.
        let call = unsafe { block.as_ref() }.call;
        // SAFETY: `call` was stored with the block, so it knows its type.
        unsafe { call(block) };
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        // SAFETY: the block lives until the end of this function.
        let free = unsafe { self.0.as_ref() }.free;
        // SAFETY: `free` was stored with the block, so it knows its type. The block is freed once.
        unsafe { free(self.0) };
    }
}

/// # Safety
/// `block` starts a live `Block<F>`.
unsafe fn call<F: Fn()>(block: NonNull<Header>) {
    // SAFETY: this function's contract; the block is only ever borrowed shared.
    let block = unsafe { block.cast::<Block<F>>().as_ref() };
    (block.closure)();
}

/// # Safety
/// `block` starts a `Block<F>` from `Box::into_raw`, which is not used afterwards.
unsafe fn free<F>(block: NonNull<Header>) {
    // SAFETY: by this function's contract the block is a `Block<F>` from `Box::into_raw`, and given up here once.
    drop(unsafe { Box::from_raw(block.cast::<Block<F>>().as_ptr()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn context_stays_valid_when_the_callback_is_moved() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let callback = Callback::try_new(move || {
            seen.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        let context = callback.context();
        let moved = [callback];
        // SAFETY: the callback is alive in `moved`.
        unsafe { Callback::call(context) };
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(moved);
        assert_eq!(Arc::strong_count(&calls), 1);
    }
}
