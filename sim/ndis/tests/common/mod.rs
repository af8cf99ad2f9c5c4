// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport and a filter driver written for tests, their device, and the driver's image.

pub mod device;
pub mod filter;
pub mod image;
pub mod lists;
pub mod scripted;
pub mod tolerated;
