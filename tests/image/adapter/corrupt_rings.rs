// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that corrupt a ring and can reset a queue: the queue is reset alone, and everything else goes on. (virtio RING_RESET)

use std::{sync::Once, time::Duration};

use device_sim::{
    Quirks,
    virtio_net::{Features, RECEIVE, Role, UsedQuirk, interrupt_coalescing::Parameters},
};
use lab::testbed::{Options, Testbed};
use ndis_sim::SendId;
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use nt_sim::delays::Moment;
use support::{
    bed::{finish, miniport, started_with},
    copying::{copy, try_copy},
    faults::{event, events, exchange_frame},
    scaling::{options, udp},
    stalled::{await_events, send_many, statuses, variants},
};

/// The interrupt message of the receive queue of a single pair.
const RECEIVE_VECTOR: u16 = 1;

/// The command of VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET: class and command.
const COALESCE: [u8; 2] = [6, 2];

/// Longer than a reset takes.
const STEP: Duration = Duration::from_millis(10);

/// A frame that the second host sends to the first.
fn back() -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5][..], &[0; 86]].concat()
}

/// Has frames go both ways through the first pair, which frames other than IP use.
fn use_rings(bed: &Testbed) -> Vec<SendId> {
    let sends = send_many(bed);
    let _ = miniport(bed.machines()[1]).send_chain(&[back()], 0);
    sends
}

//= virtio §16
//= virtio §18
#[test]
fn queue_whose_ring_is_corrupt_is_reset_alone_and_sends_go_on() {
    for options in variants() {
        for quirk in [UsedQuirk::IdOutOfRange, UsedQuirk::IndexJump] {
            for role in [Role::Receive(0), Role::Transmit(0)] {
                let Some(bed) = started_with(&options) else { return };
                let machine = bed.machines()[0];
                copy(&bed);
                machine.nic().misbehavior().corrupt(role, quirk);
                let sends = use_rings(&bed);
                await_events(&bed, 1);
                let all = statuses(&bed, sends);
                assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "senders were resumed");
                copy(&bed);
                exchange_frame(&bed, 3);
                let log = machine.event_log();
                assert_eq!(events(machine), [event::QUEUE_CORRUPT], "{role:?}, {quirk:?}");
                assert_eq!(log[0].data[0], 0, "the number of the pair");
                assert!(miniport(machine).ndk().events().is_empty(), "RDMA stays enabled");
                finish(bed);
            }
        }
    }
}

/// The other pairs carry frames meanwhile, and the one that is reset does again.
#[test]
fn rings_of_any_pair_are_reset_alone() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..options(4, 4) }) else { return };
    let machine = bed.machines()[0];
    let frames: Vec<_> = (0..100).map(|flow| udp(1000 + flow, 0)).collect();
    for pair in 0..4 {
        machine.nic().misbehavior().corrupt(Role::Transmit(pair), UsedQuirk::IdOutOfRange);
        let sends = miniport(machine).send_chain(&frames, 0);
        let all = statuses(&bed, sends);
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "senders were resumed");
        // A pair whose frames need no slot looks at its ring when it sends again.
        statuses(&bed, miniport(machine).send_chain(&frames, 0));
        await_events(&bed, pair + 1);
        let log = machine.event_log();
        assert_eq!((log[pair].code & 0xffff, log[pair].data[0]), (event::QUEUE_CORRUPT, pair as u32));
    }
    copy(&bed);
    finish(bed);
}

/// Frames are lost, which RDMA sends again.
#[test]
fn connections_outlive_the_reset_of_a_queue_with_a_corrupt_ring() {
    for role in [Role::Receive(0), Role::Transmit(0)] {
        let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
        let nic = bed.machines()[0].nic().clone();
        let once = Once::new();
        let ends = try_copy(&bed, 4 << 20, move |at| {
            if at.done > 1 << 20 {
                once.call_once(|| nic.misbehavior().corrupt(role, UsedQuirk::IdOutOfRange));
            }
        });
        assert_eq!(events(bed.machines()[0]), [event::QUEUE_CORRUPT], "{role:?}");
        for end in ends {
            end.expect("the copy completes");
        }
        finish(bed);
    }
}

