// SPDX-License-Identifier: MIT OR Apache-2.0

//! Power states, and devices that fail while they run: reset, recovery, removal of the adapter.

#![cfg(target_os = "linux")]

mod bed;
mod copying;

use std::{net::SocketAddr, time::Duration};

use bed::{finish, miniport};
use copying::{copy, try_copy};
use device_sim::{Quirks, virtio_net::UsedQuirk};
use lab::{
    image,
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{AdapterState, Keyword, Miniport, NdkEvent, StartError};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_DEVICE_FAILED, NDIS_STATUS_INVALID_DATA,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_LINK_STATE, NDIS_STATUS_RESET_IN_PROGRESS,
    NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER, OID_PM_PARAMETERS, OID_PNP_SET_POWER,
};
use ndk_abi::nt::STATUS_DEVICE_REMOVED;
use ndk_consumer::{Connector, Cq, Listener, Pd, Qp, QpDepths, ReadLimits, Status};
use nt_sim::{delays::Moment, host::TimerResolution};

/// The clock of Windows: threads wake with its ticks, every 15.6 ms.
const WINDOWS: TimerResolution = TimerResolution::Windows { high: Duration::from_millis(1) };
const MOMENT: Duration = Duration::from_secs(20);

/// Event numbers of the driver's event table.
mod event {
    pub const REMOVED: u32 = 10;
    pub const RESET_TIMEOUT: u32 = 14;
    pub const BROKEN_RING: u32 = 21;
    pub const NEEDS_RESET: u32 = 22;
    pub const GIVEN_UP: u32 = 26;
    pub const UNSTEADY_CONFIG: u32 = 27;
    pub const RECOVERED: u32 = 41;
}

/// Starts both hosts. The first device has faults.
fn started_with(quirks: Quirks) -> Option<Testbed> {
    bed::started_with(&Options { quirks, ..Options::default() })
}

fn started() -> Option<Testbed> {
    started_with(Quirks::default())
}

/// Lets time pass until `condition` holds.
fn await_until(bed: &Testbed, what: &str, condition: impl Fn() -> bool) {
    let deadline = bed.now() + MOMENT;
    while !condition() {
        assert!(bed.now() < deadline, "{what}: not within {MOMENT:?}\n{}", bed.violations().join("\n"));
        let _ = bed.event().wait(Duration::from_millis(10));
    }
}

/// The event numbers that a host's driver has logged.
fn events(machine: &Machine) -> Vec<u32> {
    machine.event_log().iter().map(|entry| entry.code & 0xffff).collect()
}

/// The link states that a miniport has indicated: connected or not.
fn links(miniport: &Miniport) -> Vec<bool> {
    const CONNECTED: u8 = 1;
    let indications = miniport.indications();
    let states = indications.iter().filter(|indication| indication.code == NDIS_STATUS_LINK_STATE);
    states.map(|indication| indication.buffer[4] == CONNECTED).collect()
}

/// A frame from the first host to the second one arrives.
fn exchange_frame(bed: &Testbed, number: u8) {
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &1_u32.to_le_bytes()).unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
    frame.resize(100, number);
    let _ = receiver.received();
    assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
    let _ = bed.event().wait(Duration::from_millis(100));
    assert_eq!(receiver.received(), [frame]);
}

//= R-PNP-4, R-PNP-16
//= virtio §16
#[test]
fn device_that_needs_a_reset_is_reset_and_works_again() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    for round in 1..=2 {
        machine.nic().need_reset();
        assert!(miniport.await_ndk_events(2 * round, MOMENT), "{}", bed.violations().join("\n"));
        let pairs = miniport.ndk_events();
        assert_eq!(pairs, [NdkEvent::Disable, NdkEvent::Enable].repeat(round));
        assert_eq!(links(&miniport), [false, true].repeat(round));
        assert_eq!(events(machine), [event::NEEDS_RESET, event::RECOVERED].repeat(round));
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
    assert!(miniport.await_ndk_events(2, MOMENT));
    assert_eq!(miniport.ndk_events(), [NdkEvent::Disable, NdkEvent::Enable]);
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

//= R-PNP-10
#[test]
fn adapter_of_a_device_that_does_not_reset_is_removed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    machine.nic().stop_resetting();
    machine.nic().need_reset();
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    assert_eq!(events(machine), [event::NEEDS_RESET, event::RESET_TIMEOUT, event::GIVEN_UP]);
    assert_eq!(links(&miniport), [false]);
    assert_eq!(miniport.ndk_events(), [NdkEvent::Disable]);
    finish(bed);
}

