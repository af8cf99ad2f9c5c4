// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames and their payload: frames that are built, and payload that is copied without the lock of the queue pair.

pub(crate) mod frame;
pub(crate) mod payload_copy;
pub(crate) mod pieces;
pub(crate) mod placement;
