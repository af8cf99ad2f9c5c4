// SPDX-License-Identifier: MIT OR Apache-2.0

//! Power transitions of an adapter: what NDIS asks of the miniport before and after the bus changes the power of the device.
//! On a thread of the adapter's host, at `PASSIVE_LEVEL`. (windows-packaging §8.3)

use std::sync::Arc;

use ndk_abi::ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_PM_PARAMETERS_REVISION_1, NDIS_PM_PARAMETERS_REVISION_2, NDIS_REQUEST_TYPE,
    NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1, NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2, NDIS_STATUS,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS, OID_PM_PARAMETERS, OID_PNP_QUERY_POWER,
    OID_PNP_SET_POWER,
};

use nt_sim::{Host, Tolerance, current};

use crate::{
    adapter::{Adapter, AdapterState},
    bus, interrupt, lifecycle,
    ndk_state::NdkEvent,
    rules::{self, require},
};

/// Turns the device off. Does nothing if the adapter was removed.
pub(crate) fn sleep(adapter: &Arc<Adapter>) {
    if adapter.state() == AdapterState::Halted {
        return;
    }
    let attributes = adapter.attributes();
    let supported =
        attributes.general.is_some_and(|general| !general.PowerManagementCapabilitiesEx.is_null());
    assert!(supported, "NDIS halts a miniport without power management instead");
    query(adapter, NDIS_DEVICE_POWER_STATE::NdisDeviceStateD3);
    let flags = attributes.registration.map_or(0, |registration| registration.AttributeFlags);
    if adapter.state() == AdapterState::Running && flags & NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND == 0 {
        lifecycle::pause(adapter);
    }
    set_parameters(adapter);
    let status = set(adapter, NDIS_DEVICE_POWER_STATE::NdisDeviceStateD3);
    require(status == NDIS_STATUS_SUCCESS, rules::SLEEP, || {
        format!("OID_PNP_SET_POWER to D3 failed: {status:#010x}")
    });
    let (sending, _) = adapter.data_path.outstanding();
    require(sending == 0, rules::SLEEP, || {
        format!("OID_PNP_SET_POWER to D3 completed, but {sending} sends are not completed")
    });
    //= R-PNP-11
    if is_ndk_enabled(adapter) {
        adapter.driver.undocumented(
            current().host(),
            Tolerance::NdkInSleep,
            "OID_PNP_SET_POWER to D3 completed without NetEventNDKDisable, but the device loses its state",
        );
    }
    adapter.nic.enter_low_power();
    // A driver must not take interrupts of other devices on the line for its own.
    interrupt::deliver_line(current().host());
}

/// Turns the device on. Returns the status of the miniport.
pub(crate) fn wake(host: &Host, adapter: &Arc<Adapter>) -> NDIS_STATUS {
    adapter.nic.leave_low_power();
    bus::enable_bus_mastering(host, &*adapter.nic);
    set(adapter, NDIS_DEVICE_POWER_STATE::NdisDeviceStateD0)
}

/// Returns whether the miniport reported last that NDK adapters can be opened.
fn is_ndk_enabled(adapter: &Adapter) -> bool {
    let at_start = adapter.attributes().ndk.is_some_and(|(enabled, ..)| enabled);
    adapter.ndk.events().last().map_or(at_start, |&event| event == NdkEvent::Enable)
}

fn query(adapter: &Arc<Adapter>, state: NDIS_DEVICE_POWER_STATE) {
    let kind = NDIS_REQUEST_TYPE::NdisRequestQueryInformation;
    let answer = adapter.oid(kind, OID_PNP_QUERY_POWER, &mut state.0.to_le_bytes());
    require(answer.is_ok(), rules::QUERY_POWER, || {
        format!("OID_PNP_QUERY_POWER failed, which is not allowed: {answer:?}")
    });
}

/// Says what is to wake the system: nothing. Miniports without wake-up events need not know the request. (WDK:
/// OID_PM_PARAMETERS)
fn set_parameters(adapter: &Arc<Adapter>) {
    let (revision, size) = if adapter.driver.characteristics.MinorNdisVersion >= 30 {
        (NDIS_PM_PARAMETERS_REVISION_2, NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2)
    } else {
        (NDIS_PM_PARAMETERS_REVISION_1, NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1)
    };
    let mut parameters = vec![0; size.into()];
    parameters[0] = NDIS_OBJECT_TYPE_DEFAULT;
    parameters[1] = revision;
    parameters[2..4].copy_from_slice(&size.to_le_bytes());
    let refused = adapter.set_oid(OID_PM_PARAMETERS, &parameters).err();
    if let Some(error) = refused.filter(|error| error.status != NDIS_STATUS_NOT_SUPPORTED) {
        adapter.driver.undocumented(
            current().host(),
            Tolerance::PmParameters,
            &format!("OID_PM_PARAMETERS that enables nothing failed: {error:?}"),
        );
    }
}

fn set(adapter: &Arc<Adapter>, state: NDIS_DEVICE_POWER_STATE) -> NDIS_STATUS {
    match adapter.set_oid(OID_PNP_SET_POWER, &state.0.to_le_bytes()) {
        Ok(()) => NDIS_STATUS_SUCCESS,
        Err(error) => error.status,
    }
}
