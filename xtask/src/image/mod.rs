// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask image`: builds the driver's image on Linux without a Windows Driver Kit, and checks it.
//!
//! `xtask/cross/README.md` describes what replaces the kit, and why the build runs in a mirror of the workspace.

pub mod architecture;
mod arm64;
mod artifact;
mod check;
mod code;
mod flow;
mod guard;
mod host;
mod imports;
mod kit;
pub mod link;
mod linked;
mod mirror;
mod stack;
mod symbols;
pub mod toolchain;
mod x64;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use viordma_inf::Edition;

#[cfg(unix)]
pub use self::linked::packages as linked_packages;
use self::{architecture::Architecture, kit::Kit, mirror::Mirror, toolchain::Toolchain};
pub use self::{
    artifact::Image,
    host::{MIRROR, copy_published},
    linked::{Linked, Origin},
};
use crate::{drivers::DRIVERS, inf, packages, shell};

/// The package of the driver, and its image.
pub const DRIVER: &str = Edition::Standard.name();

/// The image of the driver with the feature `strict`.
pub const STRICT: &str = Edition::Strict.name();

/// Runs the linker with paths that do not depend on where the sources are.
const LINKER: &str = "xtask/cross/link.sh";

/// Arguments of cargo for it.
const FEATURE: &[&str] = &["--features", "strict"];

/// Environment variable by which the driver's build script writes no `viordma.inx` (`build.rs`).
const NO_INX: &str = "VIORDMA_NO_INX";

#[derive(clap::Args, Default)]
pub struct Options {
    /// Check the image: headers, sections, imports, instructions, stack frames
    #[arg(long)]
    check: bool,
    /// Check this image, with its .pdb beside it, instead of building one
    #[arg(long, value_name = "PATH", requires = "check", conflicts_with_all = ["toolchain", "package", "strict"])]
    image: Option<PathBuf>,
    /// Use this compiler [default: rustup, or debian where rustup cannot install the target]
    #[arg(long, value_enum, value_name = "NAME")]
    toolchain: Option<Toolchain>,
    /// Build this driver package instead of viordma
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Build for this architecture [arm64: into target/image/arm64]
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    arch: Architecture,
    /// Build target/image/viordma-strict.sys, the driver for authors of NDK consumers
    #[arg(long, conflicts_with = "package")]
    strict: bool,
    /// Let the driver's build script write viordma.inx, as on Windows, into target/cross
    #[arg(long, conflicts_with_all = ["package", "strict"])]
    inx: bool,
}

pub fn run(options: &Options) -> Result<()> {
    if let Some(sys) = &options.image {
        for file in [sys, &sys.with_extension("pdb")] {
            if let Err(error) = fs::File::open(file) {
                return Err(shell::Exit::usage(format!("cannot read {}: {error}", file.display())));
            }
        }
        return check(&Image { sys: sys.clone(), pdb: sys.with_extension("pdb") });
    }
    let name = options.package.as_deref().unwrap_or(if options.strict { STRICT } else { DRIVER });
    let toolchain = options.toolchain.unwrap_or_else(|| Toolchain::find(options.arch));
    let image = build_with(toolchain, options.arch, name, options.inx)?;
    if options.check {
        return check(&image);
    }
    println!("{}", image.sys.display());
    Ok(())
}

/// Checks a driver image and prints the results.
pub fn check(image: &Image) -> Result<()> {
    check::run(image)
}

/// Builds an image, a driver package or [`STRICT`], into `target/image`, with the INF of viordma beside it. Cargo rebuilds only what
/// changed.
pub fn build(name: &str) -> Result<Image> {
    build_for(Architecture::X64, name)
}

/// Builds an image for an architecture, into its folder of `target`.
///
/// # Errors
/// The build fails.
pub fn build_for(architecture: Architecture, name: &str) -> Result<Image> {
    build_with(Toolchain::find(architecture), architecture, name, false)
}

fn build_with(
    toolchain: Toolchain,
    architecture: Architecture,
    image: &str,
    with_inx: bool,
) -> Result<Image> {
    let cross = Cross::prepare(toolchain, architecture)?;
    let target = architecture.target();
    eprintln!("image: {image} for {target} with {}", toolchain.description());
    let (package, features) = if image == STRICT { (DRIVER, FEATURE) } else { (image, &[][..]) };
    let mut cargo = cross.cargo("build")?;
    if with_inx {
        cargo.env_remove(NO_INX);
    }
    shell::run(cargo.args(["--package", package]).args(features))?;
    cross.mirror.check_lock()?;

    let built = cross.directory.join("out").join(target).join("release");
    let name = package.replace('-', "_");
    let out = shell::root().join(architecture.images());
    fs::create_dir_all(&out)?;
    let [sys, pdb] = ["sys", "pdb"].map(|extension| out.join(format!("{image}.{extension}")));
    let image = Image { sys, pdb };
    for (from, to) in
        [(built.join(format!("{name}.dll")), &image.sys), (built.join(format!("{name}.pdb")), &image.pdb)]
    {
        publish(&from, to)?;
    }
    if package == DRIVER {
        let edition = if features.is_empty() { Edition::Standard } else { Edition::Strict };
        inf::stamp(edition, architecture.inf(), &image.sys.with_extension("inf"))?;
    }
    Ok(image)
}

