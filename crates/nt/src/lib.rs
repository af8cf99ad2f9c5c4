// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NT primitives that the driver is built on: IRQL, spin locks, time, events, DPCs, deferred work, timers, work items,
//! threads, rundown protection, memory descriptor lists, seeds of random numbers.
//!
//! One API with two implementations. With the feature `kernel`, on Windows, it calls the kernel's own functions
//! through `ndk-abi` (`kernel.rs`); otherwise it uses `std` (`hosted.rs`), so that everything above links into
//! user-mode programs: tests, Miri, sanitizers. The hosted implementation keeps the kernel's rules: it tracks an IRQL per
//! thread, a spin lock raises it, a timer callback runs at `DISPATCH_LEVEL`, a work item at `PASSIVE_LEVEL`.
//!
//! No function allocates infallibly: constructors that need pool return `Option`, through the crate `fallible`. This crate and the few FFI modules above it are the only places with `unsafe`.
#![allow(unsafe_code, reason = "calls the kernel, and gives it routines with contexts")]
#![cfg_attr(all(windows, feature = "kernel"), no_std)]

extern crate alloc;

mod callback;
mod deferred;
mod dpc;
mod event;
mod handover;
pub mod irql;
mod level;
mod lock;
mod mdl;
mod page;
pub mod processor;
mod random_seed;
mod rundown;
mod served_lock;
mod thread;
pub mod time;
mod timer;
mod turn;
mod work;

#[cfg(not(all(windows, feature = "kernel")))]
mod hosted;
#[cfg(all(windows, feature = "kernel"))]
mod kernel;

#[cfg(not(all(windows, feature = "kernel")))]
use hosted as sys;
#[cfg(all(windows, feature = "kernel"))]
use kernel as sys;

pub use deferred::{Deferred, Streak};
pub use dpc::{Dpc, flush_dpcs};
pub use event::Event;
pub use handover::{Handover, Next};
pub use lock::{RawSpinLock, SpinLock, SpinLockGuard};
pub use mdl::{Mapping, MdlChain, MdlError, Span};
pub use page::PAGE_SIZE;
pub use random_seed::random_seed;
pub use rundown::{Rundown, RundownGuard};
pub use served_lock::ServedLock;
pub use thread::{DriverObject, start_thread};
pub use timer::Timer;
#[cfg(not(all(windows, feature = "kernel")))]
pub use timer::with_timers_behind;
pub use turn::Turn;
pub use work::{Owner, ReusableWorkItem, Work, WorkItem};
