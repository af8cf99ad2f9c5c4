// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files by SMB Direct.

mod files;
mod gateway;
mod hostile;
