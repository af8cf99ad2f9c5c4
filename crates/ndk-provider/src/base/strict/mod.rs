// SPDX-License-Identifier: MIT OR Apache-2.0

//! A strict provider, for authors of NDK consumers (`docs/strict.md`): the feature `strict`. Every setting is off by
//! default. Without the feature, `absent` stands in: types that never exist, or do nothing.
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
//! | `absent` | what the provider uses of these without the feature |

#[cfg(feature = "strict")]
mod checker;
#[cfg(feature = "strict")]
mod create_faults;
#[cfg(feature = "strict")]
mod held_callbacks;
#[cfg(feature = "strict")]
mod mistake;
#[cfg(feature = "strict")]
mod outcome;
#[cfg(feature = "strict")]
mod reporter;
#[cfg(feature = "strict")]
mod settings;
#[cfg(feature = "strict")]
#[allow(unsafe_code, reason = "calls functions with objects of an erased type")]
mod tracked_objects;

// The tests are built with the feature: those of `absent` are all that uses it there.
#[cfg(any(not(feature = "strict"), test))]
#[cfg_attr(feature = "strict", allow(dead_code, reason = "only its tests use it"))]
#[allow(unsafe_code, reason = "frees the memory of objects of an erased type")]
mod absent;

#[cfg(not(feature = "strict"))]
pub use absent::{
    CallKind, Checker, CreateFaults, HeldCallbacks, Mistake, OpenObject, RetainedMemory, StrictSettings,
    Subject,
};
#[cfg(feature = "strict")]
pub use {
    checker::{Checker, Subject},
    create_faults::CreateFaults,
    held_callbacks::HeldCallbacks,
    mistake::{Mistake, MistakeReport},
    outcome::{CallKind, mistake},
    settings::{CallbackDelay, FailCreate, StrictSettings},
    tracked_objects::{OpenObject, RetainedMemory},
};
