// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the mitigations in `docs/threat-model.md`, and of the document's references to tests.

mod answers;
mod document;
mod early_placement;
mod floods;
pub(crate) mod forger;
mod numbers;
mod rnr;
mod stale;
mod stash;
mod stash_sharing;
mod unverified_sources;
