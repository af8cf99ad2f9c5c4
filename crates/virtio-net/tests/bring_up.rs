// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bring-up and reset of a device, and every error of bring-up.

use std::fmt::Write;

use crate::fake::{Fake, Quirks};
use virtio_net::{Control, Error, FEATURES, Features, Layout, Nic, Options, State, Status};

fn refused(quirks: Quirks) -> (Error, Fake) {
    refused_with(quirks, 1514)
}

fn refused_with(quirks: Quirks, max_frame: usize) -> (Error, Fake) {
    let fake = Fake::new(quirks);
    let error = fake.bring_up(max_frame).err().expect("the device should be refused");
    fake.assert_well_treated();
    (error, fake)
}

#[test]
fn bring_up_and_reset_leave_a_clean_device() {
    let fake = Fake::new(Quirks::default());
    let driver = fake.bring_up(1514).unwrap();
    assert_eq!(driver.control.state(), State::Live);
    let config = driver.control.net_config().unwrap();
    assert_eq!((config.mac, config.mtu, config.link_up), (Some(crate::fake::MAC), Some(1500), true));
    assert_eq!(config.speed, None, "a field whose feature was not offered is not read");
    drop(driver);
    assert_eq!(fake.status(), 0);
    fake.assert_well_treated();
}

#[test]
fn a_device_without_version_1_is_refused_and_marked_failed() {
    let (error, fake) = refused(Quirks { offered: Features::MAC | Features::EVENT_IDX, ..Quirks::default() });
    assert_eq!(error, Error::NoVersion1);
    assert_ne!(fake.status() & Status::FAILED.bits(), 0);
}

#[test]
fn only_features_of_the_table_are_accepted() {
    let everything = Features::from_bits_retain(!0);
    let fake = Fake::new(Quirks { offered: everything, ..Quirks::default() });
    let driver = fake.bring_up(1514);
    let supported = FEATURES.iter().fold(Features::empty(), |all, row| all | row.feature);
    assert_eq!(fake.accepted(), supported);
    drop(driver);
}

/// It would take the addresses of the rings for physical ones.
#[test]
fn a_device_without_access_platform_is_refused_if_the_platform_remaps() {
    let offered = Quirks::default().offered;
    for (is_remapped, offered, is_refused) in [
        (true, offered - Features::ACCESS_PLATFORM, true),
        (true, offered | Features::ACCESS_PLATFORM, false),
        (false, offered - Features::ACCESS_PLATFORM, false),
    ] {
        let fake = Fake::new(Quirks { offered, is_remapped, ..Quirks::default() });
        let error = fake.bring_up(1514).err();
        assert_eq!(error, is_refused.then_some(Error::BypassesIommu), "{is_remapped} {offered:?}");
    }
}

#[test]
fn a_device_that_rejects_the_features_is_refused() {
    let (error, fake) = refused(Quirks { rejects_features: true, ..Quirks::default() });
    assert_eq!(error, Error::FeaturesRejected);
    assert_ne!(fake.status() & Status::FAILED.bits(), 0);
}

//= virtio §16
#[test]
fn a_reset_that_never_ends_times_out() {
    let (error, fake) = refused(Quirks { never_resets: true, ..Quirks::default() });
    assert_eq!(error, Error::ResetTimeout);
    assert!((1000..1020).contains(&fake.elapsed().as_millis()), "{:?}", fake.elapsed());
}

//= virtio §3
#[test]
fn a_device_may_access_memory_from_the_end_of_its_reset_to_the_end_of_its_control() {
    let fake = Fake::new(Quirks { never_resets: true, ..Quirks::default() });
    let layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
    let mut control = Control::new(fake.clone(), fake.clone(), layout);
    assert_eq!(control.negotiate(), Err(Error::ResetTimeout));
    assert!(!fake.has_dma(), "it may have addresses that an earlier driver left there");
    fake.change(|quirks| quirks.never_resets = false);
    control.negotiate().unwrap();
    assert!(fake.has_dma());
    drop(control);
    assert!(!fake.has_dma());
}

