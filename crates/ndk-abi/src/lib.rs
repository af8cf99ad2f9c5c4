// SPDX-License-Identifier: MIT OR Apache-2.0

#![allow(unsafe_code, reason = "declares the functions and structures of Windows")]
#![no_std]
//! NDKPI, NDIS, NT, IP helper and Winsock Kernel declarations of the Windows kernel for x64.
//!
//! Names are exactly those of the Windows headers, of NDIS 6.85 and NDKPI 2.1. The build script compares every
//! declaration with the table `abi-x64.toml` (`abi-x64.md` describes its sources): sizes, alignments, offsets,
//! member and parameter types, constants, exporting modules, and documented IRQLs. A declaration that is not in
//! the table fails the build, unless `abi-extra.toml` gives a reason and a source for it. A missing member,
//! dispatch entry or enumerator fails it, too.
//!
//! C declarations are translated as follows:
//!
//! * Enums are open: a transparent `i32` with one constant per enumerator, so that values of newer
//!   systems are preserved.
//! * Function types are pointers, `unsafe extern "efiapi"`: the calling convention of the Windows kernel, which
//!   Rust supports on other hosts, too. Members and parameters are `Option`s of them; null is `None`.
//! * An unnamed struct or union is a type named after its place, `NDK_SGE_Anonymous`,
//!   `CM_PARTIAL_RESOURCE_DESCRIPTOR_u`. Unused alternatives of a union are omitted.
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
pub mod wsk;

/// Assertions of the comparison with the table, written by `build/main.rs`.
mod checks {
    include!(concat!(env!("OUT_DIR"), "/checks.rs"));
}
