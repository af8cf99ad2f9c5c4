// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness of all tests here: two engines on a virtual network.

pub use roce_testkit::*;
