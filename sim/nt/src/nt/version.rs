// SPDX-License-Identifier: MIT OR Apache-2.0

//! The version of the system: Windows Server 2022, Standard.

use std::cmp::Ordering;

use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS, UNICODE_STRING};

use crate::{guest::Guest, imports};

/// The system does not match, `ntstatus.h`.
pub const STATUS_REVISION_MISMATCH: i32 = 0xc000_0059_u32.cast_signed();

const MAJOR: u32 = 10;
const MINOR: u32 = 0;
pub(super) const BUILD: u32 = 20348;
/// `VER_PLATFORM_WIN32_NT`.
const PLATFORM: u32 = 2;
const SERVICE_PACK: u16 = 0;
/// `VER_SUITE_TERMINAL` and `VER_SUITE_SINGLEUSERTS`: remote desktop, for administrators.
const SUITES: u16 = 0x110;
/// `VER_NT_SERVER`.
const PRODUCT_TYPE: u8 = 3;

/// `RTL_OSVERSIONINFOEXW`, of which `RTL_OSVERSIONINFOW` is the beginning.
#[repr(C)]
#[derive(Clone, Copy)]
struct VersionInformation {
    size: u32,
    major: u32,
    minor: u32,
    build: u32,
    platform: u32,
    service_pack: [u16; 128],
    service_pack_major: u16,
    service_pack_minor: u16,
    suites: u16,
    product_type: u8,
    reserved: u8,
}

/// Bytes of `RTL_OSVERSIONINFOW`.
const BASIC: usize = std::mem::offset_of!(VersionInformation, service_pack_major);

/// Types of a condition: the bit in a type mask, and the place of its three bits in a condition mask.
mod kind {
    pub const MINOR: u32 = 0;
    pub const MAJOR: u32 = 1;
    pub const BUILD: u32 = 2;
    pub const PLATFORM: u32 = 3;
    pub const SERVICE_PACK_MINOR: u32 = 4;
    pub const SERVICE_PACK_MAJOR: u32 = 5;
    pub const SUITE: u32 = 6;
    pub const PRODUCT_TYPE: u32 = 7;
}

const BITS_OF_CONDITION: u32 = 3;

fn condition(mask: u64, kind: u32) -> u64 {
    mask >> (BITS_OF_CONDITION * kind) & 7
}

/// Returns whether the order of the system's value to the wanted one fulfills a condition: `VER_EQUAL` to `VER_LESS_EQUAL`.
fn fulfills(condition: u64, order: Ordering) -> bool {
    match condition {
        1 => order.is_eq(),
        2 => order.is_gt(),
        3 => order.is_ge(),
        4 => order.is_lt(),
        5 => order.is_le(),
        _ => false,
    }
}

/// Compares the system with a wanted version. Versions and service packs are one number of four parts, of which a part counts if those
/// before it are equal.
fn matches(wanted: &VersionInformation, types: u32, mask: u64) -> bool {
    let is_asked = |kind: u32| types & 1 << kind != 0;
    let parts = [
        (kind::MAJOR, MAJOR.cmp(&wanted.major)),
        (kind::MINOR, MINOR.cmp(&wanted.minor)),
        (kind::SERVICE_PACK_MAJOR, SERVICE_PACK.cmp(&wanted.service_pack_major)),
        (kind::SERVICE_PACK_MINOR, SERVICE_PACK.cmp(&wanted.service_pack_minor)),
    ];
    let mut asked = parts.into_iter().filter(|&(kind, _)| is_asked(kind));
    let decisive = asked.clone().find(|(_, order)| order.is_ne()).or_else(|| asked.next_back());
    let others = [
        (kind::BUILD, BUILD.cmp(&wanted.build)),
        (kind::PLATFORM, PLATFORM.cmp(&wanted.platform)),
        (kind::PRODUCT_TYPE, PRODUCT_TYPE.cmp(&wanted.product_type)),
    ];
    let has_suites = match condition(mask, kind::SUITE) {
        // VER_AND, VER_OR.
        6 => SUITES & wanted.suites == wanted.suites,
        7 => SUITES & wanted.suites != 0,
        _ => false,
    };
    let mut compared = others.into_iter().filter(|&(kind, _)| is_asked(kind)).chain(decisive);
    (!is_asked(kind::SUITE) || has_suites)
        && compared.all(|(kind, order)| fulfills(condition(mask, kind), order))
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the version of the system; in a structure of that size, suites and kind of product, too.
    [<= PASSIVE_LEVEL]
    fn RtlGetVersion(version: Guest<u8>) -> i32 {
        let size = version.cast::<u32>().read();
        let information = VersionInformation {
            size,
            major: MAJOR,
            minor: MINOR,
            build: BUILD,
            platform: PLATFORM,
            service_pack: [0; 128],
            service_pack_major: SERVICE_PACK,
            service_pack_minor: SERVICE_PACK,
            suites: SUITES,
            product_type: PRODUCT_TYPE,
            reserved: 0,
        };
        if size as usize == size_of::<VersionInformation>() {
            version.cast::<VersionInformation>().write(information);
            return STATUS_SUCCESS;
        }
        for (index, value) in [size, MAJOR, MINOR, BUILD, PLATFORM].into_iter().enumerate() {
            version.cast::<u32>().add(index).write(value);
        }
        let numbers = 5 * size_of::<u32>();
        version.add(numbers).fill(0, BASIC - numbers);
        STATUS_SUCCESS
    }

    /// Compares the version of the system with one that a driver wants.
    [== PASSIVE_LEVEL]
    fn RtlVerifyVersionInfo(wanted: Guest<u8>, types: u32, conditions: u64) -> i32 {
        if types == 0 || conditions == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let wanted = wanted.cast::<VersionInformation>().read();
        if matches(&wanted, types, conditions) { STATUS_SUCCESS } else { STATUS_REVISION_MISMATCH }
    }

    /// Adds the condition of one type to a mask for [`RtlVerifyVersionInfo`].
    [any]
    fn VerSetConditionMask(mask: u64, types: u32, condition: u8) -> u64 {
        let Some(kind) = (types & 0xff).checked_ilog2() else { return mask };
        mask | u64::from(condition & 7) << (BITS_OF_CONDITION * kind)
    }

    /// Returns the version of the system; returns whether it is a checked build.
    [<= PASSIVE_LEVEL]
    fn PsGetVersion(
        major: Guest<u32>,
        minor: Guest<u32>,
        build: Guest<u32>,
        service_pack: Guest<UNICODE_STRING>,
    ) -> u8 {
        for (place, value) in [(major, MAJOR), (minor, MINOR), (build, BUILD)] {
            if !place.is_null() {
                place.write(value);
            }
        }
        if !service_pack.is_null() {
            service_pack.write(UNICODE_STRING::zeroed());
        }
        0
    }
}
