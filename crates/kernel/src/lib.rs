#![cfg_attr(windows, no_std)]
//! NT primitives.
