// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which package may depend on which. Arrows of `docs/architecture.md`, in code.

use super::package::Package;
use crate::drivers::DRIVERS;

/// Packages that ship in the image or that its build script uses, and the packages that each may depend on.
const SHIPPED: [(&str, &[&str]); 13] = [
    ("viordma-inf", &[]),
    (DRIVER_BUILD, &[]),
    ("fallible", &[]),
    ("state-table", &[]),
    ("driver-states", &["state-table"]),
    ("abi-table", &[]),
    ("ndk-abi", &["abi-table"]),
    ("nt", &["fallible", "ndk-abi", "state-table"]),
    ("roce-wire", &["state-table"]),
    ("roce", &["fallible", "roce-wire", "state-table"]),
    ("virtio-net", &["fallible", "state-table"]),
    ("ndk-provider", &["fallible", "ndk-abi", "nt", "roce", "roce-wire", "state-table"]),
    (
        "viordma",
        &[
            DRIVER_BUILD,
            "driver-states",
            "fallible",
            "ndk-abi",
            "ndk-provider",
            "nt",
            "roce",
            "roce-wire",
            "viordma-inf",
            "virtio-net",
        ],
    ),
];

/// Build scripts of drivers. It alone uses the kit beside them.
const DRIVER_BUILD: &str = "driver-build";

/// Packages around the image. They may use every shipped one but the driver, and of each other what is listed.
const AROUND: [(&str, &[&str]); 23] = [
    ("smb-direct", &[]),
    ("driver-support", &[]),
    ("example-consumer", &["driver-support"]),
    ("test-driver", &[]),
    ("trapped-access", &[]),
    ("nt-sim", &["trapped-access"]),
    ("ndis-sim", &["device-sim", "nt-sim"]),
    ("virtio-device", &[]),
    ("device-sim", &["trapped-access", "virtio-device"]),
    ("qemu-device", &["device-sim", "trapped-access"]),
    ("linux-guest", &[]),
    ("models", &[]),
    ("roce-testkit", &[]),
    ("ndk-testkit", &[]),
    ("ndk-consumer", &[]),
    ("smb-consumer", &["ndk-consumer", "smb-direct"]),
    ("smb-driver", &["driver-support", "ndk-consumer", "smb-consumer"]),
    ("captures", &["roce-testkit"]),
    ("verbs-core", &[]),
    ("verbs", &["verbs-core"]),
    ("roce-fuzz", &["captures", "roce-testkit", "smb-direct"]),
    (
        "lab",
        &[
            "captures",
            "device-sim",
            "linux-guest",
            "ndis-sim",
            "ndk-consumer",
            "nt-sim",
            "qemu-device",
            "roce-testkit",
            "smb-consumer",
            "smb-direct",
            "verbs-core",
        ],
    ),
    (
        "viordma-tests",
        &[
            "captures",
            "device-sim",
            "lab",
            "ndis-sim",
            "ndk-consumer",
            "nt-sim",
            "qemu-device",
            "roce-testkit",
            "smb-consumer",
            "smb-direct",
        ],
    ),
];

/// The tool that builds and checks: it needs tables alone of what it builds, so that it runs anywhere, and on Linux the guest that it makes.
const TOOL: (&str, &[&str]) = ("xtask", &["linux-guest", "viordma-inf"]);

/// A sentence for each dependency that no arrow allows.
pub fn forbidden(packages: &[Package]) -> Vec<String> {
    let is_local = |name: &str| packages.iter().any(|package| package.name == name);
    let mut lines = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        let Some(allowed) = allowed(name) else {
            lines.push(format!(
                "{name} has no floor: say in xtask/src/structure/layers.rs which packages it may depend on"
            ));
            continue;
        };
        for dependency in package.dependencies.iter().map(String::as_str) {
            if is_local(dependency) && !allowed.contains(&dependency) {
                lines.push(format!(
                    "{name} must not depend on {dependency}: xtask/src/structure/layers.rs allows it {}",
                    if allowed.is_empty() { "no package".to_owned() } else { allowed.join(", ") }
                ));
            }
            if dependency.starts_with("wdk") && !DRIVERS.contains(&name) && name != DRIVER_BUILD {
                lines.push(format!(
                    "{name} must not depend on {dependency}: only drivers use the Windows Driver Kit"
                ));
            }
        }
    }
    lines
}

fn allowed(name: &str) -> Option<Vec<&'static str>> {
    if name == TOOL.0 {
        return Some(TOOL.1.to_vec());
    }
    if let Some((_, below)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return Some(below.to_vec());
    }
    let (_, below) = AROUND.iter().find(|(around, _)| *around == name)?;
    let shipped = SHIPPED.iter().map(|(shipped, _)| *shipped).filter(|shipped| *shipped != "viordma");
    Some(shipped.chain(below.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            roots: Vec::new(),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn a_shipped_package_that_depends_on_the_simulator_is_refused() {
        let packages =
            [package("roce", &["roce-wire", "nt-sim"]), package("nt-sim", &[]), package("roce-wire", &[])];
        let lines = forbidden(&packages);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("roce must not depend on nt-sim"));
    }

    #[test]
    fn a_portable_package_that_depends_on_the_wdk_is_refused() {
        assert_eq!(forbidden(&[package("roce", &["wdk-sys"])]).len(), 1);
        assert!(forbidden(&[package("viordma", &["wdk-sys"])]).is_empty());
    }

    #[test]
    fn a_package_without_a_floor_is_refused() {
        assert_eq!(forbidden(&[package("other", &[])]).len(), 1);
    }
}
