// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests that have to notice a change of a file.

use crate::{image, workspace::Workspace};

/// Tests of a part of the code.
#[derive(Debug)]
pub struct Guard {
    /// A file, or a directory with a slash at its end.
    pub path: &'static str,
    /// The root of the crate that contains the file.
    pub root: &'static str,
    /// Images that contain the file, as `cargo xtask image` names them: built with its mutants.
    pub images: &'static [&'static str],
    /// Images that the tests need. The file is no part of them.
    pub needed: &'static [&'static str],
    /// Selects packages and tests of each workspace, as arguments of `cargo test`.
    pub tests: &'static [(Workspace, &'static [&'static str])],
}

/// The first that matches is used.
static GUARDS: &[Guard] = &[
    Guard {
        path: "crates/ndk-provider/",
        root: "crates/ndk-provider/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "ndk-provider"])],
    },
    Guard {
        path: "crates/roce-wire/",
        root: "crates/roce-wire/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "roce-wire"])],
    },
    Guard {
        path: "crates/roce/",
        root: "crates/roce/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "roce"])],
    },
    Guard {
        path: "consumers/smb-direct/",
        root: "consumers/smb-direct/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Tools, &["-p", "smb-direct"])],
    },
    Guard {
        path: "crates/virtio-net/",
        root: "crates/virtio-net/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "virtio-net"])],
    },
    Guard {
        path: "crates/driver-states/",
        root: "crates/driver-states/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "driver-states"])],
    },
    Guard {
        path: "crates/fallible/",
        root: "crates/fallible/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "fallible"])],
    },
    Guard {
        path: "crates/nt/src/kernel.rs",
        root: "crates/nt/src/lib.rs",
        images: &["viordma", image::STRICT],
        needed: IMAGES,
        tests: &[(Workspace::Driver, &["-p", "nt", "--tests"]), IMAGE_TESTS],
    },
    Guard {
        path: "crates/nt/",
        root: "crates/nt/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Driver, &["-p", "nt"])],
    },
    Guard {
        path: "src/",
        root: "src/lib.rs",
        images: &["viordma", image::STRICT],
        needed: IMAGES,
        tests: &[IMAGE_TESTS],
    },
    Guard {
        path: "sim/nt/",
        root: "sim/nt/src/lib.rs",
        images: &[],
        needed: &["test-driver"],
        tests: &[(Workspace::Tools, &["-p", "nt-sim"])],
    },
    Guard {
        path: "sim/ndis/",
        root: "sim/ndis/src/lib.rs",
        images: &[],
        needed: &["test-driver", "viordma"],
        tests: &[(Workspace::Tools, &["-p", "ndis-sim"])],
    },
    Guard {
        path: "sim/device/",
        root: "sim/device/src/lib.rs",
        images: &[],
        needed: &[],
        tests: &[(Workspace::Tools, &["-p", "device-sim"])],
    },
    Guard {
        path: "drivers/support/",
        root: "drivers/support/src/lib.rs",
        images: &["example-consumer"],
        needed: &["viordma", image::STRICT],
        tests: &[(Workspace::Tools, &["-p", "viordma-tests", "--test", "image"])],
    },
];

/// Tests of viordma.sys.
const IMAGE_TESTS: (Workspace, &[&str]) =
    (Workspace::Tools, &["-p", "ndis-sim", "-p", "viordma-tests", "--tests"]);

/// The other images that these tests need.
const IMAGES: &[&str] = &["test-driver", "example-consumer", "smb-driver"];

/// Returns the guard of a file.
pub fn of(file: &str) -> Option<&'static Guard> {
    GUARDS.iter().find(|guard| {
        if guard.path.ends_with('/') { file.starts_with(guard.path) } else { file == guard.path }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_path_exists_and_none_hides_behind_another() {
        for (number, guard) in GUARDS.iter().enumerate() {
            assert!(shell::root().join(guard.path).exists(), "{}", guard.path);
            assert!(
                of(guard.path).is_some_and(|first| std::ptr::eq(first, &raw const GUARDS[number])),
                "{}",
                guard.path
            );
        }
        assert_eq!(of("src/miniport/dpc.rs").unwrap().images, ["viordma", image::STRICT]);
        assert!(of("lab/src/main.rs").is_none());
    }
}
