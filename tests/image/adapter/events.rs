// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event log: whether RDMA is on, and why not; how many events a storm writes; which events an edition of the driver has.

use std::{net::Ipv4Addr, time::Duration};

use lab::{
    image,
    machine::{AdapterOptions, Machine, MachineOptions},
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::OID_NDK_SET_STATE;
use nt_sim::ClockKind;
use roce_wire::PathMtu;
use support::{
    bed::{finish, miniport, started, started_with},
    faults::await_until,
};
use viordma_inf::{
    Edition,
    events::{self, Event, MESSAGES},
};

/// Events at once, and the time after which one more is written.
const BURST: usize = 5;
const INTERVAL: Duration = Duration::from_secs(600);

fn numbers(machine: &Machine) -> Vec<u32> {
    machine.information().iter().map(|entry| entry.code & 0xFFFF).collect()
}

fn await_number(bed: &Testbed, event: Event) {
    await_until(bed, "the state is logged", || numbers(bed.machines()[0]).last() == Some(&event.number()));
}

fn switch(bed: &Testbed, on: bool) {
    miniport(bed.machines()[0]).set(OID_NDK_SET_STATE, &[on.into()]).unwrap();
}

#[test]
fn an_adapter_that_starts_says_with_which_path_mtu_rdma_is_on() {
    let events = [
        events::RDMA_ON_256,
        events::RDMA_ON_512,
        events::RDMA_ON_1024,
        events::RDMA_ON_2048,
        events::RDMA_ON_4096,
    ];
    for (path_mtu, event) in PathMtu::ALL.into_iter().zip(events) {
        let path_mtu = path_mtu.bytes() as u32;
        let Some(bed) = started_with(&Options { path_mtu, ..Options::default() }) else { return };
        await_number(&bed, event);
        let log = bed.machines()[0].information();
        let [entry] = &log[..] else { panic!("{log:?}") };
        let [mtu, configured] = entry.data[..] else { panic!("{entry:?}") };
        assert_eq!((entry.code, configured), (event.id, path_mtu));
        assert!(mtu >= path_mtu + PathMtu::OVERHEAD as u32, "{mtu}");
        finish(bed);
        let message = MESSAGES.iter().find(|message| message.event == event).unwrap();
        assert!(message.text.contains(&format!("RDMA is on: RoCEv2, path MTU {path_mtu}")));
        let needed = 4096 + PathMtu::OVERHEAD;
        assert!(path_mtu == 4096 || message.text.contains(&format!("4096 needs an MTU of {needed} bytes")));
    }
}

#[test]
fn each_change_of_rdma_is_an_event_with_the_reason() {
    let Some(bed) = started(&[("*NetworkDirect", "0")]) else { return };
    await_number(&bed, events::RDMA_OFF_KEYWORD);
    finish(bed);

    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    switch(&bed, false);
    await_number(&bed, events::RDMA_OFF_WINDOWS);
    switch(&bed, true);
    await_number(&bed, events::RDMA_ON_4096);
    machine.nic().need_reset();
    await_until(&bed, "RDMA is on again", || numbers(machine).len() == 5);
    let expected = [
        events::RDMA_ON_4096,
        events::RDMA_OFF_WINDOWS,
        events::RDMA_ON_4096,
        events::RDMA_OFF_DEVICE,
        events::RDMA_ON_4096,
    ];
    assert_eq!(numbers(machine), expected.map(Event::number));
    finish(bed);
}

/// A consumer that does not close keeps RDMA off.
#[test]
fn the_event_of_a_device_that_fails_has_the_number_of_open_ndk_adapters() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let opened = miniport(machine).ndk().open(2, 1).unwrap();
    machine.nic().need_reset();
    await_number(&bed, events::RDMA_OFF_DEVICE);
    assert_eq!(machine.information().last().unwrap().data, [1, 0]);
    let _ = bed.event().wait(Duration::from_secs(5));
    await_number(&bed, events::RDMA_OFF_DEVICE);
    miniport(machine).ndk().close(opened).unwrap();
    await_number(&bed, events::RDMA_ON_4096);
    finish(bed);
}

