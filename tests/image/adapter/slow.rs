// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that are slow, or pause: the driver waits for them, does meanwhile what it can without them, and loses nothing but time.

use std::time::Duration;

use device_sim::{Quirks, virtio_net::Features};
use lab::{image, machine::Machine, testbed::Options};
use ndis_sim::{AdapterState, Keyword, NdisHost as _};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_SUCCESS,
    OID_802_3_MULTICAST_LIST, OID_GEN_VLAN_ID,
};
use support::{
    bed::{finish, miniport, started_with},
    copying::copy,
    faults::{await_until, event, events, exchange_frame, links, started},
    filters::{ALL, GROUP, OTHER_GROUP, STATION, delivered, set_filter},
    stalled::{send_many, statuses},
};

const HOUR: Duration = Duration::from_secs(3600);

fn pass(bed: &lab::testbed::Testbed, time: Duration) {
    let _ = bed.event().wait(time);
}

fn assert_running(machine: &Machine, expected: &[u32]) {
    assert_eq!(miniport(machine).state(), AdapterState::Running);
    assert_eq!(events(machine), expected);
}

//= virtio §12
#[test]
fn adapter_starts_at_once_if_the_device_takes_ten_seconds_for_each_command() {
    let Some(image) = image() else { return };
    let quirks = Quirks { command_time: Duration::from_secs(10), ..Quirks::default() };
    let options =
        Options { quirks, features: Features::DEFAULT | Features::MQ, pairs: 2, ..Options::default() };
    let mut bed = lab::testbed::Testbed::new(&image, &options).expect("the image can be loaded");
    let before = bed.now();
    bed.start().unwrap_or_else(|error| panic!("{error}\n{:?}", bed.violations()));
    let took = bed.now().saturating_sub(before);
    assert!(took < Duration::from_secs(1), "{took:?}");
    copy(&bed);
    exchange_frame(&bed, 1);
    // One at a time: pairs, filters of three commands, and those of the protocols' requests.
    pass(&bed, Duration::from_secs(120));
    set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
    pass(&bed, Duration::from_secs(61));
    assert_eq!(delivered(&bed, &ALL), 1, "the device filters");
    assert!(events(bed.machines()[0]).iter().all(|&event| event == event::COMMAND_LATE));
    copy(&bed);
    finish(bed);
}

/// Everything works without commands, requests of NDIS's complete, and what was wanted last is programmed at the end.
//= virtio §12
#[test]
fn control_plane_that_is_silent_for_an_hour_costs_nothing() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    machine.nic().pause_commands(HOUR);
    let end = bed.now() + HOUR;
    for (number, types) in [NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_PACKET_TYPE_DIRECTED].into_iter().enumerate() {
        let before = bed.now();
        set_filter(&bed, types);
        let took = bed.now().saturating_sub(before);
        assert!(took < Duration::from_millis([600, 1][number]), "{took:?}");
    }
    machine.nic().announce();
    copy(&bed);
    exchange_frame(&bed, 1);
    pass(&bed, end.saturating_sub(bed.now()) + Duration::from_secs(1));
    assert_eq!(delivered(&bed, &ALL), 1, "the device filters");
    assert!(!machine.nic().is_announcement_asked(), "acknowledged");
    assert_running(machine, &[event::COMMAND_LATE]);
    assert!(links(&miniport(machine)).is_empty(), "it was not reset");
    copy(&bed);
    finish(bed);
}

/// Each of three commands is late: the second one within a minute of the first, the third one after it.
//= virtio §12
#[test]
fn late_commands_are_reported_once_a_minute() {
    const LATE: Duration = Duration::from_secs(5);
    let Some(bed) = started_with(&Options::default()) else { return };
    let machine = bed.machines()[0];
    let types = [NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_PROMISCUOUS];
    for (number, (types, reports)) in types.into_iter().zip([1, 1, 2]).enumerate() {
        machine.nic().pause_commands(LATE);
        set_filter(&bed, types);
        pass(&bed, if number == 1 { Duration::from_secs(60) } else { LATE + Duration::from_secs(1) });
        assert_running(machine, &vec![event::COMMAND_LATE; reports]);
    }
    finish(bed);
}

