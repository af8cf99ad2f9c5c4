// SPDX-License-Identifier: MIT OR Apache-2.0

//! NT kernel: what drivers import from `ntoskrnl.exe`.

mod etw;
mod io;
mod memory;
mod runtime;
mod status;
mod sync;
mod types;

pub use etw::*;
pub use io::*;
pub use memory::*;
pub use runtime::*;
pub use status::*;
pub use sync::*;
pub use types::*;
