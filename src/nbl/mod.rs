// SPDX-License-Identifier: MIT OR Apache-2.0

//! NET_BUFFER_LISTs: lists of them, their data and information, and how far one has been sent.
#![allow(unsafe_code, reason = "structures that NDIS shares by pointers")]

mod data;
mod info;
mod list;
pub mod send_progress;

pub use data::{copy_data, data_len, has_data};
pub use info::{info, set_info};
pub use list::{NblList, WaitingSends};
