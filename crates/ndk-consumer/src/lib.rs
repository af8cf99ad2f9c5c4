//! A consumer of NDKPI.
//!
//! Talks to a provider through the dispatch tables of its objects and through nothing else, as the
//! systems that use NDK do: `ndk-abi` is the only thing they share. [`Os`] is what it asks of its host.
pub mod os;

pub use os::Os;