/// The register that resets a queue is behind those that every device has.
//= virtio §16
#[test]
fn reset_of_a_queue_is_refused_without_room_for_its_register() {
    for (len, expected) in [(0x38, false), (0x3B, false), (0x3C, true)] {
        let offered = Quirks::default().offered | Features::RING_RESET;
        let fake = Fake::new(Quirks { offered, ..Quirks::default() });
        let mut layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
        layout.common.len = len;
        let mut control = Control::new(fake.clone(), fake.clone(), layout);
        control.negotiate().unwrap();
        assert_eq!(fake.accepted().contains(Features::RING_RESET), expected, "{len:#x}");
    }
}

/// Without DRIVER_OK it should not use the queues.
//= virtio §3
#[test]
fn memory_of_a_failed_bring_up_is_freed_once_the_device_was_reset_or_cannot_access_it() {
    for never_resets in [false, true] {
        // Too little memory, and a queue whose notification address is wrong behind one that is enabled.
        for (allocations, notify_off) in [(3, 1), (usize::MAX, 0x400)] {
            let fake = Fake::new(Quirks { notify_off, ..Quirks::default() });
            let layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
            let mut control = Control::new(fake.clone(), fake.clone(), layout);
            control.negotiate().unwrap();
            fake.change(|quirks| (quirks.never_resets, quirks.allocations) = (never_resets, allocations));
            let options = Options {
                transmit_frame: 1514,
                receive_frame: 1514,
                pairs: 1,
                receive_size: 256,
                transmit_size: 256,
                messages: 3,
            };
            assert!(Nic::new(&fake, &mut control, &options).is_err());
            assert_eq!(fake.has_dma(), !never_resets);
            fake.assert_well_treated();
        }
    }
}

//= virtio §16
#[test]
fn a_removed_device_is_reported_at_once() {
    assert_eq!(refused(Quirks { removed: true, ..Quirks::default() }).0, Error::Removed);
}

#[test]
fn a_device_is_reset_when_bring_up_fails() {
    for quirks in [
        Quirks { queue_sizes: [256, 0], ..Quirks::default() },
        Quirks { vectors: 0, ..Quirks::default() },
        Quirks { allocations: 3, ..Quirks::default() },
    ] {
        assert_eq!(refused(quirks).1.status(), 0);
    }
    let fake = Fake::new(Quirks::default());
    let layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
    let mut control = Control::new(fake.clone(), fake.clone(), layout);
    control.negotiate().unwrap();
    assert_ne!(fake.status(), 0);
    drop(control);
    assert_eq!(fake.status(), 0);
}

#[test]
fn removal_of_a_running_device_frees_every_block() {
    let fake = Fake::new(Quirks::default());
    let driver = fake.bring_up(1514).unwrap();
    fake.change(|quirks| quirks.removed = true);
    assert_eq!(driver.control.check(), Err(Error::Removed));
    drop(driver);
    fake.assert_well_treated();
}

//= virtio §16
#[test]
fn device_needs_reset_is_reported() {
    let fake = Fake::new(Quirks::default());
    let driver = fake.bring_up(1514).unwrap();
    assert_eq!(driver.control.check(), Ok(()));
    fake.raise_needs_reset();
    assert_eq!(driver.control.check(), Err(Error::NeedsReset));
}

#[test]
fn missing_and_malformed_queues_are_refused() {
    assert_eq!(refused(Quirks { queue_sizes: [0, 256], ..Quirks::default() }).0, Error::NoQueue(0));
    assert_eq!(refused(Quirks { queue_sizes: [256, 0], ..Quirks::default() }).0, Error::NoQueue(1));
    assert_eq!(refused(Quirks { queue_sizes: [96, 256], ..Quirks::default() }).0, Error::BadQueueSize(96));
    // Also where the driver wants fewer buffers.
    assert_eq!(refused(Quirks { queue_sizes: [300, 256], ..Quirks::default() }).0, Error::BadQueueSize(300));
}

