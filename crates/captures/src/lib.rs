// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures of RoCEv2 traffic: read from files, decoded, checked and replayed.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`mod@file`] | reads pcap and pcapng files, frame by frame |
//! | [`decode`] | decodes a frame as the engine does, and checks that encoding it again gives the same bytes |
//! | [`icrc`] | checks the invariant CRC independently of the engine's code |
//! | [`replay`] | replays captures of Linux peers with the engine in place of either side |
//!
//! Everything here runs on a build machine. Users are the commands that decode and replay captures, and tests. Files are
//! not trusted: an invalid frame is reported, and never panics.

pub mod decode;
pub mod file;
pub mod icrc;
pub mod replay;
