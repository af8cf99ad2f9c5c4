//! What is done to the engine with bytes that nobody has thought of.
//!
//! A target is a function of bytes that panics if something does not hold:
//!
//! | target | bytes are | what holds |
//! | --- | --- | --- |
//! | [`frames`] | a frame | a parsed frame is written back as it was; a dropped one changes nothing |
//! | [`datagrams`] | a script of CM datagrams, commands and time | bounds, one answer at most, an end for everything |
//! | [`sequences`] | a script of a connected peer's frames, strangers' frames, posts and time | each request completes once and in order; memory that was not given stays as it is; strangers change nothing; nothing is left |
//!
//! A script is a row of [records](record::Record) of one size, each a step, so that what a fuzzer does to bytes
//! moves, doubles, and changes steps. Frames of a script have a valid ICRC unless their record says otherwise.
//!
//! The same targets are run three ways: by libFuzzer (the binaries in `fuzz_targets`), by [`generate`] where
//! libFuzzer cannot be had, and by the tests over `seeds/`. The program `seeds` makes those from the captures
//! of real peers in `crates/roce-wire/tests/vectors`.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory that an engine accesses through raw pointers")]
mod arena;
pub mod datagrams;
mod forge;
pub mod frames;
pub mod generate;
mod host;
pub mod record;
pub mod seeds;
pub mod sequences;

/// A target's name and function.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Bytes of an input at most.
    pub max_len: usize,
}

/// All targets.
pub const TARGETS: [Target; 3] = [
    Target { name: "frames", run: frames::run, max_len: 1200 },
    Target { name: "datagrams", run: datagrams::run, max_len: record::LEN * 64 },
    Target { name: "sequences", run: sequences::run, max_len: record::LEN * 96 },
];

impl Target {
    /// The target of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }
}
