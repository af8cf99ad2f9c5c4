// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads of the simulation.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`shared`] | identity, and the gate a thread is parked at |
//! | [`current`](mod@current) | the calling thread: its host, CPU and IRQL |
//! | [`watchdog`] | limits of the time at `DISPATCH_LEVEL` |
//! | [`dispatch`] | running DPCs on top of the calling thread |
//! | [`running`] | owning a CPU while running; blocking |
//! | [`delayed`] | delays that a test has requested |
//! | [`level`] | raising and lowering the IRQL |
//! | [`interrupt`] | interrupt service routines |
//! | [`quick_level`] | the same where it is nothing but that |
//! | [`spawn`] | starting a thread and waiting for its end |

pub mod current;
pub mod delayed;
pub mod dispatch;
pub mod interrupt;
pub mod level;
pub mod quick_level;
pub mod running;
pub mod shared;
pub mod spawn;
pub mod watchdog;

pub use current::{Current, STACK_SIZE, Thread, current, try_current};
pub use shared::{ThreadId, ThreadShared};
pub use spawn::{JoinHandle, Lost};
