// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that fail while they run: reset, recovery, removal of the adapter.

use std::time::Duration;

use device_sim::{
    Quirks,
    virtio_net::{Features, UsedQuirk},
};
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{AdapterState, Keyword, NdkEvent};
use ndk_abi::ndis::{NDIS_STATUS_RESET_IN_PROGRESS, NDIS_STATUS_SUCCESS};
use ndk_abi::nt::STATUS_DEVICE_REMOVED;
use ndk_consumer::{Pd, Status};
use nt_sim::host::TimerResolution;
use support::{
    bed::{self, finish, miniport},
    copying::{copy, try_copy},
    faults::{
        MOMENT, assert_given_up, assert_recovered, await_until, event, events, exchange_frame, links,
        started, started_with,
    },
};

/// The clock of Windows: threads wake with its ticks, every 15.6 ms.
const WINDOWS: TimerResolution = TimerResolution::Windows { high: Duration::from_millis(1) };

//= R-PNP-4, R-PNP-16
//= virtio §16
#[test]
fn device_that_needs_a_reset_is_reset_and_works_again() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    for round in 1..=2 {
        machine.nic().need_reset();
        assert!(miniport.ndk().await_events(2 * round, MOMENT), "{}", bed.violations().join("\n"));
        assert_recovered(machine, event::NEEDS_RESET, round);
        exchange_frame(&bed, round as u8);
        copy(&bed);
    }
    finish(bed);
}

//= R-PNP-4, R-PNP-10
#[test]
fn connections_of_a_device_that_fails_are_aborted_and_new_ones_can_be_made() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let (nic, miniport) = (machine.nic().clone(), miniport(machine));
    let once = std::sync::Once::new();
    let ends = try_copy(&bed, 4 << 20, move |at| {
        if at.done > 1 << 20 {
            once.call_once(|| nic.need_reset());
        }
    });
    for end in ends {
        let error = end.expect_err("the connection is gone");
        assert!(error.is_connection_loss(), "{error}");
    }
    assert!(miniport.ndk().await_events(2, MOMENT));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable, NdkEvent::Enable]);
    copy(&bed);
    finish(bed);
}

#[test]
fn frames_that_wait_for_a_device_that_fails_are_completed() {
    const RING: usize = 256;
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    // The peer's end of the link takes nothing, so that the ring fills up.
    bed.wire().cut(1);
    let frames = vec![vec![2; 100]; 4 * RING];
    machine.nic().need_reset();
    let ids = miniport.send_chain(&frames, 0);
    for id in ids {
        let status = miniport.send_status(id, MOMENT).expect("each send is completed");
        assert!([NDIS_STATUS_SUCCESS, NDIS_STATUS_RESET_IN_PROGRESS].contains(&status), "{status:#x}");
    }
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    finish(bed);
}

/// Ethernet does not wait for consumers to close; RDMA does.
//= R-PNP-16
#[test]
fn ethernet_goes_on_after_a_reset_while_a_consumer_has_not_closed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let opened = miniport.ndk().open(2, 1).unwrap();
    let before = bed.now();
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    exchange_frame(&bed, 1);
    let took = bed.now().saturating_sub(before);
    assert!(took < Duration::from_secs(1), "{took:?}");
    let _ = bed.event().wait(Duration::from_secs(10));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    miniport.ndk().close(opened).unwrap();
    assert!(miniport.ndk().await_events(2, MOMENT));
    copy(&bed);
    finish(bed);
}

/// Consumers need not wait until NDIS halts the adapter, which may take seconds.
//= R-PNP-8
#[test]
fn rdma_is_disabled_at_once_when_the_device_is_gone() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let opened = miniport.ndk().open(2, 1).unwrap();
    miniport.adapter().removal.set_delay(Duration::from_secs(1));
    let before = bed.now();
    machine.nic().remove();
    machine.nic().interrupt(0);
    assert!(miniport.ndk().await_events(1, MOMENT));
    let took = bed.now().saturating_sub(before);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    miniport.ndk().close(opened).unwrap();
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    finish(bed);
}

/// A reset that does not end is waited for, but a status of all ones says that the device is gone.
//= R-PNP-10
#[test]
fn adapter_of_a_device_whose_registers_read_all_ones_is_removed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    machine.nic().misbehavior().stop_resetting();
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_secs(10));
    assert_eq!(events(machine), [event::NEEDS_RESET, event::RESET_LATE]);
    machine.nic().misbehavior().hide_status();
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    let expected = [event::NEEDS_RESET, event::RESET_LATE, event::REMOVED, event::GIVEN_UP];
    assert_eq!(events(machine), expected);
    assert_eq!(links(&miniport), [false]);
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    finish(bed);
}

