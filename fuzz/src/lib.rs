// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fuzz targets of the RoCEv2 engine and of SMB Direct.
//!
//! A target is a function of bytes that panics if a property does not hold:
//!
//! | target | input | properties |
//! | --- | --- | --- |
//! | [`frames`] | a frame | a parsed frame encodes to the same bytes; a dropped frame has no effect |
//! | [`datagrams`] | a script of CM datagrams, commands and time | limits hold, at most one reply per datagram, every connection ends |
//! | [`sequences`] | a script of a connected peer's frames, forged frames, posts and time | each request completes once and in order; unregistered memory does not change; forged frames have no effect; everything is released |
//! | [`stash`] | messages of a peer whose packets are lost, repeated and reordered | messages complete as if all packets had arrived in order |
//! | [`transports`] | a script of two queue pairs of any transport, which their owners modify: posts, losses and time | each request completes once and in order, with a status that its transport has; a refused change changes nothing; unregistered memory does not change |
//! | [`smb_direct`] | a script of a peer's messages, upper-layer messages, receives and time | credits are kept in both directions; messages are reassembled to the same bytes; each is returned once; nothing is sent after the end |
//!
//! A script is a sequence of [records](record::Record) of one size, one per step, so that mutations of bytes move, duplicate
//! and change steps. Frames of a script have a valid ICRC unless their record says otherwise.
//!
//! The targets run in three ways: by libFuzzer (the binaries in `fuzz_targets`), by [`generate`] where libFuzzer is not
//! available, and by the tests over `seeds/`. The program `seeds` creates those from the captures of Linux peers in
//! `crates/roce-wire/tests/vectors` and `consumers/smb-direct/tests/vectors`.

#[allow(unsafe_code, reason = "memory that an engine accesses through raw pointers")]
mod arena;
mod captured;
pub mod datagrams;
mod endpoint;
mod forge;
pub mod frames;
pub mod generate;
mod keys;
pub mod record;
pub mod seeds;
pub mod sequences;
pub mod smb_direct;
mod smb_direct_seeds;
pub mod stash;
pub mod transports;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Maximum length of an input in bytes.
    pub max_len: usize,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target { name: "frames", run: frames::run, max_len: 1200 },
    Target { name: "datagrams", run: datagrams::run, max_len: record::LEN * 64 },
    Target { name: "sequences", run: sequences::run, max_len: record::LEN * 96 },
    Target { name: "stash", run: stash::run, max_len: record::LEN * stash::STEPS },
    Target { name: "transports", run: transports::run, max_len: record::LEN * transports::STEPS },
    Target { name: "smb-direct", run: smb_direct::run, max_len: record::LEN * 96 },
];

impl Target {
    /// Returns the target with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }
}
