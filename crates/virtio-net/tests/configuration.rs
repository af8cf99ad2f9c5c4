// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's configuration: read whole, and with values that the driver can use.

use crate::fake::{Fake, Quirks, mac_of};
use virtio_net::{Control, Duplex, Error, Features, Layout, LinkState, Status, Structure};

/// The control registers of a device that has negotiated its features.
fn negotiated(quirks: Quirks) -> (Fake, Control<Fake, Fake>) {
    let device = Fake::new(quirks);
    let layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
    let mut control = Control::new(device.clone(), device.clone(), layout);
    control.negotiate().unwrap();
    (device, control)
}

/// Outcome of the negotiation if the structure of the configuration has `len` bytes; the fake device has the fields nevertheless.
fn negotiated_with(len: u32, offered: Features) -> Result<Features, Error> {
    let device = Fake::new(Quirks { offered: offered | Features::VERSION_1, ..Quirks::default() });
    let mut config = crate::fake::config_space();
    config[0x6C..0x70].copy_from_slice(&len.to_le_bytes());
    let layout = Layout::find(&config, Fake::bar_len)?;
    let outcome = Control::new(device.clone(), device.clone(), layout).negotiate();
    let failed = outcome == Err(Error::MissingStructure(Structure::Device));
    assert_eq!(device.status() & Status::FAILED.bits() != 0, failed);
    outcome
}

/// Nothing beyond the fields that the driver uses has to be there.
//= virtio §14
#[test]
fn a_configuration_is_as_long_as_the_fields_of_its_features() {
    let pairs = Features::CTRL_VQ | Features::MQ;
    for (len, offered) in [
        (6, Features::empty()),
        (6, Features::MAC),
        (8, Features::MAC | Features::STATUS),
        (10, pairs),
        (12, Features::MTU),
        (12, Features::MTU | Features::SPEED_DUPLEX),
    ] {
        assert_eq!(negotiated_with(len, offered), Ok(offered | Features::VERSION_1));
        let error = Err(Error::MissingStructure(Structure::Device));
        assert_eq!(negotiated_with(len - 1, offered), error, "{} bytes for {offered:?}", len - 1);
    }
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

/// With one message, each interrupt reads the link.
#[test]
fn the_link_is_read_without_the_rest_of_the_configuration() {
    let offered = Quirks::default().offered | Features::SPEED_DUPLEX;
    let (device, control) = negotiated(Quirks { offered, speed: 10_000, ..Quirks::default() });
    let before = device.register_reads();
    let link = LinkState { is_up: true, speed: Some(10_000), duplex: Duplex::Full };
    assert_eq!(control.link(), Ok(link));
    assert_eq!(device.register_reads() - before, 5, "three fields between two readings of the generation");
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
