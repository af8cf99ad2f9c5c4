// SPDX-License-Identifier: MIT OR Apache-2.0

//! The vendor-specific OIDs on the image: the one that turns tracing of the engine on and returns its records, and that of counters.

use std::{collections::BTreeMap, net::IpAddr};

use lab::{
    image,
    machine::{AdapterOptions, Machine, MachineOptions},
};
use ndk_abi::ndis::{
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES,
};
use nt_sim::ClockKind;
use support::{
    bed::{counter, finish, miniport, started},
    copying::try_copy,
    traces::{OID_VIORDMA_COUNTERS, OID_VIORDMA_TRACE, RECORD, records, send_to_unknown, set, unknown},
};

#[test]
fn dropped_packet_is_recorded_with_queue_pair_and_psn_while_tracing_is_on() {
    let Some(bed) = started(&[]) else { return };
    let tracing = miniport(bed.machines()[1]);
    send_to_unknown(&bed, 1..2);
    assert_eq!(records(&tracing), [], "off at start");
    let before = bed.now();
    set(&tracing, 1);
    send_to_unknown(&bed, 7..8);
    let seen = records(&tracing);
    assert_eq!(seen.iter().map(unknown).collect::<Vec<_>>(), [Some(7)]);
    let elapsed = u64::try_from(bed.now().saturating_sub(before).as_nanos()).unwrap() / 100;
    send_to_unknown(&bed, 8..9);
    let [first, second] = &records(&tracing)[..] else { panic!("two records") };
    assert_eq!(*first, seen[0]);
    // 50 ms pass while the first arrives.
    assert!((1..=2 * elapsed).contains(&(second.time - first.time)), "{first:?}, {second:?}");
    set(&tracing, 0);
    send_to_unknown(&bed, 9..10);
    assert_eq!(records(&tracing), [], "off");
    set(&tracing, 1);
    assert_eq!(records(&tracing), [], "on, without the records of before");
    finish(bed);
}

#[test]
fn states_of_a_connection_are_recorded_in_order_on_the_host_that_traces() {
    let Some(bed) = started(&[]) else { return };
    let [tracing, other] = bed.machines().map(miniport);
    set(&tracing, 1);
    for end in try_copy(&bed, 1 << 16, |_| {}) {
        end.expect("the data is copied");
    }
    let seen = records(&tracing);
    let states: Vec<_> = seen.iter().filter(|record| record.event.contains(" to ")).collect();
    let events: Vec<_> = states.iter().map(|record| &record.event[..]).collect();
    assert_eq!(events[..2], ["Init to Rtr", "Rtr to Rts"]);
    assert_eq!(events.last(), Some(&"Rts to Error"));
    assert!(states.iter().all(|record| record.qpn == states[0].qpn && record.qpn > 1), "{states:?}");
    assert!(seen.is_sorted_by_key(|record| record.time));
    assert_eq!(records(&other), [], "it does not trace");
    finish(bed);
}

#[test]
fn last_256_records_are_kept() {
    let Some(bed) = started(&[]) else { return };
    let tracing = miniport(bed.machines()[1]);
    set(&tracing, 1);
    send_to_unknown(&bed, 0..300);
    let psns: Vec<_> = records(&tracing).iter().filter_map(unknown).collect();
    assert_eq!(psns, (44..300).collect::<Vec<_>>());
    let short = tracing.query(OID_VIORDMA_TRACE, 256 * RECORD - 1).unwrap_err();
    assert_eq!(short.needed as usize, 256 * RECORD);
    finish(bed);
}

#[test]
fn tracing_works_after_more_restarts_than_adapters_can_be_traced() {
    let Some(mut bed) = started(&[]) else { return };
    for _ in 0..20 {
        let machine: &mut Machine = bed.machine_mut(1);
        let tracing = miniport(machine);
        assert_eq!(records(&tracing), [], "off after a start");
        set(&tracing, 1);
        machine.halt_adapter().expect("the adapter halts");
        machine.start_adapter().expect("the adapter starts");
    }
    let tracing = miniport(bed.machines()[1]);
    set(&tracing, 1);
    assert_eq!(records(&tracing), []);
    finish(bed);
}