/// Returns the packages that the driver links for an architecture, once it was built.
///
/// # Errors
/// Cargo does not describe them.
pub fn linked(architecture: Architecture, is_strict: bool) -> Result<Vec<Linked>> {
    let toolchain = Toolchain::find(architecture);
    let mirror = shell::root().join(MIRROR);
    let mut cargo = toolchain.cargo();
    cargo.current_dir(&mirror).args(["metadata", "--format-version", "1", "--filter-platform"]);
    cargo.arg(architecture.target()).args(if is_strict { FEATURE } else { &[] });
    let metadata = serde_json::from_str(&shell::output(&mut cargo)?).context("cargo metadata")?;
    let lock = fs::read_to_string(mirror.join("Cargo.lock"))?.parse()?;
    linked::packages(&metadata, &lock, &toolchain.version()?, DRIVER)
}

/// Runs clippy on the driver and its crates, compiled for Windows.
pub fn lint() -> Result<()> {
    let toolchain = Toolchain::find(Architecture::X64);
    if toolchain == Toolchain::Debian {
        eprintln!("Debian has no clippy package for this compiler: the driver is not linted");
        return Ok(());
    }
    let cross = Cross::prepare(toolchain, Architecture::X64)?;
    // Not the whole workspace: its other packages would be compiled with their features for other programs.
    let drivers: Vec<_> = DRIVERS.into_iter().flat_map(|name| ["--package", name]).collect();
    for selection in [&drivers[..], &[&["--package", DRIVER], FEATURE].concat()] {
        let mut clippy = cross.cargo("clippy")?;
        shell::run(clippy.arg("--quiet").args(selection).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// The environment of a cargo command for the driver.
struct Cross {
    directory: PathBuf,
    architecture: Architecture,
    toolchain: Toolchain,
    kit: Kit,
    mirror: Mirror,
}

impl Cross {
    fn prepare(toolchain: Toolchain, architecture: Architecture) -> Result<Self> {
        ensure!(
            cfg!(unix),
            "the image is built without a Windows Driver Kit on Linux only; on Windows, run `cargo make` or `cargo wdk build`"
        );
        packages::require(&packages::IMAGE)?;
        toolchain.prepare()?;
        let directory = shell::root().join(MIRROR);
        let kit = match architecture {
            Architecture::X64 => "kit",
            Architecture::Arm64 => "kit-arm64",
        };
        let kit = Kit::assemble(&directory.join(kit), architecture)?;
        let mirror = Mirror::lay_out(&directory)?;
        Ok(Self { directory, architecture, toolchain, kit, mirror })
    }

    /// Returns a cargo command (`build`, `clippy`) for packages of the mirror.
    fn cargo(&self, subcommand: &str) -> Result<Command> {
        let mut cargo = self.toolchain.cargo();
        let target = self.architecture.target();
        cargo.args([subcommand, "--release", "--target", target]).args(self.toolchain.arguments());
        let linker = shell::root().join(LINKER);
        cargo.arg("--config").arg(format!("target.{target}.linker=\"{}\"", linker.display()));
        let flags = ["-Clinker-flavor=lld-link", "-Ccontrol-flow-guard"].map(str::to_owned);
        let flags = self.mirror.remap().into_iter().chain(flags);
        let flags: Vec<_> = flags.map(|argument| format!("{argument:?}")).collect();
        cargo.arg("--config").arg(format!("target.{target}.rustflags=[{}]", flags.join(",")));
        cargo.env("VIORDMA_LINKER", self.toolchain.linker()).env("VIORDMA_MIRROR", &self.directory);
        cargo.env("VIORDMA_SYSROOT", self.toolchain.sysroot()?);
        cargo.current_dir(&self.directory).env("CARGO_TARGET_DIR", self.directory.join("out"));
        cargo.envs(self.kit.environment());
        // A file in the mirror that both editions write would have each of them built again after the other.
        cargo.env(NO_INX, "1");
        Ok(cargo)
    }
}

/// Copies `from` to `to` atomically: a concurrent reader sees the old or the new file, whole.
fn publish(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("the build did not produce {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let new = to.with_extension(format!("{}.new", std::process::id()));
    fs::write(&new, content)?;
    fs::rename(&new, to).with_context(|| format!("cannot write {}", to.display()))
}
