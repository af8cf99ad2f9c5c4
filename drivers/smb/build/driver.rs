// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's build script: linker flags for a kernel-mode driver.

pub fn main() -> Result<(), wdk_build::ConfigError> {
    wdk_build::configure_wdk_binary_build()
}
