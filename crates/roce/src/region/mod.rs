// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains, memory regions, memory windows, logical address ranges (IBTA Volume 1, section 10.6).
//!
//! One table has every object that a key can name. A region registered by [`crate::MemoryCommands::register`] is used
//! as it is; a fast-registered region or a window has a `binding_slot`, which work requests turn on and off.
//! `access` reads and writes memory by key; `key_requests` executes registrations, binds and invalidations.

pub(crate) mod access;
pub(crate) mod access_rights;
pub(crate) mod binding_slot;
pub(crate) mod fast_register;
mod gate;
mod key_requests;
pub(crate) mod key_state;
pub(crate) mod memory_region;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod window;
