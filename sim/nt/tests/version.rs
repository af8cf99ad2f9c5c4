// SPDX-License-Identifier: MIT OR Apache-2.0

//! The version of the system, as drivers ask for it.

use crate::on_host::{correct, memory};
use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use nt_sim::{
    guest::Guest,
    nt::version::{RtlGetVersion, RtlVerifyVersionInfo, STATUS_REVISION_MISMATCH, VerSetConditionMask},
};

/// Bytes of `RTL_OSVERSIONINFOEXW`.
const SIZE: u32 = 284;

const EQUAL: u8 = 1;
const GREATER: u8 = 2;
const GREATER_EQUAL: u8 = 3;
const LESS: u8 = 4;
const LESS_EQUAL: u8 = 5;
const AND: u8 = 6;
const OR: u8 = 7;

const MINOR: u32 = 0x1;
const MAJOR: u32 = 0x2;
const BUILD: u32 = 0x4;
const SERVICE_PACK: u32 = 0x20;
const SUITE: u32 = 0x40;
const PRODUCT_TYPE: u32 = 0x80;

#[test]
fn version_has_suites_and_product_if_there_is_room() {
    correct(|host| {
        let version: Guest<u8> = memory(host);
        for (size, product_type) in [(SIZE, 3), (SIZE - 8, 0xee)] {
            version.fill(0xee, SIZE as usize);
            version.cast::<u32>().write(size);
            assert_eq!(RtlGetVersion(version), STATUS_SUCCESS);
            let numbers = [0, 1, 2, 3, 4, 5].map(|index| version.cast::<u32>().add(index).read());
            assert_eq!(numbers, [size, 10, 0, 20348, 2, 0]);
            assert_eq!(version.add(282).read(), product_type);
        }
    });
}

/// WDK, `RtlVerifyVersionInfo`: a later major version needs no comparison of the minor one and the service pack.
#[test]
fn version_is_compared_by_the_conditions() {
    correct(|host| {
        let version: Guest<u8> = memory(host);
        let matches = |(major, minor, build): (u32, u32, u32), conditions: &[(u32, u8)]| {
            for (index, value) in [SIZE, major, minor, build].into_iter().enumerate() {
                version.cast::<u32>().add(index).write(value);
            }
            let mask = conditions
                .iter()
                .fold(0, |mask, &(kind, condition)| VerSetConditionMask(mask, kind, condition));
            let types = conditions.iter().fold(0, |types, (kind, _)| types | kind);
            match RtlVerifyVersionInfo(version, types, mask) {
                STATUS_SUCCESS => true,
                STATUS_REVISION_MISMATCH => false,
                status => panic!("{status:#x}"),
            }
        };
        let at_least = [(MAJOR, GREATER_EQUAL), (MINOR, GREATER_EQUAL), (SERVICE_PACK, GREATER_EQUAL)];
        for (wanted, expected) in [((6, 3), true), ((10, 0), true), ((10, 1), false), ((11, 0), false)] {
            assert_eq!(matches((wanted.0, wanted.1, 0), &at_least), expected, "{wanted:?}");
        }
        for (condition, expected) in [
            (EQUAL, [false, true, false]),
            (GREATER, [true, false, false]),
            (GREATER_EQUAL, [true, true, false]),
            (LESS, [false, false, true]),
            (LESS_EQUAL, [false, true, true]),
        ] {
            let builds = [20347, 20348, 20349].map(|build| matches((10, 0, build), &[(BUILD, condition)]));
            assert_eq!(builds, expected, "{condition}");
        }
        assert!(!matches((6, 0, 0), &[(MAJOR, GREATER_EQUAL), (BUILD, EQUAL)]), "all types count");
        for (suites, all, any) in [(0x10, true, true), (0x12, false, true), (0x2, false, false)] {
            version.add(280).cast::<u16>().write(suites);
            assert_eq!(matches((10, 0, 0), &[(SUITE, AND)]), all, "{suites:#x}");
            assert_eq!(matches((10, 0, 0), &[(SUITE, OR)]), any, "{suites:#x}");
        }
        version.add(282).write(3);
        assert!(matches((10, 0, 0), &[(PRODUCT_TYPE, EQUAL)]));
        assert_eq!(RtlVerifyVersionInfo(version, MAJOR, 0), STATUS_INVALID_PARAMETER);
        assert_eq!(RtlVerifyVersionInfo(version, 0, 1), STATUS_INVALID_PARAMETER);
        assert_eq!(VerSetConditionMask(5, 0, 1), 5);
    });
}
