// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of decoding and replaying the captures of Linux peers.

mod golden;
mod replay;
