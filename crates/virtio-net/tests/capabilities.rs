// SPDX-License-Identifier: MIT OR Apache-2.0

//! The capability list of well-behaved and hostile devices.

use crate::fake::{config_space, write_capability};
use proptest::prelude::*;
use virtio_net::pci::{CONFIG_LEN, Layout, Region};
use virtio_net::{Error, Structure};

fn find(config: &[u8; CONFIG_LEN]) -> Result<Layout, Error> {
    Layout::find(config, |bar| (bar == 4).then_some(0x4000))
}

#[test]
fn the_layout_of_qemu_is_found() {
    let layout = find(&config_space()).unwrap();
    assert_eq!(layout.common, Region { bar: 4, offset: 0, len: 0x1000 });
    assert_eq!(layout.notify, Region { bar: 4, offset: 0x3000, len: 0x1000 });
    assert_eq!((layout.notify_multiplier, layout.msix_vectors), (4, 3));
}

#[test]
fn a_legacy_device_has_no_capabilities() {
    let mut config = config_space();
    config[6] = 0;
    assert_eq!(find(&config), Err(Error::NoCapabilities));
}

#[test]
fn an_absent_function_reads_all_ones() {
    assert_eq!(find(&[0xFF; CONFIG_LEN]), Err(Error::Removed));
}

#[test]
fn a_list_that_loops_is_broken() {
    let mut config = config_space();
    config[0x71] = 0x40;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
    config[0x71] = 0x70;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

#[test]
fn a_list_that_points_into_the_header_is_broken() {
    let mut config = config_space();
    config[0x34] = 0x10;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

#[test]
fn a_vendor_capability_shorter_than_its_fields_is_broken() {
    let mut config = config_space();
    config[0x42] = 8;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

/// Data of the vendor, types that a later version of the specification defines, and access by configuration space.
#[test]
fn capabilities_of_other_types_are_ignored_whatever_their_length() {
    for cfg_type in [0, 5, 8, 9, 0x7F, 0xFF] {
        for size in [4, 6, 8, 16, 20, 32] {
            let mut config = config_space();
            config[0x98 + 1] = 0xA0;
            write_capability(&mut config, 0xA0, 0x40, size, cfg_type, 0xFFFF_FFFF, 0xFFFF_FFFF);
            assert_eq!(find(&config), find(&config_space()), "type {cfg_type}, {size} bytes");
        }
    }
}

#[test]
fn a_vendor_capability_without_a_type_is_broken() {
    let mut config = config_space();
    config[0x42] = 3;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

/// It names a BAR that the driver cannot use; the next one is complete.
#[test]
fn a_notify_capability_that_is_not_usable_needs_no_multiplier() {
    let mut config = config_space();
    config[0x98 + 1] = 0xA0;
    write_capability(&mut config, 0xA0, 0x40, 16, 2, 0, 0x1000);
    config[0xA4] = 6;
    assert_eq!(find(&config), find(&config_space()));
}

#[test]
fn a_notify_capability_without_its_multiplier_is_broken() {
    let mut config = config_space();
    config[0x72] = 16;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

#[test]
fn a_capability_beyond_configuration_space_is_broken() {
    let mut config = config_space();
    config[0x71] = 0xFC;
    config[0xFC] = 9;
    config[0xFE] = 16;
    assert_eq!(find(&config), Err(Error::BrokenCapabilityList));
}

#[test]
fn a_structure_outside_its_bar_is_ignored() {
    let mut config = config_space();
    config[0x48..0x4C].copy_from_slice(&0x3FD0_u32.to_le_bytes());
    assert_eq!(find(&config), Err(Error::MissingStructure(Structure::Common)));
    config[0x48..0x4C].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(find(&config), Err(Error::MissingStructure(Structure::Common)));
}

#[test]
fn a_structure_too_short_for_its_registers_is_ignored() {
    let mut config = config_space();
    config[0x4C..0x50].copy_from_slice(&0x37_u32.to_le_bytes());
    assert_eq!(find(&config), Err(Error::MissingStructure(Structure::Common)));
}

#[test]
fn a_structure_in_a_reserved_bar_is_ignored() {
    let mut config = config_space();
    config[0x64] = 6;
    assert_eq!(find(&config), Err(Error::MissingStructure(Structure::Device)));
}

#[test]
fn only_the_six_bars_of_a_function_hold_structures() {
    let find = |bar| {
        let mut config = config_space();
        for capability in [0x40, 0x50, 0x60, 0x70] {
            config[capability + 4] = bar;
        }
        Layout::find(&config, |_| Some(0x4000)).map(|layout| layout.device.bar)
    };
    assert_eq!([0, 5].map(find), [Ok(0), Ok(5)]);
    for bar in [6, 7, u8::MAX] {
        assert!(matches!(find(bar), Err(Error::MissingStructure(_))), "{bar}");
    }
}

#[test]
fn a_list_may_fill_configuration_space() {
    let mut config = config_space();
    config[0x34] = 0x40;
    for at in (0x40..CONFIG_LEN).step_by(4) {
        // Message signaled interrupts, which the driver does not use.
        config[at..at + 2].copy_from_slice(&[5, (at + 4) as u8]);
    }
    assert_eq!(find(&config), Err(Error::NoCapabilities), "read to its end");
}

#[test]
fn the_first_usable_capability_of_a_type_is_taken() {
    let mut config = config_space();
    config[0x98 + 1] = 0xA0;
    write_capability(&mut config, 0xA0, 0xB0, 16, 1, 0x100_0000, 0x1000);
    write_capability(&mut config, 0xB0, 0x40, 16, 1, 0x800, 0x38);
    assert_eq!(find(&config).unwrap().common, Region { bar: 4, offset: 0x800, len: 0x38 });
}

#[test]
fn further_capabilities_of_a_type_are_ignored() {
    let mut config = config_space();
    config[0x71] = 0xA0;
    for (at, cfg_type) in [(0xA0, 1), (0xB0, 3), (0xC0, 4), (0xD0, 2)] {
        let next = if cfg_type == 2 { 0 } else { at as u8 + 0x10 };
        let size = if cfg_type == 2 { 20 } else { 16 };
        write_capability(&mut config, at, next, size, cfg_type, 0x800, 0x100);
    }
    assert_eq!(find(&config), find(&config_space()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn every_region_found_is_inside_its_bar(
        noise in proptest::collection::vec((0x34..CONFIG_LEN, any::<u8>()), 0..24),
    ) {
        let mut config = config_space();
        for (at, byte) in noise {
            config[at] = byte;
        }
        if let Ok(layout) = find(&config) {
            for region in [layout.common, layout.notify, layout.isr, layout.device] {
                prop_assert_eq!(region.bar, 4);
                prop_assert!(region.offset + u64::from(region.len) <= 0x4000);
            }
        }
    }
}
