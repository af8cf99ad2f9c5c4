// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses while received frames are being indicated: a pause completes after each call of NdisMIndicateReceiveNetBufferLists has
//! returned, as the simulated NDIS checks.

use lab::testbed::Options;
use support::{pause::pause_during_an_indication, scaling::options};

#[test]
fn pause_waits_for_the_indication_of_a_receive_dpc() {
    pause_during_an_indication(&Options::default(), None);
}

/// The other processors indicate the frames that one has received.
#[test]
fn pause_waits_for_indications_on_processors_that_frames_were_handed_over_to() {
    pause_during_an_indication(&options(1, 4), Some(&[3, 2]));
}
