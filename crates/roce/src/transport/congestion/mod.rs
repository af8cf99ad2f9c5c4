// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion control of a queue pair: congestion notification packets, and the rate of DCQCN.

pub(crate) mod cnp;
pub(crate) mod rate;
