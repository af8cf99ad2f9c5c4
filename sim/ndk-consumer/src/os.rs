//! What a consumer needs of the system it runs on.
//!
//! A simulated host and a native one each implement [`Os`]; nothing else of a system is used, so that
//! virtual time stays virtual and every block is one the scheduler knows of. The consumer holds none of
//! its own locks while it calls into the provider or into its `Os`.

use core::ptr::NonNull;
use core::time::Duration;

use ndk_abi::nt::MDL;

/// A host: clock, events, threads, memory.
pub trait Os: Send + Sync + 'static {
    type Event: Event;
    type Buffer: Buffer;
    type Thread: Thread;

    /// Time since some fixed moment. Any IRQL.
    fn now(&self) -> Duration;

    /// A new event, not signaled.
    fn event(&self) -> Self::Event;

    /// Non-paged memory of `length` bytes, not 0, zeroed, page aligned. `None`: memory has run dry.
    fn allocate(&self, length: usize) -> Option<Self::Buffer>;

    /// Runs `body` on a thread of its own at `PASSIVE_LEVEL`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Self::Thread;

    /// Runs `call`, which calls a function of the provider once, from a consumer's thread or callback.
    /// A host may check around it that IRQL and locks are as they were.
    fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        call()
    }

    /// The provider has called the consumer's function `name`. A host may check where.
    fn called_back(&self, name: &'static str) {
        let _ = name;
    }
}

/// A synchronization event: a wait that is satisfied clears it.
pub trait Event: Send + Sync {
    /// Signals the event. IRQL <= `DISPATCH_LEVEL`.
    fn set(&self);

    /// Waits until the event is signaled or `timeout` is over; `None` waits for ever. Returns whether it
    /// was signaled. `PASSIVE_LEVEL`.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// Memory that is there as long as the value is.
///
/// # Safety
/// [`mdl`](Self::mdl) describes exactly the `len` bytes at [`address`](Self::address), its pages locked;
/// both stay valid and unchanged until the value is dropped, also when it is moved.
pub unsafe trait Buffer: Send + Sync {
    /// The first byte, page aligned.
    fn address(&self) -> NonNull<u8>;

    /// Size in bytes.
    fn len(&self) -> usize;

    /// The list that describes the whole buffer.
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
