// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that no longer take frames to send: the transmit queue is reset if the device can do that. (virtio RING_RESET)

use std::time::Duration;

use device_sim::Quirks;
use lab::testbed::Options;
use ndk_abi::ndis::{NDIS_STATUS_MEDIA_DISCONNECTED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS};
use support::{
    bed::{finish, miniport, started_with},
    copying::{copy, try_copy},
    scaling::{options, udp},
    stalled::{
        QUEUE_RESET, QUEUE_RESET_LATE, RECOVERED, TRANSMIT_STALLED, await_events, events, send_many,
        statuses, variants,
    },
};

//= virtio §16
#[test]
fn transmit_queue_that_stalls_is_reset_alone_and_sends_go_on() {
    for options in variants() {
        let Some(bed) = started_with(&options) else { return };
        copy(&bed);
        let nic = bed.machines()[0].nic();
        // Frames other than IP are sent by the first pair.
        nic.misbehavior().hang(0);
        let sends = send_many(&bed);
        let waited = await_events(&bed, 1);
        assert!((1000..1500).contains(&waited.as_millis()), "{waited:?}");
        let all = statuses(&bed, sends);
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "senders were resumed");
        assert_eq!(events(bed.machines()[0])[0], QUEUE_RESET);
        assert!(!events(bed.machines()[0]).contains(&RECOVERED));
        assert!(nic.is_running());
        copy(&bed);
        finish(bed);
    }
}

/// Each queue is reset by itself, also shortly after another one.
//= virtio §16
#[test]
fn transmit_queues_that_stall_one_after_the_other_are_each_reset() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..options(4, 4) }) else { return };
    let nic = bed.machines()[0].nic();
    // Of many flows, so that each pair sends some.
    let frames: Vec<_> = (0..100).map(|flow| udp(1000 + flow, 0)).collect();
    for pair in 0..4 {
        nic.misbehavior().hang(pair);
        let sends = miniport(bed.machines()[0]).send_chain(&frames, 0);
        await_events(&bed, pair + 1);
        let all = statuses(&bed, sends);
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "senders were resumed");
    }
    assert_eq!(events(bed.machines()[0]), [QUEUE_RESET; 4]);
    copy(&bed);
    finish(bed);
}

/// The device hangs in the middle of a copy. Retries of RDMA last longer than it takes to notice that.
#[test]
fn connections_outlive_the_reset_of_a_transmit_queue() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
    let nic = bed.machines()[0].nic().clone();
    let once = std::sync::Once::new();
    let ends = try_copy(&bed, 4 << 20, move |at| {
        if at.done > 1 << 20 {
            once.call_once(|| nic.misbehavior().hang(0));
        }
    });
    assert_eq!(events(bed.machines()[0]), [QUEUE_RESET]);
    for end in ends {
        end.expect("the copy completes");
    }
    finish(bed);
}

/// A device that takes a minute for the reset of a queue is slow, not broken: frames that cannot wait are not sent, and nothing else is reset.
//= virtio §16
#[test]
fn reset_of_a_queue_that_lasts_is_waited_for() {
    const LASTS: Duration = Duration::from_secs(60);
    let quirks = Quirks { queue_reset_time: LASTS, ..Quirks::default() };
    for options in variants() {
        let Some(bed) = started_with(&Options { quirks, ..options }) else { return };
        let machine = bed.machines()[0];
        machine.nic().misbehavior().hang(0);
        let sends = send_many(&bed);
        let waited = await_events(&bed, 1);
        assert!((2000..2600).contains(&waited.as_millis()), "{waited:?}");
        let began = bed.now();
        let all = statuses(&bed, sends);
        assert!(all.contains(&NDIS_STATUS_RESOURCES), "what waited was not sent");
        assert!(bed.now().saturating_sub(began) < Duration::from_secs(8));
        await_events(&bed, 2);
        let before = bed.now();
        assert!(statuses(&bed, send_many(&bed)).iter().all(|&status| status == NDIS_STATUS_RESOURCES));
        assert!(bed.now().saturating_sub(before) < Duration::from_secs(1));
        while bed.now() < began + LASTS {
            let _ = bed.event().wait(Duration::from_secs(5));
        }
        assert_eq!(events(machine), [QUEUE_RESET_LATE, TRANSMIT_STALLED, QUEUE_RESET]);
        let all = statuses(&bed, send_many(&bed));
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "sends go on");
        copy(&bed);
        finish(bed);
    }
}

/// Each takes almost a second, or does not end: power is lost and returns within the time that NDIS allows.
#[test]
fn power_state_is_not_late_when_resets_of_all_queues_last() {
    const LIMIT: Duration = Duration::from_secs(10);
    for time in [Duration::from_millis(950), Duration::MAX] {
        let quirks = Quirks { queue_reset_time: time, ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, path_mtu: 1024, ..options(8, 8) }) else { return };
        let (nic, miniport) = (bed.machines()[0].nic().clone(), miniport(bed.machines()[0]));
        for pair in 0..8 {
            nic.misbehavior().hang(pair);
        }
        let frames: Vec<_> = (0..200).map(|flow| udp(1000 + flow, 0)).collect();
        let sends = miniport.send_chain(&frames, 0);
        await_events(&bed, 1);
        let opened = miniport.ndk().open(2, 0).expect("RDMA is on");
        let before = bed.now();
        miniport.sleep().unwrap();
        assert!(bed.now() < before + LIMIT, "{time:?}: {:?}", bed.now().saturating_sub(before));
        miniport.wake().unwrap();
        statuses(&bed, sends);
        assert!(!events(bed.machines()[0]).contains(&RECOVERED), "{:?}", events(bed.machines()[0]));
        miniport.ndk().close(opened).unwrap();
        copy(&bed);
        finish(bed);
    }
}

