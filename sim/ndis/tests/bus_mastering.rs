// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bus mastering of a device: left to the driver, or enabled by the system when the device starts.

use std::sync::Mutex;

use crate::common::{
    device::set_power_capable,
    scripted::{Script, host, kept, register, simulation},
};
use ndis_sim::{Miniport, NdisHost as _, bus};
use ndk_abi::ndis::{NDIS_OID_REQUEST, NDIS_STATUS_SUCCESS};

/// The command registers that the miniport has seen: at initialization, and at each request for power.
static SEEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn command(handle: usize) -> u8 {
    let command = kept([0_u8; 2]);
    bus::NdisMGetBusData(handle, 0, 4, command.cast(), 2);
    command.read()[0]
}

#[test]
fn system_enables_bus_mastering_at_start_and_after_d3_only_if_it_is_set() {
    const MEMORY: u8 = 2;
    const BUS_MASTER: u8 = 4;
    let initialize = |handle| {
        set_power_capable(handle);
        SEEN.lock().unwrap().push(command(handle));
    };
    let answer = |handle, _: *mut NDIS_OID_REQUEST| {
        SEEN.lock().unwrap().push(command(handle));
        NDIS_STATUS_SUCCESS
    };
    for by_system in [false, true] {
        SEEN.lock().unwrap().clear();
        let mut sim = simulation();
        let host = host(&mut sim);
        host.set_bus_mastering(by_system);
        let script = Script { initialize: Some(initialize), answer: Some(answer), ..Script::default() };
        assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
        let miniport = Miniport::start(&host).unwrap();
        miniport.sleep().unwrap();
        miniport.wake().unwrap();
        miniport.halt().unwrap();
        // The driver leaves the register as it is.
        Miniport::start(&host).unwrap().halt().unwrap();
        let expected = if by_system { MEMORY | BUS_MASTER } else { MEMORY };
        let seen = SEEN.lock().unwrap().clone();
        assert!(seen.len() > 3 && seen.iter().all(|&seen| seen == expected), "{seen:?}");
        assert_eq!(sim.verdict().to_string(), "no violation");
    }
}
