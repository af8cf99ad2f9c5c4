// SPDX-License-Identifier: MIT OR Apache-2.0

//! A strict provider, for authors of NDK consumers (`docs/strict.md`). Everything here is off by default.
//!
//! | module | contents |
//! | --- | --- |
//! | `settings` | what can be set |
//! | `create_faults` | fails one create call |
//! | `held_callbacks` | holds back callbacks |

pub mod create_faults;
pub mod held_callbacks;
pub mod settings;
