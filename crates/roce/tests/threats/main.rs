// SPDX-License-Identifier: MIT OR Apache-2.0

//! What holds against whom: the tests that `docs/threat-model.md` names, and that it names none but those that
//! there are.

mod answers;
mod document;
mod forger;
mod numbers;
mod storms;
mod strangers;
