// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exported functions, called as C programs call them.
