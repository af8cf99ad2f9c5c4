//! `cargo xtask image`: builds the driver's image on a host without a Windows kit, and checks it.
//!
//! `xtask/cross/README.md` tells what stands in for the kit, and why there is a mirror of the workspace.

mod check;
mod imports;
mod kit;
mod mirror;
mod symbols;
mod toolchain;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

use self::{kit::Kit, mirror::Mirror, toolchain::Toolchain};
use crate::{packages, shell};

const TARGET: &str = "x86_64-pc-windows-msvc";

#[derive(clap::Args, Default)]
pub struct Options {
    /// Prove what the image's bytes can prove: headers, sections, imports, instructions, stack frames
    #[arg(long)]
    check: bool,
    /// Take this compiler, instead of Debian's only where rustup cannot bring the target
    #[arg(long, value_enum, value_name = "NAME")]
    toolchain: Option<Toolchain>,
    /// Build this driver package instead of viordma
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
}

/// A driver image and its debug information.
pub struct Image {
    pub sys: PathBuf,
    pub pdb: PathBuf,
}

pub fn run(options: &Options) -> Result<()> {
    let package = options.package.as_deref().unwrap_or("viordma");
    let image = match options.toolchain {
        Some(toolchain) => build_with(toolchain, package)?,
        None => build(package)?,
    };
    if options.check {
        return check(&image);
    }
    println!("{}", image.sys.display());
    Ok(())
}

/// Checks a driver image; prints what it finds.
pub fn check(image: &Image) -> Result<()> {
    check::run(image)
}

/// Builds a driver package of the workspace into `target/image`. Cargo decides what has to be rebuilt.
pub fn build(package: &str) -> Result<Image> {
    build_with(Toolchain::find()?, package)
}

fn build_with(toolchain: Toolchain, package: &str) -> Result<Image> {
    packages::require(&packages::IMAGE)?;
    toolchain.prepare()?;
    eprintln!("image: {package} for {TARGET} with {}", toolchain.description());
    let cross = shell::root().join("target/cross");
    let kit = Kit::assemble(&cross.join("kit"))?;
    let mirror = Mirror::lay_out(&cross)?;

    let mut cargo = toolchain.cargo();
    cargo.args(["build", "--release", "--target", TARGET, "--package", package]);
    cargo.args(toolchain.arguments());
    cargo.arg("--config").arg(format!("target.{TARGET}.linker={:?}", toolchain.linker()));
    let remap = mirror.remap().into_iter().map(|remap| format!("{remap:?}")).collect::<Vec<_>>().join(",");
    cargo.arg("--config").arg(format!("target.{TARGET}.rustflags=[{remap}]"));
    cargo.current_dir(&cross).env("CARGO_TARGET_DIR", cross.join("out")).envs(kit.environment());
    shell::run(&mut cargo)?;
    mirror.check_lock()?;

    let built = cross.join("out").join(TARGET).join("release");
    let name = package.replace('-', "_");
    let out = shell::root().join("target/image");
    fs::create_dir_all(&out)?;
    let image = Image { sys: out.join(format!("{package}.sys")), pdb: out.join(format!("{package}.pdb")) };
    for (from, to) in
        [(built.join(format!("{name}.dll")), &image.sys), (built.join(format!("{name}.pdb")), &image.pdb)]
    {
        publish(&from, to)?;
    }
    Ok(image)
}

/// Puts a copy of `from` at `to`, whole at every moment, for whoever may be reading it.
fn publish(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("the build left no {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let new = to.with_extension(format!("{}.new", std::process::id()));
    fs::write(&new, content)?;
    fs::rename(&new, to).with_context(|| format!("cannot write {}", to.display()))
}