#[test]
fn adapter_of_a_device_that_fails_again_and_again_is_removed() {
    let quirks = Quirks { used: Some((20, UsedQuirk::IdOutOfRange)), ..Quirks::default() };
    let Some(bed) = started_with(quirks) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let deadline = bed.now() + Duration::from_secs(60);
    while miniport.state() != AdapterState::Halted && bed.now() < deadline {
        if miniport.state() == AdapterState::Running {
            let _ = miniport.send_chain(&vec![vec![2; 100]; 300], 0);
        }
        let _ = bed.event().wait(Duration::from_millis(100));
    }
    let expected =
        [[event::BROKEN_RING, event::RECOVERED].repeat(3), vec![event::BROKEN_RING, event::GIVEN_UP]];
    assert_eq!(events(machine), expected.concat());
    assert_eq!(miniport.state(), AdapterState::Halted);
    finish(bed);
}

/// Only failures in quick succession give the device up.
#[test]
fn device_that_fails_once_a_minute_is_reset_each_time() {
    const ROUNDS: usize = 6;
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    for round in 1..=ROUNDS {
        machine.nic().need_reset();
        let recovered = [event::NEEDS_RESET, event::RECOVERED].repeat(round);
        await_until(&bed, "the device is reset", || events(machine).len() >= recovered.len());
        assert_eq!(events(machine), recovered);
        let _ = bed.event().wait(Duration::from_secs(61));
    }
    copy(&bed);
    finish(bed);
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
    await_until(&bed, "the device fails", || events(machine) == [event::NEEDS_RESET]);
    failed.set();
    let statuses = consumer.join().expect("the consumer ends");
    assert_eq!(statuses, (Ok(()), Err(Status(STATUS_DEVICE_REMOVED))));
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    finish(bed);
}

/// The device failed before it loses its power, and the work item that resets it is late.
//= R-PNP-11
#[test]
fn device_without_power_is_not_reset() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let delays = &machine.host().delays;
    let late = delays.add(Moment::Call("an NDIS work item"), Duration::from_secs(1));
    machine.nic().need_reset();
    await_until(&bed, "the work item is called", || late.is_reached());
    miniport.sleep().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    let _ = bed.event().wait(Duration::from_secs(2));
    miniport.wake().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    copy(&bed);
    assert_eq!(events(machine), [event::NEEDS_RESET]);
    finish(bed);
}

/// No allocation of a transition fails, as there is none, whatever the device does when it begins: runs, waits for consumers to
/// close before it is reset, or is being reset.
//= R-PNP-11
#[test]
fn power_states_change_without_memory() {
    for moment in [None, Some(Duration::from_secs(1)), Some(Duration::from_millis(5500))] {
        let quirks = Quirks { reset_time: Duration::from_millis(900), ..Quirks::default() };
        let Some(bed) = started_with(quirks) else { return };
        let machine = bed.machines()[0];
        let (miniport, address) = (miniport(machine), machine.address());
        let (opened, close) = (bed.event(), bed.event());
        let consumer = {
            let (opened, close) = (opened.clone(), close.clone());
            machine.consumer("slow", move |adapter| {
                let listener =
                    Listener::new(adapter, SocketAddr::new(address, 4000)).expect("the port is free");
                opened.set();
                let _ = close.wait(Duration::from_secs(100));
                drop(listener);
            })
        };
        assert!(opened.wait(MOMENT));
        if let Some(moment) = moment {
            machine.nic().need_reset();
            let _ = bed.event().wait(moment);
        }
        let resources = &machine.host().low_resources;
        resources.fail_per_mille(1000);
        let slept = miniport.sleep();
        resources.fail_per_mille(0);
        slept.unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        let _ = bed.event().wait(MOMENT);
        resources.fail_per_mille(1000);
        let woken = miniport.wake();
        resources.fail_per_mille(0);
        woken.unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        close.set();
        consumer.join().expect("the consumer closes");
        await_until(&bed, "RDMA is enabled", || miniport.ndk_events().last() == Some(&NdkEvent::Enable));
        copy(&bed);
        assert!(!events(machine).contains(&event::GIVEN_UP), "{moment:?}: {:?}", events(machine));
        finish(bed);
    }
}

