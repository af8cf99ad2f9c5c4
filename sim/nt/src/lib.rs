// SPDX-License-Identifier: MIT OR Apache-2.0

//! A simulated NT kernel: runs and verifies driver images on Linux x86-64.
//!
//! It maps a kernel-mode PE image, binds its imports to functions written from their
//! documentation, runs its DPCs, timers and work items with real IRQL semantics on simulated CPUs,
//! and verifies it at the same time, as Driver Verifier does. It contains nothing specific to one driver,
//! and neither NDIS nor devices: those are [`Subsystem`](host::Subsystem)s that register their imports and
//! their state.
//!
//! The crate is empty on other systems than x86-64 Linux, so that the whole workspace builds there.
//!
//! # How it is driven
//!
//! A [`Sim`] holds hosts, a clock and the events of the simulated hardware. A [`Host`] is one
//! machine: physical memory, CPUs, the loaded images, each with its own globals. The thread that builds
//! the [`Sim`] is its *harness thread*: it spawns system threads on hosts ([`Host::spawn`]), waits
//! for them, and reads the [verdict](Sim::verdict). Everything that blocks, on every thread, blocks
//! through the clock, so that the same run is either real time on real threads
//! ([`ClockKind::Threaded`]) or one thread at a time in virtual time, replayed bit for bit from a
//! seed ([`ClockKind::Deterministic`]).
//!
//! # Modules
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`irql`], [`guest`] | interrupt request levels; pointers of the image |
//! | [`clock`], [`event_queue`] | time and scheduling; events of simulated hardware |
//! | [`cpu`] | dispatch tokens, DPC queues |
//! | [`memory`] | physical pages, kernel addresses, pool |
//! | [`delays`] | threads delayed at chosen moments |
//! | [`world`], [`host`], [`services`] | what hosts share; one host; state of subsystems |
//! | [`thread`] | the calling thread, IRQL changes, interrupts, spawning |
//! | [`image`] | loading, binding, symbols, stack walks, faults |
//! | [`driver`] | loading, starting and unloading drivers |
//! | [`dump`] | a copy of a host's memory, for debugger scripts |
//! | [`verifier`] | violations and their reports, leaks |
//! | [`import`] | declaring imports; the table an image is bound to |
//! | [`nt`], [`cng`] | the imports of `ntoskrnl.exe` and `cng.sys` |
//! | [`sim`] | a simulation, and the threads that serve its hosts |
//!
//! # Rules for code in this crate
//!
//! * Block only through [`clock`]: waits, delays, tokens. Never hold a host-side mutex while
//!   blocking, while calling into the image, or while reporting a violation.
//! * Nothing that the image can observe may depend on addresses, on the order of a hash map, or on
//!   real time when the clock is deterministic.
//! * Memory that the image names by pointer is accessed through [`guest`] only.
#![allow(unsafe_code, reason = "implements functions that drivers call with pointers, and runs their image")]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod clock;
pub mod cng;
pub mod cpu;
pub mod delays;
pub mod driver;
pub mod dump;
pub mod event;
pub mod event_queue;
pub mod guest;
pub mod host;
pub mod image;
pub mod import;
pub mod irql;
pub mod memory;
pub mod nt;
pub mod services;
pub mod sim;
pub mod thread;
pub mod verifier;
pub mod world;

pub use clock::ClockKind;
pub use driver::{Driver, DriverOptions};
pub use event::Event;
pub use event_queue::EventId;
pub use host::{Host, HostId};
pub use irql::Irql;
pub use sim::{Sim, SimBuilder};
pub use thread::{Current, JoinHandle, current};
pub use verifier::{BugCheck, Tolerance, Tolerances, Verdict, Violation, violation};
