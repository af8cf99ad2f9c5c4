// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures of Linux peers: decoded and encoded again, replayed to either role, and their RDMA compared with descriptors.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests panic on failure")]

mod capture;
mod codec;
mod rdma;
mod replay;
