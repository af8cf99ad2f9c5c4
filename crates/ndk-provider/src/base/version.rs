// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDKPI versions and their negotiation.

use ndk_abi::ndk::NDK_VERSION;

/// The highest supported minor version of each supported major version.
//= R-OPEN-14, R-OPEN-15, R-CONN-99
const SUPPORTED: [NDK_VERSION; 2] = [NDK_VERSION { Major: 1, Minor: 2 }, NEWEST];

/// The newest supported version, which is reported to NDIS.
pub const NEWEST: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

/// Returns the version of an adapter opened with version `requested`, or `None` if it is not supported.
//= R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-12
pub fn negotiate(requested: NDK_VERSION) -> Option<NDK_VERSION> {
    SUPPORTED
        .into_iter()
        .find(|supported| supported.Major == requested.Major && requested.Minor <= supported.Minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u16, minor: u16) -> NDK_VERSION {
        NDK_VERSION { Major: major, Minor: minor }
    }

    fn negotiated(major: u16, minor: u16) -> Option<(u16, u16)> {
        negotiate(version(major, minor)).map(|version| (version.Major, version.Minor))
    }

    //= R-OPEN-9
    #[test]
    fn unsupported_major_version_is_refused() {
        assert!([0, 3, 0xffff].into_iter().all(|major| negotiated(major, 0).is_none()));
    }

    //= R-OPEN-10, R-OPEN-12, R-OPEN-14, R-OPEN-15
    #[test]
    fn every_minor_version_up_to_the_highest_gets_the_highest() {
        assert!((0..=2).all(|minor| negotiated(1, minor) == Some((1, 2))));
        assert!((0..=1).all(|minor| negotiated(2, minor) == Some((2, 1))));
    }

    //= R-OPEN-11
    #[test]
    fn minor_version_above_the_highest_is_refused() {
        assert_eq!([negotiated(1, 3), negotiated(2, 2), negotiated(1, 0xffff)], [None; 3]);
    }
}
