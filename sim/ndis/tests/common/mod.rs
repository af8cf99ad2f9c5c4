// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport written for tests, its device, and the driver's image.

pub mod device;
pub mod image;
pub mod lists;
pub mod scripted;