/// The traced adapters are numbered from a static array of 16.
#[test]
fn adapters_beyond_the_sixteenth_are_not_traced_until_another_is_gone() {
    const TRACED: u8 = 16;
    let Some(image) = image() else { return };
    let mut sim = ndis_sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
    let adapter = |number: u8| {
        AdapterOptions::new([2, 0, 0, 0, 0, number], vec![(IpAddr::from([10, 0, number, 1]), 24)])
    };
    let options = MachineOptions::new("alpha", (0..TRACED + 2).map(adapter).collect());
    let mut machine = Machine::new(&mut sim, &image, &options).expect("the image can be loaded");
    machine.start().expect("all adapters start");
    let tracing = |machine: &Machine, number: u8| {
        machine.adapters()[usize::from(number)].miniport().expect("the adapter has started").clone()
    };
    for number in 0..TRACED {
        set(&tracing(&machine, number), 1);
    }
    for number in TRACED..TRACED + 2 {
        let beyond = tracing(&machine, number);
        let refused = beyond.set(OID_VIORDMA_TRACE, &[1]).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_RESOURCES);
        set(&beyond, 0);
        assert_eq!(records(&beyond), []);
    }
    // The number of an adapter that is gone is that of the next one that starts.
    machine.adapters_mut()[3].halt().expect("the adapter halts");
    let last = &mut machine.adapters_mut()[usize::from(TRACED)];
    last.halt().expect("the adapter halts");
    last.start().expect("the adapter starts");
    set(&tracing(&machine, TRACED), 1);
    machine.stop().expect("the driver stops");
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn invalid_values_and_a_lack_of_memory_are_refused_and_change_nothing() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[1];
    let (host, tracing) = (machine.host().clone(), miniport(machine));
    let refused = |value: &[u8]| tracing.set(OID_VIORDMA_TRACE, value).unwrap_err().status;
    set(&tracing, 1);
    send_to_unknown(&bed, 3..4);
    assert_eq!(refused(&[2]), NDIS_STATUS_INVALID_DATA);
    assert_eq!(refused(&[]), NDIS_STATUS_INVALID_LENGTH);
    host.low_resources.fail_nth(0);
    assert_eq!(refused(&[1]), NDIS_STATUS_RESOURCES);
    host.low_resources.fail_nth(0);
    let query = tracing.query(OID_VIORDMA_TRACE, 256 * RECORD).unwrap_err();
    assert_eq!(query.status, NDIS_STATUS_RESOURCES);
    host.low_resources.fail_nth(u64::MAX / 2);
    assert_eq!(records(&tracing).iter().map(unknown).collect::<Vec<_>>(), [Some(3)]);
    finish(bed);
}

/// The other vendor-specific OID: records of 32 bytes of a name and a 64-bit value.
#[test]
fn counters_are_answered_as_names_and_values() {
    const LEN: usize = 40;
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for end in try_copy(&bed, 1 << 16, |_| {}) {
        end.expect("the data is copied");
    }
    let short = miniport.query(OID_VIORDMA_COUNTERS, 0).unwrap_err();
    assert_eq!(short.status, NDIS_STATUS_BUFFER_TOO_SHORT);
    let len = short.needed as usize;
    assert!(len > LEN && len.is_multiple_of(LEN), "{len} bytes");
    let one_less = miniport.query(OID_VIORDMA_COUNTERS, len - 1).unwrap_err();
    assert_eq!((one_less.status, one_less.needed), (NDIS_STATUS_BUFFER_TOO_SHORT, short.needed));
    let answer = miniport.query(OID_VIORDMA_COUNTERS, len).unwrap();
    assert_eq!(answer.len(), len);
    let counters: BTreeMap<_, _> = answer
        .chunks(LEN)
        .map(|record| {
            let name = std::str::from_utf8(&record[..32]).unwrap();
            (name.trim_end_matches('\0'), counter(record, 32))
        })
        .collect();
    assert_eq!(counters.len(), len / LEN, "each name once");
    assert!(counters["tx_frames"] > 16 && counters["tx_bytes"] > 1 << 16, "{counters:?}");
    assert_eq!(counters["drop_icrc"], 0);
    assert_eq!(miniport.set(OID_VIORDMA_COUNTERS, &answer).unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED);
    finish(bed);
}
