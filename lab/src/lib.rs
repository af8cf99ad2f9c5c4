// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the driver's image in the simulated kernel: the programs behind `cargo xtask demo`, `bench`, `interop`,
//! `decode` and `replay`, and the [testbed] that they share with the integration tests.

#![cfg(target_os = "linux")]

pub mod bench;
pub mod conformance;
pub mod consumer;
pub mod copy;
mod cpu_time;
pub mod decode;
pub mod demo;
pub mod device;
mod driver_file;
pub mod event_log;
pub mod exit;
pub mod external_host;
mod files;
pub mod filter;
pub mod filter_image;
pub mod interop;
pub mod machine;
pub mod measure;
pub mod miniport;
mod missing_imports;
pub mod os;
pub mod percent;
mod process;
pub mod profiles;
pub mod replay;
mod report;
mod smb_driver;
pub mod smb_load;
pub mod smb_tcp;
pub mod spin;
pub mod tcp_stream;
pub mod testbed;
pub mod trace;
mod tshark;
mod workspace;

pub use workspace::{
    Images, example_consumer, has_dpdk, has_qemu, image, images, root, skip, smb_driver, strict_image,
    tap_network,
};
