// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rounds of the provider's deferred routine: what a call or a round leaves is processed without another call or frame.

use crate::support::*;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{CallbackDelay, Config, StrictSettings, Timing};
use std::time::Duration;

/// Timers that do not expire during a test: nothing is sent again, and no peer is probed.
fn without_timers() -> Config {
    let never = Duration::from_secs(3600);
    let timing = Timing { ack_timeout: never, min_resend: never, ..Timing::default() };
    Config { timing, ..Config::default() }
}

//= R-INFO-29
#[test]
fn message_to_the_own_address_is_delivered_and_acknowledged_without_a_timer() {
    let (a, _b) = pair_with(without_timers());
    let (active, passive, listener) = connect_over(&a, &a, a.at(0), a.at(445));
    for _ in 0..10 {
        send_one(&active, &passive);
    }
    active.close();
    passive.close();
    listener.close();
}

/// Packets arrive by the second of two shards: the first one is asked for nothing, and no timer follows.
#[test]
fn post_transmits_in_the_shard_of_its_queue_pair() {
    let (a, b) = pair_with(Config { shards: 2, ..without_timers() });
    let (active, passive, listener) = connect(&a, &b);
    for _ in 0..10 {
        send_one(&active, &passive);
        send_one(&passive, &active);
    }
    active.close();
    passive.close();
    listener.close();
}

/// The post is the only event: no frame arrives, and the timers of the connection have ended.
//= R-CQ-1, R-QP-64
#[test]
fn receive_that_is_flushed_when_it_is_posted_is_notified() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    close!(active.connector, NdkCloseConnector);
    passive.disconnected.wait(1);
    passive.close();
    listener.close();
    // TIME_WAIT takes 2.2 s.
    std::thread::sleep(Duration::from_secs(4));
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(active.cq.notified.wait(1), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
}

/// The removal reaches the connector, which comes after many other objects, in one of many rounds.
//= R-PNP-8, R-PNP-10, R-IRQL-10
#[test]
fn removal_ends_a_connection_behind_many_other_objects() {
    let (a, b) = pair_with(without_timers());
    let others: Vec<_> = (0..400).map(|_| a.cq(1)).collect();
    let (active, passive, listener) = connect(&a, &b);
    a.host.remove_device();
    active.disconnected.wait(1);
    assert_eq!(active.disconnected.count(), 1);
    active.close();
    others.into_iter().for_each(Cq::close);
    passive.close();
    listener.close();
}

/// More than one round makes.
//= R-CLOSE-2, R-IRQL-10
#[test]
fn close_callbacks_of_many_objects_are_all_made() {
    let (a, _b) = pair();
    let held = a.hold_callbacks();
    let closing: Vec<_> = (0..1000)
        .map(|_| {
            let pd = a.pd();
            let region = fast_mr(pd);
            let closing = begin_close!(pd, NdkClosePd);
            assert_eq!(closing.status, STATUS_PENDING);
            close!(region, NdkCloseMr);
            closing
        })
        .collect();
    drop(held);
    closing.into_iter().for_each(Closing::wait);
}

/// Their callbacks become due in one moment, and are more than one round makes.
//= R-CONN-8, R-IRQL-10
#[test]
fn completions_of_many_connects_that_were_held_back_are_all_made() {
    let delay = Some(CallbackDelay { time: Duration::from_millis(300), random: false });
    let strict = StrictSettings { delay, ..StrictSettings::default() };
    let (a, _b) = pair_with(Config { strict, ..without_timers() });
    let ends: Vec<_> = (0..150).map(|_| a.active()).collect();
    let nowhere = "192.0.2.99:1".parse().unwrap();
    // Until nothing else is due.
    for _ in 0..2 {
        assert_eq!(ends[0].connect(a.at(0), nowhere, &[]).wait(), STATUS_HOST_UNREACHABLE);
    }
    let connecting: Vec<_> = ends.iter().map(|end| end.connect(a.at(0), nowhere, &[])).collect();
    for connecting in connecting {
        // Only so many addresses are resolved at a time; those beyond fail at once, and their callbacks are held back, too.
        let status = connecting.wait();
        assert!([STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES].contains(&status), "{status:#x}");
    }
    ends.into_iter().for_each(End::close);
}
