// SPDX-License-Identifier: MIT OR Apache-2.0

//! A build of the driver's package from a copy of its sources: it writes `viordma.inx`, and fails where a row is wrong.
#![cfg(unix)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A copy of the sources that `cargo build` takes at the root.
struct Checkout(PathBuf);

impl Checkout {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkout");
        if copy.exists() {
            fs::remove_dir_all(&copy).unwrap();
        }
        fs::create_dir_all(&copy).unwrap();
        // Packages below crates that only tests use inherit from the other manifest.
        fs::create_dir(copy.join("xtask")).unwrap();
        fs::copy(root.join("xtask/Cargo.toml"), copy.join("xtask/Cargo.toml")).unwrap();
        let parts = ["Cargo.toml", "Cargo.lock", "build.rs", "crates", "inf", "src"];
        let mut command = Command::new("cp");
        command.arg("-r").args(parts.map(|part| root.join(part))).arg(&copy);
        assert!(command.status().unwrap().success());
        Self(copy)
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let file = self.0.join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{from:?}");
        fs::write(file, text.replacen(from, to, 1)).unwrap();
    }

    fn build(&self) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("target");
        cargo.args(["build", "--offline", "--target-dir"]).arg(target).current_dir(&self.0);
        cargo.output().unwrap()
    }
}

#[test]
fn a_build_names_the_row_that_is_wrong_and_writes_the_inx_when_it_is_right() {
    const KEYWORDS: &str = "inf/src/keywords.rs";
    let checkout = Checkout::new();
    let original = fs::read_to_string(checkout.0.join(KEYWORDS)).unwrap();
    let wrong = [
        ("*JumboPacket", "name: \"NdkStrictReport\"", "name: \"*JumboPacket\""),
        (
            "NdkStrictFailCreate",
            "max: 1_000_000 },\n        default: 0,\n        text: \"The number of the create",
            "max: 1_000_000 },\n        default: 2_000_000,\n        text: \"The number of the create",
        ),
        (
            "NdkStrictReport",
            "text: \"1: the mistakes of consumers are reported as events 60 to 90.\"",
            "text: \"\"",
        ),
    ];
    for (name, from, to) in wrong {
        fs::write(checkout.0.join(KEYWORDS), &original).unwrap();
        checkout.replace(KEYWORDS, from, to);
        let built = checkout.build();
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(!built.status.success() && errors.contains(name), "{errors}");
        assert!(!checkout.0.join("viordma.inx").exists());
    }

    fs::write(checkout.0.join(KEYWORDS), original).unwrap();
    let built = checkout.build();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert!(checkout.0.join("viordma.inx").exists());
}
