// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter as Windows sees it: loading, attributes, OIDs, start and stop, power, failures of the device and recovery, and time at
//! `DISPATCH_LEVEL`.

mod adapters;
mod attributes;
mod bring_up;
mod corrupt_rings;
mod debugger;
mod dispatch_time;
mod etw;
mod events;
mod foreign;
mod halt;
mod line;
mod miniport;
mod pause;
mod power;
mod profiles;
mod recovery;
mod slow;
mod stalled;
mod trace;
mod wmi;
