//! A simulated NT kernel: an environment for NDIS 6.x and NDK driver images on Linux x86-64.
//!
//! It maps a kernel-mode PE image, binds its imports to functions written from their
//! documentation, runs its DPCs, timers and work items with real IRQL semantics on simulated CPUs,
//! and verifies it at the same time, as Driver Verifier would. It knows nothing of any particular
//! driver.
//!
//! The crate is empty on other systems than x86-64 Linux, so that the whole workspace builds there.
//!
//! # How it is driven
//!
//! A [`Sim`] holds hosts, a clock and the events of the simulated hardware. A [`Host`] is one
//! machine: physical memory, CPUs, one loaded image with its own globals. The thread that builds
//! the [`Sim`] is its *harness thread*: it spawns system threads on hosts ([`Host::spawn`]), waits
//! for them, and reads the [verdict](Sim::verdict). Everything that blocks, on every thread, blocks
//! through the clock, so that the same run is either real time on real threads
//! ([`ClockKind::Threaded`]) or one thread at a time in virtual time, replayed bit for bit from a
//! seed ([`ClockKind::Deterministic`]).
//!
//! # Where what is
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`clock`] | time, and who runs |
//! | [`cpu`] | IRQL, dispatch tokens, DPC queues, interrupts |
//! | [`memory`] | physical pages, kernel addresses, pool, MDLs |
//! | [`image`] | loading, binding, symbols, stack walks, faults |
//! | [`verifier`] | violations and their reports, leaks |
//! | [`import`] | how an import is declared, and the registry of all of them |
//! | [`nt`], [`ndis`], [`netio`], [`cng`] | the imports |
//! | [`device`], [`wire`], [`pcapng`] | the NIC, the network between hosts, captures |
//!
//! # Rules for code in this crate
//!
//! * Block only through [`clock`]: waits, delays, tokens. Never hold a host-side mutex while
//!   blocking, while calling into the image, or while reporting a violation.
//! * Nothing that the image can observe may depend on addresses, on the order of a hash map, or on
//!   real time when the clock is deterministic.
//! * Memory named by the image is touched through [`guest`] only.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod clock;
pub mod cng;
pub mod cpu;
mod driver;
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
pub use event::Event;
pub use event_queue::EventId;
pub use host::{Host, HostId};
pub use irql::Irql;
pub use sim::{Sim, SimBuilder};
pub use thread::{Current, JoinHandle, current};
pub use verifier::{BugCheck, Verdict, Violation, violation};
