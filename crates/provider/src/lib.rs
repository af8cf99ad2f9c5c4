#![cfg_attr(not(test), no_std)]
//! NDKPI objects over the engine.
extern crate alloc;

pub mod host;
