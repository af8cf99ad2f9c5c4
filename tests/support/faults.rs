// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts whose first device has faults, and what their drivers report of it.
use std::time::Duration;

use crate::bed::{self, miniport};
use device_sim::Quirks;
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Miniport, NdkEvent};
use ndk_abi::ndis::{NDIS_STATUS_LINK_STATE, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};

pub const MOMENT: Duration = Duration::from_secs(20);

/// Event numbers of the driver's event table.
pub mod event {
    use viordma_inf::events;

    pub const REMOVED: u32 = events::REMOVED.number();
    pub const RESET_LATE: u32 = events::RESET_LATE.number();
    pub const BROKEN_RING: u32 = events::BROKEN_RING.number();
    pub const NEEDS_RESET: u32 = events::NEEDS_RESET.number();
    pub const START_DELAYED: u32 = events::START_DELAYED.number();
    pub const LINE_INTERRUPT: u32 = events::LINE_INTERRUPT.number();
    pub const CHANGED: u32 = events::CHANGED.number();
    pub const GIVEN_UP: u32 = events::GIVEN_UP.number();
    pub const UNSTEADY_CONFIG: u32 = events::UNSTEADY_CONFIG.number();
    pub const COMMAND_LATE: u32 = events::COMMAND_LATE.number();
    pub const COMMAND_REFUSED: u32 = events::COMMAND_REFUSED.number();
    pub const QUEUE_CORRUPT: u32 = events::QUEUE_CORRUPT.number();
    pub const QUEUE_RESET_LATE: u32 = events::QUEUE_RESET_LATE.number();
    pub const QUEUE_RESET: u32 = events::QUEUE_RESET.number();
    pub const TRANSMIT_STALLED: u32 = events::TRANSMIT_STALLED.number();
    pub const INVALID_ADDRESS: u32 = events::INVALID_ADDRESS.number();
    pub const FEWER_PAIRS: u32 = events::FEWER_PAIRS.number();
    pub const FEWER_BUFFERS: u32 = events::FEWER_BUFFERS.number();
    pub const RECOVERED: u32 = events::RECOVERED.number();
    pub const INVALID_KEYWORD: u32 = events::INVALID_KEYWORD.number();
}

/// Starts both hosts. The first device has faults.
pub fn started_with(quirks: Quirks) -> Option<Testbed> {
    bed::started_with(&Options { quirks, ..Options::default() })
}

pub fn started() -> Option<Testbed> {
    started_with(Quirks::default())
}

/// Lets time pass until `condition` holds.
pub fn await_until(bed: &Testbed, what: &str, condition: impl Fn() -> bool) {
    let deadline = bed.now() + MOMENT;
    while !condition() {
        assert!(bed.now() < deadline, "{what}: not within {MOMENT:?}\n{}", bed.violations().join("\n"));
        let _ = bed.event().wait(Duration::from_millis(10));
    }
}

/// The event numbers that a host's driver has logged.
pub fn events(machine: &Machine) -> Vec<u32> {
    machine.event_log().iter().map(|entry| entry.code & 0xffff).collect()
}

/// The link states that a miniport has indicated: connected or not.
pub fn links(miniport: &Miniport) -> Vec<bool> {
    const CONNECTED: u8 = 1;
    let indications = miniport.indications();
    let states = indications.iter().filter(|indication| indication.code == NDIS_STATUS_LINK_STATE);
    states.map(|indication| indication.buffer[4] == CONNECTED).collect()
}

/// Asserts the state after a device has failed `rounds` times, each time with this event, and works again: RDMA is disabled and the media
/// is disconnected, then both are back.
pub fn assert_recovered(machine: &Machine, failure: u32, rounds: usize) {
    let miniport = miniport(machine);
    assert_eq!(events(machine), [failure, event::RECOVERED].repeat(rounds));
    assert_eq!(links(&miniport), [false, true].repeat(rounds));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable, NdkEvent::Enable].repeat(rounds));
}

/// Asserts the state after a device has recovered `rounds` times, then failed once more and is given up without another reset: NDIS removes
/// the adapter, and RDMA was disabled at once.
pub fn assert_given_up(machine: &Machine, failure: u32, rounds: usize) {
    let miniport = miniport(machine);
    let recovered = [failure, event::RECOVERED].repeat(rounds);
    assert_eq!(events(machine), [&recovered[..], &[failure, event::GIVEN_UP]].concat());
    assert_eq!(links(&miniport), [&[false, true].repeat(rounds)[..], &[false]].concat());
    let enabled = [NdkEvent::Disable, NdkEvent::Enable].repeat(rounds);
    assert_eq!(miniport.ndk().events(), [&enabled[..], &[NdkEvent::Disable]].concat());
}

/// A frame from the first host to the second one arrives.
pub fn exchange_frame(bed: &Testbed, number: u8) {
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &1_u32.to_le_bytes()).unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
    frame.resize(100, number);
    let _ = receiver.received();
    assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
    let _ = bed.event().wait(Duration::from_millis(100));
    assert_eq!(receiver.received(), [frame]);
}