/// A device that goes on corrupting a ring is reset, and given up if that does not help.
#[test]
fn ring_that_is_corrupt_again_within_a_minute_costs_a_reset_of_the_device() {
    for role in [Role::Receive(0), Role::Transmit(0)] {
        let Some(bed) = started_with(&Options::default()) else { return };
        let machine = bed.machines()[0];
        let corrupt = |count| {
            machine.nic().misbehavior().corrupt(role, UsedQuirk::IdOutOfRange);
            let sends = use_rings(&bed);
            await_events(&bed, count);
            statuses(&bed, sends);
        };
        corrupt(1);
        corrupt(3);
        let of_the_device = [event::QUEUE_CORRUPT, event::BROKEN_RING, event::RECOVERED];
        assert_eq!(events(machine), of_the_device, "{role:?}");
        let _ = bed.event().wait(Duration::from_secs(61));
        corrupt(4);
        assert_eq!(events(machine)[3..], [event::QUEUE_CORRUPT], "{role:?}");
        let _ = bed.event().wait(Duration::from_millis(100));
        exchange_frame(&bed, 5);
        copy(&bed);
        finish(bed);
    }
}

/// Its queues begin anew with it.
#[test]
fn queue_of_a_device_that_has_failed_is_not_reset_alone() {
    let quirks = Quirks { reset_time: Duration::from_secs(1), ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    machine.nic().mask_vector(RECEIVE_VECTOR, true);
    machine.nic().misbehavior().corrupt(Role::Receive(0), UsedQuirk::IdOutOfRange);
    let _ = miniport(bed.machines()[1]).send_chain(&[back()], 0);
    let _ = bed.event().wait(Duration::from_millis(100));
    machine.nic().need_reset();
    machine.nic().mask_vector(RECEIVE_VECTOR, false);
    await_events(&bed, 2);
    assert_eq!(events(machine), [event::NEEDS_RESET, event::RECOVERED]);
    copy(&bed);
    finish(bed);
}

/// RDMA repeats what was lost meanwhile.
//= virtio §16
#[test]
fn connections_outlive_the_reset_of_a_corrupt_queue_that_takes_long() {
    for role in [Role::Receive(0), Role::Transmit(0)] {
        let quirks = Quirks { queue_reset_time: Duration::from_millis(1500), ..Quirks::default() };
        let options = Options { quirks, path_mtu: 1024, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        let (nic, once) = (bed.machines()[0].nic().clone(), Once::new());
        let ends = try_copy(&bed, 4 << 20, move |at| {
            if at.done > 1 << 20 {
                once.call_once(|| nic.misbehavior().corrupt(role, UsedQuirk::IdOutOfRange));
            }
        });
        assert_eq!(events(bed.machines()[0]), [event::QUEUE_CORRUPT, event::QUEUE_RESET_LATE], "{role:?}");
        for end in ends {
            end.expect("the copy completes");
        }
        finish(bed);
    }
}

/// Frames before the reset find a queue that is not used, and no second fault.
#[test]
fn queue_with_a_corrupt_ring_is_not_used_until_its_reset() {
    for options in variants() {
        for role in [Role::Receive(0), Role::Transmit(0)] {
            let Some(bed) = started_with(&options) else { return };
            let machine = bed.machines()[0];
            let reset = machine.host().delays.add(Moment::Call("an NDIS work item"), 2 * STEP);
            machine.nic().misbehavior().corrupt(role, UsedQuirk::IdOutOfRange);
            let mut sends = use_rings(&bed);
            let _ = bed.event().wait(STEP);
            assert!(reset.is_reached(), "{role:?}: the reset is late");
            sends.extend(use_rings(&bed));
            await_events(&bed, 1);
            statuses(&bed, sends);
            copy(&bed);
            assert_eq!(events(machine), [event::QUEUE_CORRUPT], "{role:?}");
            finish(bed);
        }
    }
}

/// The stream before the reset counts as one until frames show that it has ended.
//= virtio §12
#[test]
fn device_that_coalesces_interrupts_is_programmed_again_after_the_reset_of_a_receive_queue() {
    let features = Features::DEFAULT | Features::VQ_NOTF_COAL;
    let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
    let [sender, receiver] = bed.machines();
    let is_programmed = || receiver.nic().interrupt_parameters(RECEIVE) != Parameters::default();
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5][..], &[0; 1500]].concat();
    let _ = miniport(sender).send_chain(&vec![frame.clone(); 4000], 0);
    let _ = bed.event().wait(STEP);
    assert!(is_programmed(), "the interrupts of the stream are coalesced");
    let sent = receiver.nic().sent_commands(COALESCE);
    receiver.nic().misbehavior().corrupt(Role::Receive(0), UsedQuirk::IdOutOfRange);
    let _ = miniport(sender).send_chain(&[frame], 0);
    let _ = bed.event().wait(STEP);
    assert_eq!(events(receiver), [event::QUEUE_CORRUPT]);
    assert!(is_programmed(), "the queue is programmed again");
    assert_eq!(receiver.nic().sent_commands(COALESCE), sent + 1);
    finish(bed);
}
