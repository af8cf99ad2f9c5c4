// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two engines and a virtual network between them, as all tests here use them.

pub use roce_testkit::*;
