// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links the test driver (`build/driver.rs`). On other hosts than Windows the package is empty.

#[cfg(windows)]
#[path = "build/driver.rs"]
mod driver;

#[cfg(windows)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(driver::main()?)
}

#[cfg(not(windows))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