/// Nothing wakes the system, so that nothing can be enabled.
#[test]
fn wake_up_settings_other_than_none_are_refused() {
    let Some(bed) = started() else { return };
    let miniport = miniport(bed.machines()[0]);
    let settings = |revision: u8, len: usize| {
        let mut settings = vec![0; len];
        settings[..4].copy_from_slice(&[NDIS_OBJECT_TYPE_DEFAULT, revision, len as u8, 0]);
        settings
    };
    let set = |settings: &[u8]| miniport.set(OID_PM_PARAMETERS, settings).map_err(|error| error.status);
    for (revision, len) in [(1, 16), (2, 20), (2, 24)] {
        assert_eq!(set(&settings(revision, len)), Ok(()), "revision {revision}");
    }
    for at in 4..20 {
        let mut enabling = settings(2, 20);
        enabling[at] = 1;
        assert_eq!(set(&enabling), Err(NDIS_STATUS_INVALID_PARAMETER), "byte {at}");
    }
    for len in [0, 4, 15] {
        assert_eq!(set(&settings(2, 20)[..len]), Err(NDIS_STATUS_BUFFER_TOO_SHORT), "{len} bytes");
    }
    assert_eq!(set(&settings(0, 20)), Err(NDIS_STATUS_INVALID_DATA));
    assert_eq!(set(&[0; 20]), Err(NDIS_STATUS_INVALID_DATA));
    finish(bed);
}

/// The work item that has reset the device is about to indicate that the link is up when it goes down.
//= virtio §14
#[test]
fn last_link_state_indicated_is_the_one_that_the_link_has() {
    let quirks = Quirks { reset_time: Duration::from_millis(100), ..Quirks::default() };
    let Some(bed) = started_with(quirks) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    machine.nic().need_reset();
    await_until(&bed, "the failure is indicated", || links(&miniport) == [false]);
    let indicated = Moment::Enter("NdisMIndicateStatusEx");
    let late = machine.host().delays.add(indicated, Duration::from_millis(10));
    await_until(&bed, "the device is reset", || late.is_reached());
    machine.nic().set_link(false);
    let _ = bed.event().wait(Duration::from_millis(100));
    assert_eq!(links(&miniport), [false, true, false]);
    machine.nic().set_link(true);
    await_until(&bed, "the link is up", || links(&miniport).last() == Some(&true));
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

//= R-PNP-11
#[test]
fn device_works_after_a_low_power_state_and_rdma_is_disabled_meanwhile() {
    let Some(bed) = started() else { return };
    let miniport = miniport(bed.machines()[0]);
    copy(&bed);
    for round in 1..=3 {
        miniport.sleep().unwrap();
        assert_eq!(miniport.ndk_events().last(), Some(&NdkEvent::Disable));
        assert!(miniport.open_ndk(2, 1).is_err(), "no RDMA without a device");
        miniport.wake().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        assert!(miniport.await_ndk_events(2 * round, MOMENT));
        assert_eq!(miniport.ndk_events(), [NdkEvent::Disable, NdkEvent::Enable].repeat(round));
        exchange_frame(&bed, round as u8);
        copy(&bed);
    }
    assert!(events(bed.machines()[0]).is_empty(), "nothing to report");
    finish(bed);
}

//= R-PNP-11
#[test]
fn interrupts_and_configuration_changes_in_a_low_power_state_access_no_register() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    miniport.sleep().unwrap();
    for vector in 0..3 {
        machine.nic().interrupt(vector);
    }
    machine.nic().set_link(false);
    let _ = bed.event().wait(Duration::from_millis(100));
    miniport.wake().unwrap();
    assert_eq!(links(&miniport), [false], "the link went down meanwhile");
    machine.nic().set_link(true);
    await_until(&bed, "the link is up", || links(&miniport).last() == Some(&true));
    finish(bed);
}

