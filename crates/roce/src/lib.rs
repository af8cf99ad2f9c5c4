#![cfg_attr(not(test), no_std)]
//! Sans-IO RoCEv2.
extern crate alloc;

pub mod icrc;
pub mod wire;
