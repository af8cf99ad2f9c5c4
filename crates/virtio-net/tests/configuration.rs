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

/// The control registers of a device, of whose configuration the structure has `len` bytes, before its features are negotiated.
fn of_length(len: u32, quirks: Quirks) -> (Fake, Control<Fake, Fake>) {
    let device = Fake::new(quirks);
    let mut layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
    layout.device.len = len;
    (device.clone(), Control::new(device.clone(), device, layout))
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

//= virtio §14
#[test]
fn speed_and_duplex_are_read_if_they_are_within_the_structure() {
    let offered = Quirks::default().offered | Features::SPEED_DUPLEX;
    for (len, expected) in [
        (12, (None, Duplex::Full)),
        (13, (None, Duplex::Full)),
        (15, (None, Duplex::Full)),
        (16, (Some(1000), Duplex::Full)),
        (17, (Some(1000), Duplex::Half)),
    ] {
        let (_, mut control) =
            of_length(len, Quirks { offered, speed: 1000, duplex: 0, ..Quirks::default() });
        control.negotiate().unwrap();
        let config = control.net_config().unwrap();
        assert_eq!((config.speed, config.duplex), expected, "{len}");
    }
    let (_, control) = negotiated(Quirks { duplex: 0, ..Quirks::default() });
    assert_eq!(control.net_config().unwrap().duplex, Duplex::Full, "without the feature");
}

/// The bits of the status are the link, and a request for announcements.
#[test]
fn link_and_announcement_are_bits_of_the_status() {
    let announce = Features::CTRL_VQ | Features::GUEST_ANNOUNCE;
    for (features, net_status, expected) in [
        (announce, 0, (false, false)),
        (announce, 1, (true, false)),
        (announce, 2, (false, true)),
        (announce, 3, (true, true)),
        (Features::CTRL_VQ, 3, (true, false)),
    ] {
        let offered = Quirks::default().offered | features;
        let (_, control) = negotiated(Quirks { offered, net_status, ..Quirks::default() });
        let found = (control.net_config().unwrap().link_up, control.asks_for_announcement());
        assert_eq!(found, expected, "{net_status} with {features:?}");
    }
}

//= virtio §10
#[test]
fn mtu_that_is_too_small_is_not_accepted_and_none_is_read_beyond_the_structure() {
    for (mtu, is_accepted) in [(67, false), (575, false), (576, true), (1500, true)] {
        let (device, _control) = negotiated(Quirks { mtu, ..Quirks::default() });
        assert_eq!(device.accepted().contains(Features::MTU), is_accepted, "{mtu}");
    }
    for len in [10, 11] {
        let offered = Features::VERSION_1 | Features::MTU;
        let (_, mut control) = of_length(len, Quirks { offered, mtu: 67, ..Quirks::default() });
        assert_eq!(control.negotiate(), Err(Error::MissingStructure(Structure::Device)));
    }
}

/// Hashes and their steering need the registers of their limits.
#[test]
fn scaling_is_accepted_if_its_limits_are_within_the_structure() {
    let offered = Quirks::default().offered | Features::CTRL_VQ | Features::RSS | Features::HASH_REPORT;
    for (len, is_accepted) in [(17, false), (22, false), (23, false), (24, true), (25, true)] {
        let (device, mut control) = of_length(len, Quirks { offered, ..Quirks::default() });
        control.negotiate().unwrap();
        let found = device.accepted() & (Features::RSS | Features::HASH_REPORT);
        assert_eq!(!found.is_empty(), is_accepted, "{len}");
    }
}

#[test]
fn refused_features_are_not_accepted() {
    let (device, mut control) = of_length(0x1000, Quirks::default());
    control.refuse(Features::MTU | Features::STATUS);
    control.negotiate().unwrap();
    assert_eq!(device.accepted(), Quirks::default().offered - Features::MTU - Features::STATUS);
}

//= virtio §3
#[test]
fn control_is_finished_when_no_reset_is_needed() {
    let (device, mut control) = negotiated(Quirks::default());
    assert!(!control.is_finished());
    device.change(|quirks| quirks.never_resets = true);
    assert_eq!((control.reset(), control.is_finished()), (Err(Error::ResetTimeout), true));
    device.change(|quirks| quirks.never_resets = false);
    assert_eq!((control.reset(), control.is_finished()), (Ok(()), true));
    control.negotiate().unwrap();
    assert!(!control.is_finished());
    device.change(|quirks| quirks.removed = true);
    assert_eq!((control.reset(), control.is_finished()), (Err(Error::Removed), false));
    // It stays so: another device may be in its place.
    device.change(|quirks| quirks.removed = false);
    assert_eq!(control.reset(), Err(Error::Removed));
}

//= virtio §15
#[test]
fn vector_of_the_configuration_that_is_refused_after_a_reset_is_a_change() {
    let (device, mut control) = negotiated(Quirks::default());
    assert_eq!(control.reassign_config_vector(1), Ok(()));
    device.change(|quirks| quirks.changed_config_vector = 1);
    assert_eq!(control.reassign_config_vector(1), Err(Error::Changed));
}