//= R-PNP-11, R-PNP-10
#[test]
fn consumer_that_does_not_close_delays_a_low_power_state_by_seconds_only() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let (miniport, address) = (miniport(machine), machine.address());
    let (opened, close) = (bed.event(), bed.event());
    let consumer = {
        let (opened, close) = (opened.clone(), close.clone());
        machine.consumer("slow", move |adapter| {
            let listener = Listener::new(adapter, SocketAddr::new(address, 4000)).expect("the port is free");
            opened.set();
            let _ = close.wait(Duration::from_secs(100));
            drop(listener);
        })
    };
    assert!(opened.wait(MOMENT));
    let before = bed.now();
    miniport.sleep().unwrap();
    let took = bed.now().saturating_sub(before);
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(8), "{took:?}");
    miniport.wake().unwrap();
    assert_eq!(miniport.ndk_events(), [NdkEvent::Disable], "not enabled before the consumer has closed");
    close.set();
    consumer.join().expect("the consumer closes");
    assert!(miniport.await_ndk_events(2, MOMENT));
    copy(&bed);
    finish(bed);
}

/// A consumer that leaves its connection established, both ends of it.
//= R-PNP-11, R-PNP-10
#[test]
fn connections_that_consumers_leave_are_aborted_before_a_low_power_state() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let (miniport, address) = (miniport(machine), SocketAddr::new(machine.address(), 4000));
    let (connected, asleep) = (bed.event(), bed.event());
    let consumer = {
        let (connected, asleep) = (connected.clone(), asleep.clone());
        machine.consumer("slow", move |adapter| {
            let depths = QpDepths { receives: 1, requests: 1, receive_sges: 1, request_sges: 1, inline: 0 };
            let limits = ReadLimits { inbound: 0, outbound: 0 };
            let pd = Pd::new(adapter).expect("a protection domain");
            let [(cq, completions), (peer_cq, peer_completions)] =
                [(); 2].map(|()| Cq::new(adapter, 16).expect("a queue"));
            let [qp, peer] =
                [&cq, &peer_cq].map(|cq| Qp::new(&pd, cq, cq, 0, &depths).expect("a queue pair"));
            let listener = Listener::new(adapter, address).expect("the port is free");
            let (passive_end, waker) = (listener.clone(), peer_completions.waker());
            let passive = adapter.os().host().spawn("accept", move || {
                let mut connector = passive_end.next(Some(MOMENT)).expect("a request");
                connector.accept(&peer, limits, &[], waker).expect("accepted");
                (connector, peer)
            });
            let mut active = Connector::new(adapter).expect("a connector");
            let local = SocketAddr::new(address.ip(), 0);
            active.connect(&qp, local, address, limits, &[]).expect("connected");
            active.complete(completions.waker()).expect("completed");
            let (passive, peer) = passive.join().expect("the host lives");
            let before = [&active, &passive].map(Connector::is_disconnected);
            connected.set();
            assert!(asleep.wait(MOMENT));
            let after = [&active, &passive].map(Connector::is_disconnected);
            drop((active, passive, peer));
            (before, after)
        })
    };
    assert!(connected.wait(MOMENT), "{}", bed.violations().join("\n"));
    miniport.sleep().unwrap();
    asleep.set();
    let ends = consumer.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert_eq!(ends, ([false; 2], [true; 2]), "disconnect events");
    miniport.wake().unwrap();
    copy(&bed);
    finish(bed);
}

//= R-PNP-11
#[test]
fn device_that_does_not_wake_up_fails_the_request_and_is_removed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    miniport.sleep().unwrap();
    machine.nic().stop_resetting();
    assert_eq!(miniport.wake().unwrap_err(), StartError::Restart(NDIS_STATUS_DEVICE_FAILED));
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    assert_eq!(events(machine), [event::RESET_TIMEOUT, event::GIVEN_UP]);
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
fn adapter_can_be_halted_in_a_low_power_state() {
    let Some(bed) = started() else { return };
    miniport(bed.machines()[0]).sleep().unwrap();
    finish(bed);
}

/// The device does not respond, and then must not be accessed.
#[test]
fn adapter_of_a_device_that_did_not_reset_can_be_halted_in_a_low_power_state() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    machine.nic().stop_resetting();
    miniport(machine).sleep().unwrap();
    let command = machine.nic().with_config(|config| config.command());
    assert_eq!(command.map(|command| command & 4), Some(0), "no bus master");
    finish(bed);
}

