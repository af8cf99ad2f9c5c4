// SPDX-License-Identifier: MIT OR Apache-2.0

//! The image: loading, binding, symbols, stack walks, faults.
//!
//! Host-side code calls the image through [`call()`], so that stack walks find their way past the
//! host's own frames, the image runs on a kernel stack of its own, and the state in which a callback returns
//! (IRQL, locks) is checked.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`registers`] | the general registers of x64, and the context of a fault |
//! | [`frame`] | a walked stack, and a frame with its name |
//! | `code` | executable memory for generated code |
//! | `error` | reasons why an image is not loaded |
//! | `functions` | the exception directory |
//! | [`symbols`] | names from the PDB |
//! | `guard` | the functions that the image lists as targets of calls by address |
//! | `missing` | imports that the simulated kernel does not have |
//! | `references` | instructions that use a missing import |
//! | `thunk` | the code between the image's call of an import and the import |
//! | [`entry_points`] | functions that an image gets by address, in dispatch tables |
//! | [`load`] | mapping, relocating and binding an image |
//! | [`images`] | the images loaded on a host |
//! | `unwind` | from a frame to its caller |
//! | [`switch`] | the stack of the image, and that of the host |
//! | [`stack`] | walks of the calling thread's stack |
//! | [`call`](mod@call) | calls of the image |
//! | [`fault`] | faults, as bug checks |
//! | [`endless`] | the watchdog of code that does not end |
//! | `panics` | panics of functions in the place of an image's |
//! | `pauses` | instructions of waits for other processors |
//! | [`emulate`] | instructions that run in a kernel only |
//! | [`smallest`] | the smallest image, for tests |
//! | `detour` | from a fault to a function of the host, and back |

pub mod call;
mod code;
mod detour;
pub mod emulate;
pub mod endless;
pub mod entry_points;
mod error;
pub mod fault;
pub mod frame;
mod functions;
pub(crate) mod guard;
pub mod images;
pub mod load;
pub(crate) mod missing;
mod panics;
mod pauses;
mod references;
pub mod registers;
pub mod smallest;
pub mod stack;
pub mod switch;
pub mod symbols;
mod thunk;
mod unwind;

pub use call::{call, call_changing_level, call_ending, function};
pub use entry_points::EntryPoints;
pub use error::LoadError;
pub use frame::{Frame, Walk};
pub use load::Image;
pub use stack::stack_arguments;
