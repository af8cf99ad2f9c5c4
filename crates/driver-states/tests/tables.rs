// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transitions of an adapter, of a device and of a setting, and the numbers that the driver stores.

use driver_states::{adapter::State, device::DeviceState, setting::SettingState};

#[test]
fn adapter() {
    for (number, state) in State::ALL.iter().enumerate() {
        assert_eq!(*state as usize, number);
    }
    insta::assert_snapshot!(State::table());
}

#[test]
fn device() {
    for (number, state) in DeviceState::ALL.iter().enumerate() {
        assert_eq!(*state as usize, number);
    }
    insta::assert_snapshot!(DeviceState::table());
}

#[test]
fn setting() {
    insta::assert_snapshot!(SettingState::table());
}
