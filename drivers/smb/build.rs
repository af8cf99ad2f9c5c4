// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links the package as a driver.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    driver_build::link(env!("CARGO_PKG_NAME"), None)
}
