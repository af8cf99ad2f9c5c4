// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices of other hypervisors and vendors, with values that QEMU's has not.

use std::{net::Ipv4Addr, time::Duration};

use device_sim::{Quirks, virtio_net::Features};
use lab::{
    image,
    machine::{AdapterOptions, Machine, MachineOptions},
    testbed::Options,
};
use ndis_sim::{Keyword, NdisHost as _};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, NET_IF_MEDIA_DUPLEX_STATE, OID_GEN_STATISTICS,
};
use nt_sim::ClockKind;
use support::{
    bed::{counter, finish, miniport, started, started_with},
    copying::copy,
    faults::{await_until, event, events, exchange_frame},
    filters::set_filter,
};

const MOMENT: Duration = Duration::from_secs(20);

/// Offset of `ifInErrors` in NDIS_STATISTICS_INFO.
const IN_ERRORS: usize = 16;

fn current(machine: &Machine) -> Vec<u8> {
    miniport(machine).attributes().general.expect("the adapter has attributes").CurrentMacAddress[..6]
        .to_vec()
}

//= virtio §14
#[test]
fn address_that_no_station_can_have_is_replaced_by_a_random_one() {
    let Some(image) = image() else { return };
    for mac in [[0; 6], [0xFF; 6], [0x3D, 0x70, 0xEB, 0x61, 0x1A, 0x91]] {
        let mut sim = ndis_sim::builder().clock(ClockKind::Deterministic { seed: 0 }).build();
        let adapter = AdapterOptions::new(mac, vec![(Ipv4Addr::new(10, 0, 0, 1).into(), 24)]);
        let options =
            MachineOptions { mtu: 1500, path_mtu: 1024, ..MachineOptions::new("alpha", vec![adapter]) };
        let mut machine = Machine::new(&mut sim, &image, &options).expect("the image can be loaded");
        machine.start().unwrap_or_else(|error| panic!("{error}\n{}", sim.verdict()));
        let used = current(&machine);
        assert_eq!(used[0], 2, "{mac:02x?}: {used:02x?}");
        assert_eq!(machine.nic().mac()[..], used[..], "the device knows it");
        assert_eq!(events(&machine), [event::INVALID_ADDRESS]);
        machine.stop().expect("the driver stops");
        assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    }
}

/// The certification of network adapters requires that others are ignored.
#[test]
fn configured_address_is_used_only_if_it_is_locally_administered() {
    for (text, is_used) in [("001122334455", false), ("021122334455", true), ("031122334455", false)] {
        let Some(bed) = started(&[("NetworkAddress", text)]) else { return };
        let used = current(bed.machines()[0]);
        assert_eq!(used[1..] == [0x11, 0x22, 0x33, 0x44, 0x55], is_used, "{text}: {used:02x?}");
        let expected = if is_used { &[][..] } else { &[event::INVALID_KEYWORD] };
        assert_eq!(events(bed.machines()[0]), expected, "{text}");
        finish(bed);
    }
}

//= virtio §4
#[test]
fn number_of_pairs_that_no_device_can_have_means_one() {
    for number in [0, 0x8000, u16::MAX] {
        let quirks = Quirks { reported_pairs: Some(number), ..Quirks::default() };
        let features = Features::DEFAULT | Features::MQ;
        let Some(bed) = started_with(&Options { quirks, features, ..Options::default() }) else { return };
        exchange_frame(&bed, 1);
        copy(&bed);
        assert!(events(bed.machines()[0]).is_empty());
        finish(bed);
    }
}

/// Cloud Hypervisor's and crosvm's devices start only if all queues of the accepted features are enabled.
//= virtio §4
#[test]
fn device_that_insists_on_all_queues_may_have_more_pairs_than_there_are_processors() {
    let quirks = Quirks { insists_on_all_queues: true, ..Quirks::default() };
    for (format, pairs) in [(Features::default(), 4), (Features::RING_PACKED, 4), (Features::default(), 511)]
    {
        let features = Features::DEFAULT | Features::MQ | format;
        let options = Options { quirks, features, pairs, path_mtu: 1024, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        let machine = bed.machines()[0];
        exchange_frame(&bed, 1);
        copy(&bed);
        assert_eq!((events(machine), machine.nic().active_pairs()), (vec![], 2));
        machine.nic().need_reset();
        await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
        exchange_frame(&bed, 1);
        assert_eq!(events(machine), [event::NEEDS_RESET, event::RECOVERED]);
        finish(bed);
    }
}

//= virtio §14
#[test]
fn duplex_mode_is_the_one_that_the_device_reports() {
    for (value, expected) in [
        (0, NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateHalf),
        (1, NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateFull),
        (0xFF, NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown),
    ] {
        let quirks = Quirks { duplex: Some(value), ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
        let general = miniport(bed.machines()[0]).attributes().general.expect("the adapter has attributes");
        assert_eq!(general.MediaDuplexState, expected, "{value}");
        finish(bed);
    }
}

/// Bridges forward frames that are as long as a tagged one, without a tag.
#[test]
fn untagged_frame_longer_than_the_mtu_is_dropped_also_with_coalescing() {
    let keyword = |value: &str| ("*JumboPacket", Keyword::Text(value.into()));
    let peer_quirks = Quirks { mtu: Some(1600), ..Quirks::default() };
    let options = Options { mtu: Some(1500), peer_quirks, path_mtu: 1024, ..Options::default() };
    let Some(image) = image() else { return };
    let mut bed = lab::testbed::Testbed::new(&image, &options).expect("the image can be loaded");
    let (name, value) = keyword("1600");
    bed.machines()[1].host().set_keyword(name, value);
    bed.start().unwrap_or_else(|error| panic!("{error}\n{:?}", bed.violations()));
    let [receiver, sender] = bed.machines().map(miniport);
    set_filter(&bed, NDIS_PACKET_TYPE_DIRECTED);
    let _ = receiver.received();
    let errors = || counter(&receiver.query(OID_GEN_STATISTICS, 152).unwrap(), IN_ERRORS);
    for (len, arrives) in [(1514, true), (1515, false), (1518, false)] {
        let before = errors();
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5];
        frame.resize(len, 7);
        assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS), "{len} bytes");
        let _ = bed.event().wait(Duration::from_millis(100));
        assert_eq!(receiver.received().len(), usize::from(arrives), "{len} bytes");
        assert_eq!(errors() - before, u64::from(!arrives), "{len} bytes: counted");
    }
    finish(bed);
}