/// The PnP manager starts devices in D0.
#[test]
fn adapter_that_was_halted_in_a_low_power_state_starts_again() {
    let Some(mut bed) = started() else { return };
    miniport(bed.machines()[0]).sleep().unwrap();
    bed.machine_mut(0).halt_adapter().unwrap();
    bed.machine_mut(0).start_adapter().unwrap_or_else(|error| panic!("{error}\n{:?}", bed.violations()));
    copy(&bed);
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

#[test]
fn power_state_that_does_not_exist_is_refused() {
    let Some(bed) = started() else { return };
    let miniport = miniport(bed.machines()[0]);
    for state in [0_u32, 5, u32::MAX] {
        let refused = miniport.set(OID_PNP_SET_POWER, &state.to_le_bytes()).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_INVALID_DATA, "{state}");
    }
    // D0 without a transition to low power before: NDIS cancelled its query.
    miniport.set(OID_PNP_SET_POWER, &1_u32.to_le_bytes()).unwrap();
    copy(&bed);
    finish(bed);
}

//= virtio §14
#[test]
fn link_that_goes_down_before_the_start_of_the_device_is_noticed() {
    let Some(bed) = started_with(Quirks { link_down_before_start: true, ..Quirks::default() }) else {
        return;
    };
    assert_eq!(links(&miniport(bed.machines()[0])), [false]);
    finish(bed);
}

//= virtio §14
#[test]
fn link_state_of_a_configuration_that_changes_at_each_read_is_not_used() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let (nic, miniport) = (machine.nic(), miniport(machine));
    nic.set_config_unsteady(true);
    nic.set_link(false);
    let _ = bed.event().wait(Duration::from_millis(100));
    assert!(links(&miniport).is_empty(), "the former state is kept");
    nic.set_config_unsteady(false);
    nic.set_link(true);
    nic.set_link(false);
    await_until(&bed, "the link is down", || links(&miniport).last() == Some(&false));
    assert!(events(machine).is_empty());
    finish(bed);
}

#[test]
fn adapter_with_a_configuration_that_changes_at_each_read_is_not_started() {
    let Some(image) = image() else { return };
    let options =
        Options { quirks: Quirks { unsteady_config: true, ..Quirks::default() }, ..Options::default() };
    let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
    bed.start().expect_err("the first adapter does not start");
    assert_eq!(events(bed.machines()[0]), [event::UNSTEADY_CONFIG]);
    finish(bed);
}

/// Sleeps that end with a tick of the clock do not lengthen the limit, which is that of real time.
#[test]
fn device_has_a_second_to_reset() {
    for timers in [TimerResolution::Exact, WINDOWS] {
        // The device is given up after three attempts: to stop it, to restart it, and to stop it again.
        for (millis, expected, last) in [(900, 900, event::RECOVERED), (1100, 3000, event::GIVEN_UP)] {
            let quirks = Quirks { reset_time: Duration::from_millis(millis), ..Quirks::default() };
            let options = Options { quirks, timers, ..Options::default() };
            let Some(bed) = bed::started_with(&options) else { return };
            let machine = bed.machines()[0];
            let before = bed.now();
            machine.nic().need_reset();
            await_until(&bed, "the reset ends", || {
                [event::RECOVERED, event::GIVEN_UP].iter().any(|end| events(machine).contains(end))
            });
            let took = bed.now().saturating_sub(before);
            assert_eq!(events(machine).last(), Some(&last), "{millis} ms");
            let expected = Duration::from_millis(expected);
            assert!(
                took >= expected && took < expected + Duration::from_millis(100),
                "{millis} ms: {took:?}"
            );
            if last == event::GIVEN_UP {
                let state = || miniport(machine).state();
                await_until(&bed, "the adapter is removed", || state() == AdapterState::Halted);
            }
            finish(bed);
        }
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
    machine.nic().stop_resetting();
    machine.nic().need_reset();
    let _ = bed.event().wait(Duration::from_millis(100));
    miniport(machine).shut_down().unwrap();
    let command = machine.nic().with_config(|config| config.command());
    assert_eq!(command.map(|command| command & 4), Some(0), "no bus master");
    let _ = bed.event().wait(MOMENT);
    finish(bed);
}

#[test]
fn device_works_until_shutdown_and_not_longer() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    copy(&bed);
    let miniport = miniport(machine);
    miniport.shut_down().unwrap();
    assert_eq!(miniport.send(&[2; 100], MOMENT), Some(NDIS_STATUS_ADAPTER_REMOVED));
    // Another filter: a running device would be notified of it.
    miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_PROMISCUOUS.to_le_bytes()).unwrap();
    finish(bed);
}
