// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses while received frames are being indicated, and while sends wait: a pause completes after each call of
//! NdisMIndicateReceiveNetBufferLists has returned and each send is completed, as the simulated NDIS checks.

use std::time::Duration;

use lab::testbed::{Options, Testbed};
use ndis_sim::SendId;
use ndk_abi::ndis::{NDIS_STATUS_PAUSED, NDIS_STATUS_SEND_ABORTED, NDIS_STATUS_SUCCESS};
use nt_sim::delays::Moment;
use support::{
    bed::{finish, miniport, started_with},
    pause::pause_during_an_indication,
    scaling::{MOMENT, options, udp},
};

#[test]
fn pause_waits_for_the_indication_of_a_receive_dpc() {
    pause_during_an_indication(&Options::default(), None);
}

/// The other processors indicate the frames that one has received.
#[test]
fn pause_waits_for_indications_on_processors_that_frames_were_handed_over_to() {
    pause_during_an_indication(&options(1, 4), Some(&[3, 2]));
}

/// Sends a frame with this cancel ID while a watchdog check holds the lock of the transmit queue: its list is left to the holder, whose
/// deferred routine is late.
fn send_left_to_a_holder(bed: &Testbed, cancel_id: usize) -> SendId {
    let (machine, sender) = (bed.machines()[0], miniport(bed.machines()[0]));
    // Without a returned slot, the check restarts its timer, with the lock held.
    machine.nic().misbehavior().hang(0);
    assert_eq!(sender.send(&udp(1000, 0), MOMENT), Some(NDIS_STATUS_SUCCESS));
    let held = machine.host().delays.add(Moment::Enter("ExSetTimer"), Duration::from_micros(200));
    let deadline = bed.now() + MOMENT;
    while !held.is_reached() {
        assert!(bed.now() < deadline, "the check restarts its timer");
        let _ = bed.event().wait(Duration::from_micros(20));
    }
    machine.host().delays.add(Moment::Call("a DPC routine"), Duration::from_secs(2));
    sender.send_chain(&[udp(1000, 1)], cancel_id)[0]
}

#[test]
fn pause_aborts_a_send_whose_sender_found_the_queue_held() {
    let Some(bed) = started_with(&options(1, 4)) else { return };
    let sender = miniport(bed.machines()[0]);
    let left = send_left_to_a_holder(&bed, 0);
    sender.pause().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert_eq!(sender.send_status(left, Duration::ZERO), Some(NDIS_STATUS_PAUSED));
    sender.restart().unwrap();
    finish(bed);
}

#[test]
fn send_whose_sender_found_the_queue_held_can_be_canceled() {
    let Some(bed) = started_with(&options(1, 4)) else { return };
    let sender = miniport(bed.machines()[0]);
    let left = send_left_to_a_holder(&bed, 7);
    sender.cancel_sends(7);
    assert_eq!(sender.send_status(left, Duration::ZERO), Some(NDIS_STATUS_SEND_ABORTED));
    finish(bed);
}
