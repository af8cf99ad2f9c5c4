// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system services that the consumer uses.
//!
//! The simulated kernel and the native process each implement [`Os`]. The consumer uses no other service of the system, so
//! that time can be virtual and a scheduler sees every wait. It holds no lock while it calls the provider or the `Os`.

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::time::Duration;

use ndk_abi::nt::MDL;

/// A system: clock, events, threads, memory.
pub trait Os: Send + Sync + 'static {
    type Event: Event;
    type Buffer: Buffer;
    type Lock<T: Send>: Lock<T>;

    /// Returns the time since a fixed moment. Any IRQL.
    fn now(&self) -> Duration;

    /// Returns a new event, not signaled.
    fn event(&self) -> Self::Event;

    /// Allocates `length` bytes of non-paged memory, at least 1, zeroed and page-aligned; `None` if there is none.
    fn allocate(&self, length: usize) -> Option<Self::Buffer>;

    /// Runs `call`, which calls one function of the provider. An implementation may check that the call leaves IRQL and
    /// locks unchanged.
    fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        call()
    }

    /// Runs `body`, the consumer's callback `name`, which the provider has called. An implementation may check the
    /// IRQL, and may run `body` on another stack.
    fn callback<R>(&self, name: &'static str, body: impl FnOnce() -> R) -> R {
        let _ = name;
        body()
    }
}

/// A system that starts threads for the consumer.
pub trait Threads: Os {
    type Thread: Thread;

    /// Starts a thread that runs `body` at `PASSIVE_LEVEL`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Self::Thread;
}

/// A value behind a lock.
pub trait Lock<T>: Send + Sync {
    fn new(value: T) -> Self;

    /// Calls `body` with the value while the lock is held. `body` does not wait, and calls neither the provider nor the
    /// `Os`. IRQL <= `DISPATCH_LEVEL`.
    fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R;
}

/// A synchronization event: a satisfied wait resets it.
pub trait Event: Send + Sync {
    /// Signals the event. IRQL <= `DISPATCH_LEVEL`.
    fn set(&self);

    /// Waits until the event is signaled, or up to `timeout`. Returns whether it was signaled. `PASSIVE_LEVEL`.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// Memory that stays allocated while the value exists.
///
/// # Safety
/// [`mdl`](Self::mdl) describes exactly the `len` bytes at [`address`](Self::address), its pages locked;
/// both stay valid and unchanged until the value is dropped, even if it is moved.
pub unsafe trait Buffer: Send + Sync {
    /// Returns the address of the first byte, page-aligned.
    fn address(&self) -> NonNull<u8>;

    /// Returns the size in bytes.
    fn len(&self) -> usize;

    /// Returns the MDL of the whole buffer.
    fn mdl(&self) -> NonNull<MDL>;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A running thread.
pub trait Thread: Send {
    /// Waits until the thread has ended. `PASSIVE_LEVEL`.
    fn join(self);
}