#[test]
fn adapter_of_a_device_that_fails_again_and_again_is_removed() {
    let quirks = Quirks { used: Some((20, UsedQuirk::IdOutOfRange)), ..Quirks::default() };
    let features = Features::DEFAULT.without(Features::RING_RESET);
    let Some(bed) = bed::started_with(&Options { quirks, features, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let deadline = bed.now() + Duration::from_secs(60);
    while miniport.state() != AdapterState::Halted && bed.now() < deadline {
        if miniport.state() == AdapterState::Running {
            let _ = miniport.send_chain(&vec![vec![2; 100]; 300], 0);
        }
        let _ = bed.event().wait(Duration::from_millis(100));
    }
    assert_given_up(machine, event::BROKEN_RING, 3);
    assert_eq!(miniport.state(), AdapterState::Halted);
    finish(bed);
}

/// Only failures in quick succession give the device up.
#[test]
fn device_that_fails_once_a_minute_is_reset_each_time() {
    const ROUNDS: usize = 6;
    // Further ones would come too often for the log.
    const LOGGED: usize = 5;
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    for round in 1..=ROUNDS {
        machine.nic().need_reset();
        assert!(miniport(machine).ndk().await_events(2 * round, MOMENT), "{round}");
        let recovered = [event::NEEDS_RESET, event::RECOVERED].repeat(round.min(LOGGED));
        assert_eq!(events(machine), recovered);
        let _ = bed.event().wait(Duration::from_secs(61));
    }
    copy(&bed);
    finish(bed);
}

/// Nothing that the device says about itself is proof that it cannot be used. It gets more time instead.
//= R-PNP-16
//= virtio §16
#[test]
fn device_that_asks_for_reset_after_reset_goes_on_when_it_is_well() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    for _ in 0..20 {
        machine.nic().need_reset();
        let _ = bed.event().wait(Duration::from_secs(3));
    }
    assert_eq!(miniport.state(), AdapterState::Running, "{:?}", events(machine));
    let _ = bed.event().wait(Duration::from_secs(60));
    exchange_frame(&bed, 1);
    copy(&bed);
    assert_eq!(pauses(machine), [1, 2, 4, 8, 16], "the limit of the log");
    // Once it has worked for a minute, it is reset at once.
    let _ = bed.event().wait(Duration::from_secs(60));
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_millis(100));
    exchange_frame(&bed, 2);
    assert!(!events(machine).contains(&event::GIVEN_UP));
    finish(bed);
}

/// Returns the pauses before starts that were reported, in seconds.
fn pauses(machine: &Machine) -> Vec<u32> {
    let log = machine.event_log();
    let of_starts = log.iter().filter(|entry| entry.code & 0xffff == event::START_DELAYED);
    of_starts.map(|entry| entry.data[0]).collect()
}

/// Also at the start of its adapter.
#[test]
fn device_that_asks_for_a_reset_as_soon_as_it_is_started_is_waited_for() {
    for is_at_start in [true, false] {
        let quirks = Quirks { needs_reset_at_start: is_at_start, ..Quirks::default() };
        let Some(bed) = started_with(quirks) else { return };
        let machine = bed.machines()[0];
        if !is_at_start {
            machine.nic().misbehavior().fail_starts();
            machine.nic().need_reset();
        }
        let _ = bed.event().wait(Duration::from_secs(600));
        assert_eq!(miniport(machine).state(), AdapterState::Running);
        assert!(!machine.nic().is_running());
        assert_eq!(pauses(machine), [1, 2, 4, 8, 16], "the limit of the log");
        machine.nic().behave();
        let _ = bed.event().wait(Duration::from_secs(61));
        exchange_frame(&bed, 1);
        copy(&bed);
        assert!(!events(machine).contains(&event::GIVEN_UP));
        finish(bed);
    }
}

/// The power state that NDIS requests, a halt and a shutdown do not wait for the end of a pause.
//= R-PNP-11
#[test]
fn transitions_do_not_wait_while_the_start_of_a_device_does() {
    let end = |act: fn(&mut Testbed)| {
        let Some(mut bed) = started() else { return };
        let machine = bed.machines()[0];
        machine.nic().misbehavior().fail_starts();
        machine.nic().need_reset();
        let _ = bed.event().wait(Duration::from_secs(100));
        let before = bed.now();
        act(&mut bed);
        let took = bed.now().saturating_sub(before);
        assert!(took < Duration::from_millis(500), "{took:?}");
        finish(bed);
    };
    end(|bed| {
        let machine = bed.machines()[0];
        miniport(machine).sleep().unwrap();
        machine.nic().behave();
        miniport(machine).wake().unwrap();
        exchange_frame(bed, 1);
    });
    end(|bed| bed.machine_mut(0).halt_adapter().expect("the host lives"));
    end(|bed| miniport(bed.machines()[0]).shut_down().unwrap());
}

