// SPDX-License-Identifier: MIT OR Apache-2.0

//! Violations of the kernel's rules: how they are detected and reported.
//!
//! A violation is a bug check: the thread that committed it stops forever, and its host is dead from
//! then on (each of its other threads stops at its next import). The harness finds the [`Violation`] in
//! the [`Verdict`]. Other hosts continue, as they do when a peer crashes.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`codes`] | bug check codes |
//! | [`verdict`] | a violation, and the verdict of a simulation |
//! | [`report`] | reporting a violation of the calling thread |
//! | [`rules`] | the rules, the pages that state them, and the reports of their violations |
//! | [`objects`] | objects the image must release before it unloads |
//! | [`low_resources`] | allocations that fail on purpose |
//! | [`tolerance`] | faults of an image that are recorded, but are no violations |

pub mod codes;
pub mod low_resources;
pub mod objects;
pub mod report;
pub mod rules;
pub mod tolerance;
pub mod verdict;

pub use codes::BugCheck;
pub use report::{undocumented, undocumented_call, violation};
pub use rules::{Rule, broken};
pub use tolerance::{Tolerance, Tolerances};
pub use verdict::{Verdict, Violation};