/// VLAN, multicast addresses and station address reach the device within a second after it has answered, whatever was wanted in between.
//= virtio §12
#[test]
fn what_is_set_while_the_control_plane_is_silent_is_in_the_device_a_second_after() {
    const SILENCE: Duration = Duration::from_secs(120);
    let text = |name, value: &str| (name, Keyword::Text(value.into()));
    let address = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
    let keywords =
        vec![text("NetworkAddress", "021122334455"), text("*PriorityVLANTag", "3"), text("VlanID", "5")];
    for format in [Features::default(), Features::RING_PACKED] {
        let quirks = Quirks { pauses_commands: SILENCE, ..Quirks::default() };
        let options = Options { quirks, features: Features::DEFAULT | format, ..Options::default() };
        let Some(image) = image() else { return };
        let mut bed = lab::testbed::Testbed::new(&image, &options).expect("the image can be loaded");
        for (name, value) in &keywords {
            bed.machines()[0].host().set_keyword(name, value.clone());
        }
        bed.start().unwrap_or_else(|error| panic!("{error}\n{:?}", bed.violations()));
        let machine = bed.machines()[0];
        let nic = machine.nic();
        assert_ne!(nic.mac(), address, "the device does not have it yet");
        let miniport = miniport(machine);
        for (vlan, groups) in [(7_u32, &[GROUP, OTHER_GROUP][..]), (9, &[OTHER_GROUP]), (0, &[GROUP])] {
            miniport.set(OID_GEN_VLAN_ID, &vlan.to_le_bytes()).unwrap();
            miniport.set(OID_802_3_MULTICAST_LIST, groups.as_flattened()).unwrap();
            set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_MULTICAST);
            pass(&bed, Duration::from_secs(10));
        }
        miniport.set(OID_GEN_VLAN_ID, &9_u32.to_le_bytes()).unwrap();
        let silent = SILENCE.saturating_sub(bed.now());
        assert!(!silent.is_zero());
        pass(&bed, silent.saturating_sub(Duration::from_secs(1)));
        assert_ne!(nic.mac(), address, "the device has not answered");
        pass(&bed, Duration::from_secs(2));
        assert_eq!((nic.mac(), nic.vlans()), (address, Some(vec![9])));
        miniport.set(OID_GEN_VLAN_ID, &0_u32.to_le_bytes()).unwrap();
        let before = nic.counters().filtered;
        assert_eq!(delivered(&bed, &[address, STATION, GROUP, OTHER_GROUP]), 2, "its address, and its group");
        assert_eq!(nic.counters().filtered - before, 2, "the device filters");
        assert_running(machine, &[event::COMMAND_LATE]);
        finish(bed);
    }
}

/// Commands are as slow as a device may be without being late, and two causes for commands meet.
#[test]
fn commands_that_wait_for_others_are_no_failure() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    machine.nic().set_command_time(Duration::from_millis(1900));
    machine.nic().announce();
    for types in [NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_PACKET_TYPE_DIRECTED] {
        set_filter(&bed, types);
        pass(&bed, Duration::from_millis(300));
    }
    await_until(&bed, "the announcement is acknowledged", || !machine.nic().is_announcement_asked());
    pass(&bed, Duration::from_secs(10));
    assert_eq!(delivered(&bed, &ALL), 1);
    assert_running(machine, &[]);
    finish(bed);
}

/// A command that a slow device has begun does not keep it from answering once it is fast.
#[test]
fn device_that_is_no_longer_slow_answers_at_once() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    set_filter(&bed, NDIS_PACKET_TYPE_PROMISCUOUS);
    machine.nic().set_command_time(HOUR);
    set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
    machine.nic().behave();
    pass(&bed, Duration::from_secs(1));
    assert_eq!(delivered(&bed, &ALL), 1, "the device filters");
    assert_running(machine, &[]);
    finish(bed);
}