/// The events of one do not count for another.
#[test]
fn adapters_have_limits_of_their_own_however_many_there_are() {
    const ADAPTERS: u8 = 24;
    let Some(image) = image() else { return };
    let mut sim = ndis_sim::builder().clock(ClockKind::Deterministic { seed: 0 }).build();
    let adapter = |number: u8| {
        AdapterOptions::new([2, 0, 0, 0, 0, number], vec![(Ipv4Addr::new(10, 0, number, 1).into(), 24)])
    };
    let adapters = (1..=ADAPTERS).map(adapter).collect();
    let options = MachineOptions { mtu: 1500, path_mtu: 1024, ..MachineOptions::new("alpha", adapters) };
    let mut machine = Machine::new(&mut sim, &image, &options).expect("the image can be loaded");
    machine.start().unwrap_or_else(|error| panic!("{error}\n{}", sim.verdict()));
    let is_on =
        || numbers(&machine).iter().filter(|&&number| number == events::RDMA_ON_1024.number()).count();
    let event = sim.event();
    for _ in 0..100 {
        let _ = event.wait(Duration::from_millis(10));
    }
    assert_eq!(is_on(), usize::from(ADAPTERS));
    machine.stop().expect("the driver stops");
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

/// The log ends with the state, and says how many events it does not have.
#[test]
fn a_storm_of_events_is_bounded_and_what_was_left_out_is_counted() {
    const SWITCHES: usize = 40;
    let Some(mut bed) = started(&[]) else { return };
    let (miniport, on) = (miniport(bed.machines()[0]), events::RDMA_ON_4096.number());
    let off = events::RDMA_OFF_WINDOWS.number();
    await_number(&bed, events::RDMA_ON_4096);
    for round in 0..SWITCHES {
        switch(&bed, round % 2 == 1);
        assert!(miniport.ndk().await_events(round + 1, Duration::from_secs(1)));
    }
    let _ = bed.event().wait(Duration::from_secs(1));
    let log = bed.machines()[0].information();
    assert_eq!(numbers(bed.machines()[0]), [on, off].repeat(BURST));
    assert!(log.iter().all(|entry| entry.data.len() == 2));
    // RDMA is on, and the log says that it is off.
    let _ = bed.event().wait(INTERVAL + Duration::from_secs(10));
    let log = bed.machines()[0].information();
    assert_eq!(log.len(), 2 * BURST + 1);
    let last = log.last().unwrap();
    assert_eq!(last.code, events::RDMA_ON_4096.id);
    // With the one at the start.
    assert_eq!(last.data[2] as usize, SWITCHES / 2 + 1 - BURST);
    switch(&bed, false);
    await_number(&bed, events::RDMA_OFF_WINDOWS);
    switch(&bed, true);
    assert!(miniport.ndk().await_events(SWITCHES + 2, Duration::from_secs(1)));
    let _ = bed.event().wait(Duration::from_secs(1));
    bed.machine_mut(0).halt_adapter().expect("the adapter halts");
    let entries = bed.machines()[0].event_log();
    let [omitted] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((omitted.code, &omitted.data[..]), (events::OMITTED.id, &[on, 1][..]));
    finish(bed);
}

#[test]
fn only_the_strict_edition_has_the_events_of_consumers() {
    let (Some(standard), Some(strict)) = (lab::image(), lab::strict_image()) else { return };
    for (image, edition) in [(standard, Edition::Standard), (strict, Edition::Strict)] {
        let image = std::fs::read(image).unwrap();
        let has = |text: &str| {
            let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            image.windows(text.len()).any(|window| window == text)
        };
        assert!(has("%2: RDMA is on: RoCEv2, path MTU 1024."));
        assert_eq!(has("%2: an NDK consumer "), edition == Edition::Strict);
        assert_eq!(has("NDK consumers were found"), edition == Edition::Strict);
    }
    for message in MESSAGES.iter().filter(|message| message.edition() == Edition::Strict) {
        let is_of_consumer = ["%2: an NDK consumer ", "NDK consumers were found"]
            .iter()
            .any(|text| message.text.contains(text));
        assert!(is_of_consumer, "{}", message.text);
    }
}
