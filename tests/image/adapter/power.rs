// SPDX-License-Identifier: MIT OR Apache-2.0

//! Power states, and the state of the link.

use std::{net::SocketAddr, time::Duration};

use device_sim::Quirks;
use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::{AdapterState, NdkEvent, StartError};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_DEVICE_FAILED, NDIS_STATUS_INVALID_DATA,
    NDIS_STATUS_INVALID_PARAMETER, OID_GEN_CURRENT_PACKET_FILTER, OID_PM_PARAMETERS, OID_PNP_SET_POWER,
};
use ndk_consumer::{Connector, Cq, Listener, Pd, Qp, QpDepths, ReadLimits};
use nt_sim::delays::Moment;
use support::{
    bed::{finish, miniport},
    copying::copy,
    faults::{MOMENT, await_until, event, events, exchange_frame, links, started, started_with},
};

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
        await_until(&bed, "RDMA is enabled", || miniport.ndk().events().last() == Some(&NdkEvent::Enable));
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

//= R-PNP-11
#[test]
fn device_works_after_a_low_power_state_and_rdma_is_disabled_meanwhile() {
    let Some(bed) = started() else { return };
    let miniport = miniport(bed.machines()[0]);
    copy(&bed);
    for round in 1..=3 {
        miniport.sleep().unwrap();
        assert_eq!(miniport.ndk().events().last(), Some(&NdkEvent::Disable));
        assert!(miniport.ndk().open(2, 1).is_err(), "no RDMA without a device");
        miniport.wake().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        assert!(miniport.ndk().await_events(2 * round, MOMENT));
        assert_eq!(miniport.ndk().events(), [NdkEvent::Disable, NdkEvent::Enable].repeat(round));
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
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable], "not enabled before the consumer has closed");
    close.set();
    consumer.join().expect("the consumer closes");
    assert!(miniport.ndk().await_events(2, MOMENT));
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
fn device_that_is_gone_when_it_should_wake_up_fails_the_request_and_is_removed() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    miniport.sleep().unwrap();
    machine.nic().misbehavior().hide_status();
    assert_eq!(miniport.wake().unwrap_err(), StartError::Restart(NDIS_STATUS_DEVICE_FAILED));
    await_until(&bed, "the adapter is removed", || miniport.state() == AdapterState::Halted);
    assert_eq!(events(machine), [event::REMOVED, event::GIVEN_UP]);
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
    machine.nic().misbehavior().stop_resetting();
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
    nic.misbehavior().set_config_unsteady(true);
    nic.set_link(false);
    let _ = bed.event().wait(Duration::from_millis(100));
    assert!(links(&miniport).is_empty(), "the former state is kept");
    nic.misbehavior().set_config_unsteady(false);
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
