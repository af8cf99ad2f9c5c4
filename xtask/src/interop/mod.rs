//! `cargo xtask interop`: the driver's image against a Linux guest with `rdma_rxe`.

mod cpio;
mod elf;
mod guest;

use std::fs;

use anyhow::Result;
use viordma_tests::interop::guest::{Guest, Options as GuestOptions};

#[derive(clap::Args)]
pub struct Options {}

/// Boots the guest and tells that it did.
pub fn run(_options: &Options) -> Result<()> {
    let image = guest::image()?;
    let directory = std::env::temp_dir().join(format!("viordma-interop-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let options = GuestOptions {
        directory: directory.clone(),
        mac: [0x52, 0x54, 0, 0x77, 0, 2],
        ipv4: "192.168.77.2/24",
        ipv6: "fd77::2/64",
        mtu: 1500,
    };
    let guest = Guest::boot(&image, &options)?;
    println!("{} ({:.1} s from QEMU's start)", guest.console().trim(), guest.boot.as_secs_f64());
    guest.power_off()?;
    Ok(fs::remove_dir_all(directory)?)
}
