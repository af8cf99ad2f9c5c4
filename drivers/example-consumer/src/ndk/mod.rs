// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK objects: created, used and closed safely.
//!
//! Each create, and each request with a completion routine, may complete inline or pend; [`pending`] waits for both at
//! `PASSIVE_LEVEL`. Posts never pend. Closing an object waits for the close, so that no callback of the object runs
//! afterwards.

mod adapter;
mod connector;
mod cq;
mod lam;
mod listener;
mod object;
mod pd;
mod pending;
mod qp;
mod region;

pub use adapter::Adapter;
pub use connector::{Connector, ReadLimits};
pub use cq::{Cq, arm, poll};
pub use lam::Lam;
pub use listener::Listener;
pub use pd::Pd;
pub use qp::{Poster, Qp, QpLimits};
pub use region::{Region, Target};