/// A reset, a low-power state and a halt do not wait for a command, either.
#[test]
fn device_can_be_reset_sleep_and_halt_while_a_command_is_pending() {
    for format in [Features::default(), Features::RING_PACKED] {
        let features = Features::DEFAULT | format;
        let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
        let machine = bed.machines()[0];
        machine.nic().pause_commands(HOUR);
        set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
        let before = bed.now();
        machine.nic().need_reset();
        await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
        exchange_frame(&bed, 1);
        miniport(machine).sleep().unwrap();
        miniport(machine).wake().unwrap();
        exchange_frame(&bed, 2);
        let took = bed.now().saturating_sub(before);
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert!(!events(machine).contains(&event::GIVEN_UP));
        finish(bed);
    }
}

//= virtio §16
#[test]
fn reset_that_takes_minutes_is_waited_for_and_reported_each_minute() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    machine.nic().set_reset_time(Duration::from_secs(150));
    machine.nic().need_reset();
    await_until(&bed, "the failure is reported", || !events(machine).is_empty());
    pass(&bed, Duration::from_secs(140));
    assert_running(machine, &[event::NEEDS_RESET, event::RESET_LATE, event::RESET_LATE, event::RESET_LATE]);
    machine.nic().set_reset_time(Duration::ZERO);
    pass(&bed, Duration::from_secs(15));
    assert_eq!(events(machine).last(), Some(&event::RECOVERED));
    assert_eq!(links(&miniport(machine)), [false, true]);
    assert!(miniport(machine).ndk().await_events(2, Duration::from_secs(5)));
    exchange_frame(&bed, 1);
    copy(&bed);
    finish(bed);
}

