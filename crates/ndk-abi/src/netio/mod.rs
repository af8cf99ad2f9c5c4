// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel-mode IP helper: addresses, neighbors, routes (`netio.sys`).

mod addr;
mod interface;
mod neighbor;
mod route;
mod unicast;

pub use addr::*;
pub use interface::*;
pub use neighbor::*;
pub use route::*;
pub use unicast::*;
