#![no_std]
//! NDKPI, NDIS and NT ABI for x64.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::upper_case_acronyms)]

pub mod ndis;
pub mod ndk;
pub mod netio;
pub mod nt;
