// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDKPI 1.2, 2.0 and 2.1, and its interface to NDIS.

mod adapter;
mod cq;
mod endpoint;
mod miniport;
mod mr;
mod object;
mod pd;
mod qp;
mod srq;

pub use adapter::*;
pub use cq::*;
pub use endpoint::*;
pub use miniport::*;
pub use mr::*;
pub use object::*;
pub use pd::*;
pub use qp::*;
pub use srq::*;
