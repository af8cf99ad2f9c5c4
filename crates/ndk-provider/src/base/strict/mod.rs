// SPDX-License-Identifier: MIT OR Apache-2.0

//! A strict provider, for authors of NDK consumers (`docs/strict.md`). Everything here is off by default.
//!
//! | module | contents |
//! | --- | --- |
//! | `settings` | what can be set |
//! | `create_faults` | fails one create call |
//! | `held_callbacks` | holds back callbacks |
//! | `mistake` | the mistakes of consumers that are reported, with their rules |
//! | `outcome` | from the status of a call to the mistake that is its reason |
//! | `reporter` | reports, and limits their number |
//! | `tracked_objects` | the open objects, and the memory of closed ones |
//! | `checker` | all of these for one provider |

pub mod checker;
pub mod create_faults;
pub mod held_callbacks;
pub mod mistake;
pub mod outcome;
pub mod reporter;
pub mod settings;
#[allow(unsafe_code, reason = "calls functions with objects of an erased type")]
pub mod tracked_objects;
