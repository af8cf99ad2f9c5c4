// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's configuration: read whole, and with values that the driver can use.

#![cfg(target_os = "linux")]

mod fake;

use fake::{Fake, Quirks, mac_of};
use virtio_net::{Control, Error, Features, Layout};

/// The control registers of a device that has negotiated its features.
fn negotiated(quirks: Quirks) -> (Fake, Control<Fake, Fake>) {
    let device = Fake::new(quirks);
    let layout = Layout::find(&fake::config_space(), Fake::bar_len).unwrap();
    let mut control = Control::new(device.clone(), device.clone(), layout);
    control.negotiate().unwrap();
    (device, control)
}

//= virtio §14
#[test]
fn a_configuration_that_changes_while_it_is_read_is_read_again() {
    for changes in 1..=4 {
        let (device, control) = negotiated(Quirks::default());
        device.change(|quirks| quirks.config_changes = changes);
        assert_eq!(control.net_config().unwrap().mac, Some(mac_of(changes as u8)), "{changes} changes");
    }
}

//= virtio §14
#[test]
fn a_configuration_that_changes_at_each_read_is_not_used() {
    for (changes, expected) in
        [(7, Ok(Some(mac_of(7)))), (8, Err(Error::UnsteadyConfig)), (100, Err(Error::UnsteadyConfig))]
    {
        let (device, control) = negotiated(Quirks::default());
        device.change(|quirks| quirks.config_changes = changes);
        assert_eq!(control.net_config().map(|config| config.mac), expected, "{changes} changes");
    }
}

//= virtio §14
#[test]
fn only_a_speed_of_the_valid_range_is_reported() {
    let offered = Quirks::default().offered | Features::SPEED_DUPLEX;
    let report =
        |speed| negotiated(Quirks { offered, speed, ..Quirks::default() }).1.net_config().unwrap().speed;
    let most = i32::MAX.cast_unsigned();
    assert_eq!([1, 10_000, most].map(report), [Some(1), Some(10_000), Some(most)]);
    assert_eq!([0, most + 1, u32::MAX].map(report), [None; 3]);
    let (_, control) = negotiated(Quirks { speed: 10_000, ..Quirks::default() });
    assert_eq!(control.net_config().unwrap().speed, None, "without the feature");
}
