// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replays captures of Linux peers with the engine in place of either side.
//!
//! For each capture and each side, an engine receives the frames that this side received, at the same times, and its
//! consumer makes the requests that this side's consumer made. The frames that the engine sends are compared with those
//! that the host sent, in the order of each connection. The contents of memory are compared, too. A difference is a
//! defect, or is listed with its reason.
//!
//! | module | what it does |
//! | --- | --- |
//! | `infer` | infers hosts, connections and consumer requests from the frames |
//! | `setup` | facts that the frames do not show: losses behind the capture point, settings of the consumers |
//! | `player` | drives the engine, and translates the identifiers that each side chooses |
//! | `normalized` | a frame without the fields that each side may choose |
//! | `difference`, `reasons` | how two sequences differ, and why they may |
//! | `side` | replays both sides of one capture and compares them |
//! | `report` | the results of all captures |

mod difference;
mod infer;
mod memory;
mod normalized;
mod player;
mod reasons;
mod report;
mod setup;
mod side;

pub use self::{
    difference::Difference,
    normalized::NormalizedFrame,
    reasons::{REASONS, Reason},
    report::Report,
    setup::{CaptureSetup, SETUPS},
    side::{SideResult, play, play_frames},
};
