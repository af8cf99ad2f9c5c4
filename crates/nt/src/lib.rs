//! The NT primitives the driver is built on: IRQL, spin locks, time, events, DPCs, timers, work items,
//! rundown protection, memory descriptor lists, entropy.
//!
//! One API, two backends: on Windows (and so in the driver image) the kernel's own functions through
//! `ndk-abi`; elsewhere `std`, so that everything above links natively for tests, Miri and sanitizers. The
//! host backend keeps the kernel's manners: it tracks a per-thread IRQL, a spin lock raises it, a timer
//! callback runs at `DISPATCH_LEVEL`, a work item at `PASSIVE_LEVEL`.
//!
//! Nothing here allocates without telling: constructors that need pool memory return `Option`, through the
//! `fallible` crate. This crate and the few FFI modules above it are the only places with `unsafe`.

#![cfg_attr(windows, no_std)]

extern crate alloc;

mod callback;
mod dpc;
mod entropy;
mod event;
pub mod irql;
mod lock;
mod mdl;
mod rundown;
pub mod time;
mod timer;
mod work;

#[cfg(not(windows))]
#[path = "host.rs"]
mod sys;
#[cfg(windows)]
#[path = "nt.rs"]
mod sys;

pub use dpc::Dpc;
pub use entropy::entropy;
pub use event::Event;
pub use lock::{RawSpinLock, SpinLock, SpinLockGuard};
pub use mdl::{Mapping, MdlChain, MdlError, PAGE_SIZE, Span};
pub use rundown::{Rundown, RundownGuard};
pub use timer::Timer;
pub use work::{Owner, WorkItem};
