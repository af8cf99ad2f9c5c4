// SPDX-License-Identifier: MIT OR Apache-2.0

#![no_std]
//! NDKPI, NDIS, NT and IP helper as the Windows kernel for x64 has them.
//!
//! Names are those of the headers, letter for letter. Everything declared here is compared with the table
//! `abi-x64.toml` when the crate is built (`abi-x64.md` says where its facts come from): sizes, alignments,
//! offsets, member and parameter types, constants, exporting modules, and the IRQLs that docs state. A
//! declaration the table does not know fails the build, unless `abi-extra.toml` gives a reason and a source
//! for it; a member, a dispatch entry or an enumerator left out fails it too. Declared are NDIS 6.85 and
//! NDKPI 2.1.
//!
//! How C becomes Rust:
//!
//! * Enums are open: a transparent `i32` with one constant per enumerator, so that values from newer
//!   systems survive.
//! * Function types are pointers, `unsafe extern "efiapi"`, the one name Rust has for the convention of
//!   the Windows kernel on every architecture, usable on other hosts as well. Members and parameters hold
//!   them as `Option`, null being `None`.
//! * An unnamed struct or union is a type named after its place, `NDK_SGE_Anonymous`,
//!   `CM_PARTIAL_RESOURCE_DESCRIPTOR_u`. Alternatives of a union that have no use here are left out.
//! * Bit-fields are the integers that hold them.
//! * A pointer to a type the crate does not declare is a pointer to `c_void`.
//! * Every struct and union has `zeroed()`, a constant function, and `Default`, which is the same: NDIS
//!   and NT expect structures zeroed before use.
//!
//! Imports link against the import libraries `ntoskrnl`, `ndis`, `netio` and `cng`. Without Windows they are
//! declarations only; a crate that calls them must define them.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::upper_case_acronyms, clippy::doc_markdown, clippy::type_complexity)]
#![allow(clippy::unreadable_literal, clippy::cast_possible_wrap, clippy::pub_underscore_fields)]

pub mod cng;
pub mod ndis;
pub mod ndk;
pub mod netio;
pub mod nt;

/// Assertions of the comparison with the table, written by `build/main.rs`.
mod checks {
    include!(concat!(env!("OUT_DIR"), "/checks.rs"));
}
