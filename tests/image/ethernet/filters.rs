// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive filters of the device, on the image: what NDIS sets reaches the device, also after a reset and a low-power state,
//! and devices that refuse filters or do not answer commands.

use std::time::Duration;

use device_sim::{Quirks, virtio_net::Features};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::Options,
};
use ndis_sim::Keyword;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST, OID_802_3_MULTICAST_LIST,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use support::{
    bed::{finish, miniport, started_with},
    copying::copy,
    faults::{event, events},
    filters::{
        ALL, GROUP, MOMENT, OTHER_GROUP, OTHER_STATION, STATION, WINDOWS, delivered, each_filter, set_filter,
    },
};

//= virtio §12
#[test]
fn device_delivers_what_the_packet_filter_admits_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX] {
            let features = Features::DEFAULT.without(without) | format;
            let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
            assert_eq!(delivered(&bed, &ALL), 1, "nothing is set");
            each_filter(&bed);
            copy(&bed);
            assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
            finish(bed);
        }
    }
}

//= virtio §12
#[test]
fn qemus_device_delivers_what_the_packet_filter_admits() {
    if !has_qemu() {
        return;
    }
    for packed in ["packed=off", "packed=on"] {
        let properties = vec![packed.into()];
        let device = DeviceKind::Qemu(QemuVariant { properties, ..QemuVariant::default() });
        let options = Options { device, real_time: true, path_mtu: 1024, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        // The host resolves its neighbors by frames through the miniport.
        let filter = miniport(bed.machines()[0]).query(OID_GEN_CURRENT_PACKET_FILTER, 4).unwrap();
        each_filter(&bed);
        set_filter(&bed, u32::from_le_bytes(filter.try_into().unwrap()));
        copy(&bed);
        assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
        finish(bed);
    }
}

//= virtio §12
#[test]
fn device_without_filters_delivers_everything_and_the_driver_filters() {
    for without in [Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_MAC_ADDR, Features::CTRL_RX] {
        let features = Features::DEFAULT.without(without);
        let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
        set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
        assert_eq!(delivered(&bed, &ALL), 4);
        assert_eq!(miniport(bed.machines()[0]).received().len(), 1);
        copy(&bed);
        finish(bed);
    }
}

//= virtio §12
#[test]
fn filters_are_set_again_after_a_reset_and_after_a_low_power_state() {
    let Some(bed) = started_with(&Options::default()) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    miniport.set(OID_802_3_MULTICAST_LIST, &GROUP).unwrap();
    set_filter(&bed, NDIS_PACKET_TYPE_MULTICAST);
    machine.nic().need_reset();
    assert!(miniport.ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
    assert_eq!(delivered(&bed, &ALL), 2);

    miniport.sleep().unwrap();
    // While the device sleeps, no command can be sent.
    miniport.set(OID_802_3_MULTICAST_LIST, &[GROUP, OTHER_GROUP].concat()).unwrap();
    miniport.wake().unwrap();
    assert_eq!(delivered(&bed, &ALL), 3);
    finish(bed);
}

//= virtio §12
#[test]
fn configured_address_is_the_one_that_the_device_delivers_frames_for() {
    let configured = [2, 0x12, 0x34, 0x56, 0x78, 0x9A];
    for without in [Features::default(), Features::CTRL_MAC_ADDR] {
        let features = Features::DEFAULT.without(without);
        let keywords = vec![("NetworkAddress", Keyword::Text("02123456789A".into()))];
        let Some(bed) = started_with(&Options { features, keywords, ..Options::default() }) else { return };
        let known = if without == Features::default() { configured } else { STATION };
        assert_eq!(bed.machines()[0].nic().mac(), known);
        set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
        assert_eq!(delivered(&bed, &[configured, OTHER_STATION]), 1);
        assert_eq!(miniport(bed.machines()[0]).received().len(), 1);
        finish(bed);
    }
}

#[test]
fn device_that_refuses_filters_is_used_without() {
    for class in [0, 1] {
        let quirks = Quirks { refuses_class: Some(class), ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
        set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
        assert_eq!(delivered(&bed, &ALL), 4);
        assert_eq!(miniport(bed.machines()[0]).received().len(), 1);
        assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
        finish(bed);
    }
}

//= virtio §12
#[test]
fn device_that_answers_no_command_is_used_without() {
    for format in [Features::default(), Features::RING_PACKED] {
        let quirks = Quirks { commands_unanswered_from: Some(0), ..Quirks::default() };
        let features = Features::DEFAULT | format;
        let Some(bed) = started_with(&Options { quirks, features, ..Options::default() }) else { return };
        let machine = bed.machines()[0];
        set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
        let _ = bed.event().wait(Duration::from_secs(3));
        let _ = miniport(machine).received();
        assert_eq!(delivered(&bed, &ALL), 4, "the device does not filter");
        assert_eq!(miniport(machine).received().len(), 1, "the driver does");
        assert_eq!(events(machine), [event::COMMAND_LATE]);
        copy(&bed);
        finish(bed);
    }
}

/// QEMU executes commands in its main loop, some ten microseconds after the notification.
#[test]
fn command_that_is_answered_soon_takes_no_tick_of_the_clock() {
    let quirks = Quirks { command_time: Duration::from_micros(50), ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, timers: WINDOWS, ..Options::default() }) else { return };
    let before = bed.now();
    set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
    let took = bed.now().saturating_sub(before);
    assert!((150..1000).contains(&took.as_micros()), "three commands took {took:?}");
    finish(bed);
}

/// The device keeps the filter that it has, and everything else goes on, however often it refuses another one.
#[test]
fn device_that_ceases_to_accept_commands_is_not_reset() {
    for format in [Features::default(), Features::RING_PACKED] {
        let quirks = Quirks { commands_refused_from: Some(4), ..Quirks::default() };
        let features = Features::DEFAULT | format;
        let Some(bed) = started_with(&Options { quirks, features, ..Options::default() }) else { return };
        let machine = bed.machines()[0];
        for _ in 0..5 {
            set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
            let _ = bed.event().wait(Duration::from_secs(1));
            assert_eq!(delivered(&bed, &ALL), 1);
            copy(&bed);
        }
        let events = events(machine);
        assert!(
            events.iter().all(|&event| event == event::COMMAND_REFUSED) && !events.is_empty(),
            "{events:?}"
        );
        assert!(machine.nic().is_running());
        finish(bed);
    }
}
