// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links the driver (`build/driver.rs`). On other hosts than Windows there is nothing to link: the package is empty there.

#[cfg(windows)]
#[path = "build/driver.rs"]
mod driver;

#[cfg(windows)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    driver::main()
}

#[cfg(not(windows))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::warning=the driver is built on Windows, or with `cargo xtask image`; this command built nothing. \
         `cargo xtask test` runs all tests; `cargo test -p NAME` runs those of a crate that the driver links, \
         `cargo xtest -p NAME` those of another package."
    );
}