#[test]
fn a_queue_size_that_is_no_power_of_two_is_refused() {
    let fake = Fake::new(Quirks::default());
    let layout = Layout::find(&crate::fake::config_space(), Fake::bar_len).unwrap();
    let mut control = Control::new(fake.clone(), fake.clone(), layout);
    control.negotiate().unwrap();
    let options = Options {
        transmit_frame: 1514,
        receive_frame: 1514,
        pairs: 1,
        receive_size: 96,
        transmit_size: 256,
        messages: 3,
    };
    assert_eq!(Nic::new(&fake, &mut control, &options).err(), Some(Error::BadQueueSize(96)));
}

//= virtio §6
#[test]
fn a_packed_queue_may_have_any_size_up_to_32768() {
    let offered = Quirks::default().offered | Features::RING_PACKED;
    let fake = Fake::new(Quirks { offered, queue_sizes: [100, 3], ..Quirks::default() });
    let driver = fake.bring_up(1514).unwrap();
    assert_eq!(fake.sizes(), [100, 3]);
    drop(driver);
    let refused = refused(Quirks { offered, queue_sizes: [32769, 256], ..Quirks::default() }).0;
    assert_eq!(refused, Error::BadQueueSize(32769));
}

#[test]
fn a_notification_address_outside_its_structure_is_refused() {
    assert_eq!(refused(Quirks { notify_off: 0x400, ..Quirks::default() }).0, Error::NotifyOutOfRange(1));
}

//= virtio §15
#[test]
fn queues_share_vectors_and_a_device_without_one_is_refused() {
    for (offered, expected) in [(3, (0, 1, 2)), (2, (0, 1, 1)), (1, (0, 0, 0))] {
        let fake = Fake::new(Quirks { vectors: offered, ..Quirks::default() });
        let mut driver = fake.bring_up(1514).unwrap();
        let vectors = driver.nic().vectors;
        assert_eq!((vectors.config, vectors.receive, vectors.transmit), expected);
    }
    assert_eq!(refused(Quirks { vectors: 0, ..Quirks::default() }).0, Error::VectorRefused);
    let quirks = Quirks { config_vectors: 0, ..Quirks::default() };
    assert_eq!(refused(quirks).0, Error::VectorRefused);
    // Another vector than that which was written.
    let quirks = Quirks { changed_vector: 1, ..Quirks::default() };
    assert_eq!(refused(quirks).0, Error::VectorRefused);
    let quirks = Quirks { changed_config_vector: 1, ..Quirks::default() };
    assert_eq!(refused(quirks).0, Error::VectorRefused);
}

/// Without MSI-X a device has no vectors to assign: it has its line.
//= virtio §15
#[test]
fn device_without_messages_has_its_line_and_one_pair() {
    let fake = Fake::new(Quirks { vectors: 0, config_vectors: 0, ..Quirks::default() });
    let mut driver = fake.bring_up_with(1514, 4, 0).unwrap();
    let vectors = driver.nic().vectors;
    assert_eq!((vectors.is_line, vectors.pairs, vectors.config, vectors.receive), (true, 1, 0, 1));
    assert_eq!(fake.vectors(), [0xFFFF], "none is assigned");
    driver.restart().unwrap();
    assert_eq!(fake.vectors(), [0xFFFF]);
}

#[test]
fn a_failed_allocation_frees_all_memory() {
    // No fewer buffers are tried.
    let quirks = Quirks { queue_sizes: [64, 64], ..Quirks::default() };
    let needed = {
        let fake = Fake::new(quirks.clone());
        let _driver = fake.bring_up(9014).unwrap();
        fake.blocks()
    };
    for allocations in 0..needed {
        let (error, fake) = refused_with(Quirks { allocations, ..quirks.clone() }, 9014);
        assert_eq!(error, Error::NoMemory);
        fake.assert_well_treated();
    }
}

//= virtio §3
#[test]
fn device_states() {
    insta::assert_snapshot!(State::table());
}

#[test]
fn the_accepted_features_are_this_table() {
    let mut table = String::new();
    for row in FEATURES {
        let bit = row.feature.bits().trailing_zeros();
        writeln!(table, "{bit:>2} {:<15} {:?}: {}", row.name, row.policy, row.reason).unwrap();
    }
    insta::assert_snapshot!(table);
}