/// Requests for power states are completed in time, and the device is used when it is ready. D3 ends the reset, unless the device keeps its state
/// there.
//= R-PNP-11
#[test]
fn power_states_change_while_a_reset_takes_long() {
    for keeps_state_in_d3 in [false, true] {
        let quirks = Quirks { keeps_state_in_d3, ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
        let machine = bed.machines()[0];
        let miniport = miniport(machine);
        machine.nic().set_reset_time(Duration::from_secs(30));
        machine.nic().need_reset();
        pass(&bed, Duration::from_secs(5));
        let before = bed.now();
        miniport.sleep().unwrap();
        miniport.wake().unwrap();
        let took = bed.now().saturating_sub(before);
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(machine.nic().is_running(), !keeps_state_in_d3);
        pass(&bed, Duration::from_secs(35));
        exchange_frame(&bed, 1);
        assert!(miniport.ndk().await_events(2, Duration::from_secs(5)));
        copy(&bed);
        assert!(!events(machine).contains(&event::GIVEN_UP));
        finish(bed);
    }
}

/// The firmware has left the device in use, and D3 does not end that.
#[test]
fn adapter_starts_on_a_device_whose_reset_takes_90_seconds() {
    const RESET: Duration = Duration::from_secs(90);
    let quirks =
        Quirks { reset_time: RESET, left_by_firmware: true, keeps_state_in_d3: true, ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    assert!(bed.now() >= RESET, "{:?}", bed.now());
    assert_eq!(events(machine), [event::RESET_LATE, event::RESET_LATE], "after a second, and a minute");
    exchange_frame(&bed, 1);
    let miniport = miniport(machine);
    miniport.sleep().unwrap();
    let before = bed.now();
    miniport.wake().unwrap();
    assert!(bed.now().saturating_sub(before) < Duration::from_secs(10), "the request is not late");
    assert!(!machine.nic().is_running());
    pass(&bed, RESET);
    exchange_frame(&bed, 2);
    copy(&bed);
    finish(bed);
}

/// Windows stops the system after six minutes in the request that starts a device (bug check 0x1D5).
#[test]
fn start_of_an_adapter_ends_before_the_watchdog_of_the_pnp_manager() {
    let Some(image) = image() else { return };
    let quirks = Quirks { reset_time: HOUR, left_by_firmware: true, ..Quirks::default() };
    let options = Options { quirks, ..Options::default() };
    let mut bed = lab::testbed::Testbed::new(&image, &options).expect("the image can be loaded");
    let before = bed.now();
    bed.start().expect_err("the device has not finished its reset");
    let took = bed.now().saturating_sub(before);
    assert!((Duration::from_secs(300)..Duration::from_secs(330)).contains(&took), "{took:?}");
    assert!(events(bed.machines()[0]).iter().all(|&event| event == event::RESET_LATE));
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
}

/// A device that is pulled out ends the wait for its reset.
//= R-PNP-8
#[test]
fn device_that_is_gone_while_it_is_reset_is_not_waited_for() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    machine.nic().set_reset_time(HOUR);
    machine.nic().need_reset();
    pass(&bed, Duration::from_secs(5));
    machine.nic().remove();
    await_until(&bed, "the adapter is removed", || miniport(machine).state() == AdapterState::Halted);
    finish(bed);
}

/// Frames are completed in bounded time, one way or the other; nothing is reset but the queue, if the device can do that.
//= virtio §16
#[test]
fn back_end_that_takes_no_frames_for_an_hour_is_waited_for() {
    for (features, expected) in [
        (Features::DEFAULT.without(Features::RING_RESET), &[event::TRANSMIT_STALLED][..]),
        (Features::DEFAULT.without(Features::RING_RESET) | Features::RING_PACKED, &[event::TRANSMIT_STALLED]),
        (Features::DEFAULT, &[event::QUEUE_RESET, event::TRANSMIT_STALLED]),
    ] {
        let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
        let machine = bed.machines()[0];
        machine.nic().pause_sending(HOUR);
        let end = bed.now() + HOUR;
        for _ in 0..20 {
            let before = bed.now();
            let all = statuses(&bed, send_many(&bed));
            let took = bed.now().saturating_sub(before);
            assert_eq!(all.len(), 300);
            assert!(took < Duration::from_secs(8), "{took:?}");
            pass(&bed, Duration::from_secs(1));
        }
        let seen = events(machine);
        assert_eq!(seen[..expected.len()], *expected, "{seen:?}");
        // The stack goes on, for an hour.
        while end.saturating_sub(bed.now()) > Duration::from_secs(60) {
            statuses(&bed, send_many(&bed));
            pass(&bed, Duration::from_secs(45));
        }
        // A few events at once, then one in ten minutes of each kind.
        assert!(events(machine).len() <= 2 * (5 + 6), "{:?}", events(machine));
        pass(&bed, end.saturating_sub(bed.now()));
        let resumed = bed.now();
        let all = statuses(&bed, send_many(&bed));
        assert!(all.iter().all(|&status| status == NDIS_STATUS_SUCCESS), "sends go on");
        copy(&bed);
        let took = bed.now().saturating_sub(resumed);
        assert!(took < Duration::from_secs(1), "Ethernet and RDMA go on after {took:?}");
        assert!(!events(machine).contains(&event::RECOVERED) && !events(machine).contains(&event::GIVEN_UP));
        assert_eq!(miniport(machine).state(), AdapterState::Running);
        copy(&bed);
        finish(bed);
    }
}

/// The address of a device that takes commands, but does not filter.
//= virtio §12
#[test]
fn station_address_is_set_in_a_device_without_filters() {
    let keywords = vec![("NetworkAddress", Keyword::Text("021122334455".into()))];
    let features = Features::DEFAULT.without(Features::CTRL_RX).without(Features::CTRL_VLAN);
    let Some(bed) = started_with(&Options { keywords, features, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    let address = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
    assert_eq!(machine.nic().mac(), address);
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    assert_eq!(machine.nic().mac(), address);
    finish(bed);
}
