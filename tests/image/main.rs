// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests on the image, most of them in virtual time, by theme.

#![cfg(target_os = "linux")]

mod adapter;
mod ethernet;
mod rdma;
mod scripts;
mod smb;
