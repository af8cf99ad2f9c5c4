// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask provide`: builds or installs what a command of `lab` needs. The command runs it after it has checked its
//! options, so that a mistake in them is found before anything is built.

use anyhow::Result;

use crate::{guest, image, packages, shell::Exit};

#[derive(clap::Args)]
pub struct Options {
    #[arg(required = true)]
    requirements: Vec<Requirement>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Requirement {
    /// target/image/viordma.sys, up to date
    Image,
    /// target/image/viordma-strict.sys, up to date
    StrictImage,
    /// target/image/test-driver.sys, up to date
    TestDriver,
    /// The Linux guest in target/guest, and QEMU
    Guest,
    /// The Linux guest with SMB Direct in target/guest, and QEMU
    SmbGuest,
    /// Samba's server and client
    Samba,
    /// QEMU, whose network device hosts can have
    Qemu,
    /// Dissects captures
    Tshark,
    /// Counts instructions
    Valgrind,
    /// Names the source lines of instructions
    Addr2line,
}

pub fn run(options: &Options) -> Result<()> {
    for requirement in &options.requirements {
        match requirement {
            Requirement::Image => drop(image::build("viordma")?),
            Requirement::StrictImage => drop(image::build(image::STRICT)?),
            Requirement::TestDriver => drop(image::build("test-driver")?),
            Requirement::Guest => guest::make()?,
            Requirement::SmbGuest => guest::smb::make()?,
            Requirement::Samba => packages::require(&packages::SAMBA)
                .map_err(|error| Exit::usage(format!("no Samba: {error:#}")))?,
            Requirement::Qemu => packages::require(&packages::QEMU)?,
            Requirement::Tshark => packages::require(&packages::CAPTURE)?,
            Requirement::Valgrind => packages::require(&packages::VALGRIND)?,
            Requirement::Addr2line => packages::require(&packages::ADDR2LINE)?,
        }
    }
    Ok(())
}
