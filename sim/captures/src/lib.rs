//! Captures of RoCEv2 traffic: read from files, told in words, checked by a second opinion.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`file`] | reads pcap and pcapng files, frame by frame |
//! | [`decode`] | says what a frame is, as the engine reads it, and whether encoding it again gives the same bytes |
//! | [`icrc`] | computes the invariant CRC without any of the engine's code |
//! | [`replay`] | plays captures of Linux peers again, with the engine in the place of either side |
//!
//! Everything here runs on a build machine: `cargo xtask decode` and tests are its users. Nothing in a file is
//! trusted; a frame that makes no sense is a frame that is reported.
#![deny(unsafe_code)]

pub mod decode;
pub mod file;
pub mod icrc;
pub mod replay;