/// Frames wait for five seconds, then a moment each.
#[test]
fn queue_that_stalls_again_is_waited_for() {
    let Some(bed) = started_with(&Options::default()) else { return };
    for count in [1, 2] {
        bed.machines()[0].nic().misbehavior().hang(0);
        let sends = send_many(&bed);
        await_events(&bed, count);
        let all = statuses(&bed, sends);
        assert_eq!(all.contains(&NDIS_STATUS_RESOURCES), count == 2, "what waited was not sent");
    }
    assert_eq!(events(bed.machines()[0]), [QUEUE_RESET, TRANSMIT_STALLED]);
    let before = bed.now();
    let all = statuses(&bed, send_many(&bed));
    assert!(all.iter().all(|&status| status == NDIS_STATUS_RESOURCES));
    assert!(bed.now().saturating_sub(before) < Duration::from_millis(300));
    finish(bed);
}

/// Pauses that are each shorter than the time after which a queue is reset are no reason for it, however many there are.
#[test]
fn queue_that_pauses_and_goes_on_is_not_reset() {
    let Some(bed) = started_with(&Options::default()) else { return };
    for _ in 0..6 {
        bed.machines()[0].nic().pause_sending(Duration::from_millis(600));
        let all = statuses(&bed, send_many(&bed));
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS));
    }
    assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
    finish(bed);
}

/// Frames that the device holds while there is no link are no reason for a reset.
#[test]
fn queue_may_stall_while_the_link_is_down() {
    let Some(bed) = started_with(&Options::default()) else { return };
    let nic = bed.machines()[0].nic().clone();
    nic.misbehavior().hang(0);
    let sends = send_many(&bed);
    nic.set_link(false);
    let _ = bed.event().wait(Duration::from_secs(30));
    assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
    nic.set_link(true);
    await_events(&bed, 1);
    assert_eq!(events(bed.machines()[0]), [QUEUE_RESET]);
    statuses(&bed, sends);
    finish(bed);
}

/// Waiting sends are completed when the link goes down, and so are later ones until it is up again: NDIS expects sends to end within seconds.
#[test]
fn sends_without_a_link_are_completed_at_once() {
    for options in variants() {
        let Some(bed) = started_with(&options) else { return };
        let nic = bed.machines()[0].nic().clone();
        nic.misbehavior().hang(0);
        let waiting = send_many(&bed);
        let _ = bed.event().wait(Duration::from_millis(10));
        nic.set_link(false);
        let down = bed.now();
        let all = statuses(&bed, waiting);
        let sent = all.iter().filter(|&&status| status == NDIS_STATUS_SUCCESS).count();
        assert!((1..300).contains(&sent), "{sent} of 300 have a slot each");
        assert!(all[..sent].iter().all(|&status| status == NDIS_STATUS_SUCCESS), "the first ones");
        assert!(
            all[sent..].iter().all(|&status| status == NDIS_STATUS_MEDIA_DISCONNECTED),
            "{:?}",
            all[sent]
        );
        let refused = statuses(&bed, send_many(&bed));
        assert!(refused.iter().all(|&status| status == NDIS_STATUS_MEDIA_DISCONNECTED), "{:?}", refused[0]);
        assert!(bed.now() < down + Duration::from_millis(500), "{:?}", bed.now().saturating_sub(down));
        nic.set_link(true);
        await_events(&bed, 1);
        assert_eq!(events(bed.machines()[0]), [QUEUE_RESET]);
        let all = statuses(&bed, send_many(&bed));
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS));
        copy(&bed);
        finish(bed);
    }
}

/// The queue stalls while the adapter waits for a consumer before a low power state, which it then wakes up from with an empty one.
#[test]
fn queue_that_stalled_before_a_low_power_state_is_not_reset_after_it() {
    let Some(bed) = started_with(&Options::default()) else { return };
    let (nic, miniport) = (bed.machines()[0].nic().clone(), miniport(bed.machines()[0]));
    let opened = miniport.ndk().open(2, 0).expect("RDMA is on");
    nic.misbehavior().hang(0);
    // They have a slot each.
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0; 46]].concat();
    let sends = miniport.send_chain(&vec![frame; 10], 0);
    let before = bed.now();
    miniport.sleep().unwrap();
    assert!(bed.now() > before + Duration::from_secs(2), "it has waited for the consumer");
    miniport.wake().unwrap();
    let _ = bed.event().wait(Duration::from_secs(10));
    assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
    assert!(statuses(&bed, sends).iter().all(|&status| status == NDIS_STATUS_SUCCESS));
    miniport.ndk().close(opened).unwrap();
    copy(&bed);
    finish(bed);
}