//= R-CREATE-16
#[test]
fn create_calls_fail_while_the_device_is_reset() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let (opened, failed) = (bed.event(), bed.event());
    let consumer = {
        let (opened, failed) = (opened.clone(), failed.clone());
        machine.consumer("consumer", move |adapter| {
            let pd = Pd::new(adapter).map(drop);
            opened.set();
            assert!(failed.wait(MOMENT));
            (pd, Pd::new(adapter).map(drop))
        })
    };
    assert!(opened.wait(MOMENT));
    machine.nic().need_reset();
    await_until(&bed, "the device fails", || events(machine).first() == Some(&event::NEEDS_RESET));
    failed.set();
    let statuses = consumer.join().expect("the consumer ends");
    assert_eq!(statuses, (Ok(()), Err(Status(STATUS_DEVICE_REMOVED))));
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    finish(bed);
}

//= R-PNP-8
#[test]
fn adapter_of_a_device_that_is_gone_without_notice_is_removed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    machine.nic().remove();
    machine.nic().interrupt(0);
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    assert_eq!(events(machine), [event::REMOVED]);
    assert_eq!(links(&miniport), [false]);
    finish(bed);
}

/// The address of `NetworkAddress`, which the driver has set in the device. The permanent address is another.
//= virtio §16
#[test]
fn device_that_keeps_the_address_set_by_the_driver_across_resets_goes_on() {
    let keywords = vec![("NetworkAddress", Keyword::Text("02123456789A".into()))];
    let quirks = Quirks { keeps_mac: true, ..Quirks::default() };
    let Some(bed) = bed::started_with(&Options { quirks, keywords, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    miniport(machine).sleep().unwrap();
    miniport(machine).wake().unwrap();
    assert_eq!(machine.nic().mac(), [2, 0x12, 0x34, 0x56, 0x78, 0x9A]);
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    assert_eq!(machine.nic().mac(), [2, 0x12, 0x34, 0x56, 0x78, 0x9A]);
    assert_eq!(events(machine), [event::NEEDS_RESET, event::RECOVERED]);
    finish(bed);
}

#[test]
fn adapter_can_be_halted_while_its_device_is_reset() {
    for delay in [0, 1, 10, 100, 1000] {
        let Some(bed) = started() else { return };
        bed.machines()[0].nic().need_reset();
        let _ = bed.event().wait(Duration::from_micros(delay));
        finish(bed);
    }
}

/// A dead device delays neither a halt nor a shutdown by more than its reset may take.
#[test]
fn device_that_does_not_reset_is_waited_for_a_second() {
    let quirks = Quirks { never_resets_once_started: true, ..Quirks::default() };
    let options = Options { quirks, timers: WINDOWS, ..Options::default() };
    let Some(mut bed) = bed::started_with(&options) else { return };
    let before = bed.now();
    bed.machine_mut(0).halt_adapter().expect("the host lives");
    let took = bed.now().saturating_sub(before);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1200), "{took:?}");
    finish(bed);

    let Some(bed) = bed::started_with(&options) else { return };
    let machine = bed.machines()[0];
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_millis(100));
    let before = bed.now();
    miniport(machine).shut_down().unwrap();
    let took = bed.now().saturating_sub(before);
    assert!(took < Duration::from_millis(2600), "{took:?}");
    let _ = bed.event().wait(MOMENT);
    finish(bed);
}

/// A reset takes 100 ms at this device, and a restart takes two: most moments are inside one of them.
#[test]
fn device_is_stopped_at_shutdown_while_it_is_reset() {
    for moment in [0, 1, 50, 90, 99, 100, 101, 110, 150, 190, 199, 200, 201, 210, 300] {
        let quirks = Quirks { reset_time: Duration::from_millis(100), ..Quirks::default() };
        let Some(bed) = started_with(quirks) else { return };
        let machine = bed.machines()[0];
        machine.nic().need_reset();
        let _ = bed.event().wait(Duration::from_millis(moment));
        let before = bed.now();
        miniport(machine).shut_down().unwrap();
        let took = bed.now().saturating_sub(before);
        assert!(took <= Duration::from_millis(2500), "{took:?}");
        let _ = bed.event().wait(MOMENT);
        assert!(!machine.nic().is_running(), "after {moment} ms");
        // Windows halts no adapter after this. Here it shows that nothing is left.
        finish(bed);
    }
}

#[test]
fn device_that_does_not_reset_has_no_dma_after_shutdown() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    machine.nic().misbehavior().stop_resetting();
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_millis(100));
    miniport(machine).shut_down().unwrap();
    let command = machine.nic().with_config(|config| config.command());
    assert_eq!(command.map(|command| command & 4), Some(0), "no bus master");
    let _ = bed.event().wait(MOMENT);
    finish(bed);
}
