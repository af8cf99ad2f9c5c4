// SPDX-License-Identifier: MIT OR Apache-2.0

//! NT kernel: what drivers import from `ntoskrnl.exe`.

mod device;
mod etw;
mod file;
mod irp;
mod memory;
mod resource;
mod runtime;
mod status;
mod sync;
mod types;

pub use device::*;
pub use etw::*;
pub use file::*;
pub use irp::*;
pub use memory::*;
pub use resource::*;
pub use runtime::*;
pub use status::*;
pub use sync::*;
pub use types::*;
