// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of `wdk-build`'s interface that the build scripts of `wdk-sys`, `wdk`, `wdk-alloc`, `wdk-panic` and of
//! a WDM driver call, for hosts on which the published crate does not compile.
//!
//! The kit is found by two environment variables, and laid out as the Windows Driver Kit lays out its own:
//! `$WDKContentRoot/Include/$Version_Number/{km/crt,km,shared}` and `$WDKContentRoot/Lib/$Version_Number/km/{x64,arm64}`.
//! Names and signatures are the published crate's; only the WDM driver model is ever configured.

use std::{
    borrow::Borrow,
    env, fmt, io,
    path::{Path, PathBuf},
};

use bindgen::{Builder, EnumVariation, Formatter, RustEdition};
use thiserror::Error;

/// Link arguments of a kernel-mode driver, as far as LLD knows them.
const LINK_ARGUMENTS: [&str; 12] = [
    "/DRIVER",
    "/NODEFAULTLIB",
    // Of Windows 10 and Server 2016, whose headers all later ones follow.
    "/SUBSYSTEM:NATIVE,10.0",
    "/OSVERSION:10.0",
    "/ENTRY:DriverEntry",
    "/NXCOMPAT",
    "/DYNAMICBASE",
    "/OPT:REF,ICF",
    "/INTEGRITYCHECK",
    "/MANIFEST:NO",
    // The checksum of the image, and a hash instead of the time of the build.
    "/RELEASE",
    "/BREPRO",
];

/// An I/O error and the path it is about.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct IoError {
    path: PathBuf,
    source: io::Error,
}

impl IoError {
    pub fn with_path(path: impl AsRef<Path>, source: io::Error) -> Self {
        Self { path: path.as_ref().to_path_buf(), source }
    }
}

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error("environment variable {0} is not set: build the driver with `cargo xtask image`")]
    MissingEnv(&'static str),
    #[error("directory {} is missing from the kit", .0.display())]
    MissingDirectory(PathBuf),
    #[error("a kernel driver needs `-C target-feature=+crt-static`")]
    StaticCrtNotEnabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiSubset {
    Base,
    Wdf,
    Gpio,
    Hid,
    ParallelPorts,
    Spb,
    Storage,
    Usb,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct KmdfConfig {
    pub kmdf_version_major: u8,
    pub target_kmdf_version_minor: u8,
    pub minimum_kmdf_version_minor: Option<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct UmdfConfig {
    pub umdf_version_major: u8,
    pub target_umdf_version_minor: u8,
    pub minimum_umdf_version_minor: Option<u8>,
}

/// The driver model. Only [`DriverConfig::Wdm`] is ever made here.
#[derive(Debug, Clone)]
pub enum DriverConfig {
    Wdm,
    Kmdf(KmdfConfig),
    Umdf(UmdfConfig),
}

#[derive(Debug, Clone)]
pub struct Config {
    pub driver_config: DriverConfig,
    kit: Kit,
}

#[derive(Debug, Clone)]
struct Kit {
    include: PathBuf,
    lib: PathBuf,
}

impl Config {
    pub fn from_env_auto() -> Result<Self, ConfigError> {
        let root = PathBuf::from(variable("WDKContentRoot")?);
        let version = variable("Version_Number")?;
        let kit = Kit {
            include: directory(root.join("Include").join(&version))?,
            lib: directory(root.join("Lib").join(&version).join("km").join(if is_arm64() { "arm64" } else { "x64" }))?,
        };
        Ok(Self { driver_config: DriverConfig::Wdm, kit })
    }

    pub fn include_paths(&self) -> Result<impl Iterator<Item = PathBuf>, ConfigError> {
        let found = ["km/crt", "km", "shared"].map(|name| directory(self.kit.include.join(name)));
        Ok(found.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter())
    }

    pub fn preprocessor_definitions(&self) -> impl Iterator<Item = (String, Option<String>)> {
        // MinGW's wdm.h asks for `_M_ARM` only.
        let names: &[&str] = if is_arm64() { &["_ARM64_", "ARM64", "_M_ARM"] } else { &["_AMD64_", "AMD64"] };
        ["_WIN64", "_KERNEL_MODE"].into_iter().chain(names.iter().copied()).map(|name| (name.to_owned(), None))
    }

    pub fn headers(&self, subset: ApiSubset) -> Result<impl Iterator<Item = String>, ConfigError> {
        let names: &[&str] = match subset {
            ApiSubset::Base => &["ntifs.h", "ntddk.h", "ntstrsafe.h"],
            _ => &[],
        };
        Ok(names.iter().map(|&name| name.to_owned()))
    }

    pub fn bindgen_header_contents(
        &self,
        subsets: impl IntoIterator<Item = ApiSubset> + fmt::Debug,
    ) -> Result<String, ConfigError> {
        let mut text = String::new();
        for subset in subsets {
            for header in self.headers(subset)? {
                text += &format!("#include \"{header}\"\n");
            }
        }
        Ok(text)
    }

    pub fn bindgen_library_link_raw_lines(&self, subset: ApiSubset) -> Option<String> {
        (subset == ApiSubset::Base).then(|| {
            "#[cfg(not(any(test, feature = \"suppress-wdk-linking\")))]\n\
             #[link(name = \"BufferOverflowFastFailK\", kind = \"static\", modifiers = \"-bundle\")]\n\
             #[link(name = \"ntoskrnl\", kind = \"static\", modifiers = \"-bundle\")]\n\
             unsafe extern \"C\" {}\n"
                .to_owned()
        })
    }

    #[must_use]
    pub fn compute_wdffunctions_symbol_name(&self) -> Option<String> {
        None
    }

    pub fn emit_check_cfg_settings() {
        println!(
            "cargo::rustc-check-cfg=cfg(driver_model__driver_type, values(\"WDM\",\"KMDF\",\"UMDF\"))"
        );
    }

    pub fn configure_library_build(&self) -> Result<(), ConfigError> {
        Self::emit_check_cfg_settings();
        println!("cargo::rustc-cfg=driver_model__driver_type=\"WDM\"");
        Ok(())
    }

    pub fn configure_binary_build(&self) -> Result<(), ConfigError> {
        if !env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|features| features.contains("crt-static")) {
            return Err(ConfigError::StaticCrtNotEnabled);
        }
        println!("cargo::rustc-link-search={}", self.kit.lib.display());
        for argument in LINK_ARGUMENTS {
            println!("cargo::rustc-cdylib-link-arg={argument}");
        }
        self.configure_library_build()
    }
}

pub fn configure_wdk_binary_build() -> Result<(), ConfigError> {
    Config::from_env_auto()?.configure_binary_build()
}

pub fn configure_wdk_library_build() -> Result<(), ConfigError> {
    configure_wdk_library_build_and_then(|_| Ok::<_, ConfigError>(()))
}

/// Configures a library and runs `then`. Without a kit in the environment only the `cfg` names are declared, as the
/// published crate does for a library that is built on its own.
pub fn configure_wdk_library_build_and_then<F, E>(mut then: F) -> Result<(), E>
where
    F: FnMut(Config) -> Result<(), E>,
    E: From<ConfigError>,
{
    match Config::from_env_auto() {
        Ok(config) => {
            config.configure_library_build()?;
            then(config)
        }
        Err(ConfigError::MissingEnv(_)) => {
            Config::emit_check_cfg_settings();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

pub trait BuilderExt: Sized {
    fn wdk_default(config: impl Borrow<Config> + fmt::Debug) -> Result<Self, ConfigError>;
}

impl BuilderExt for Builder {
    fn wdk_default(config: impl Borrow<Config> + fmt::Debug) -> Result<Self, ConfigError> {
        let config = config.borrow();
        let includes = config.include_paths()?.map(|path| format!("-I{}", path.display()));
        let definitions = config.preprocessor_definitions().map(|(name, _)| format!("-D{name}"));
        Ok(Self::default()
            .use_core()
            .derive_default(true)
            .generate_cstr(true)
            .detect_include_paths(false)
            .clang_args(["-fno-builtin", "-fms-extensions"])
            .clang_args(includes)
            .clang_args(definitions)
            // Superseded by ExAllocatePool2, and gone from the bindings of the published crate too.
            .blocklist_item("ExAllocatePoolWithTag|ExAllocatePoolWithQuotaTag")
            .blocklist_item("ExAllocatePoolWithTagPriority|ExAllocatePool")
            // bindgen would make them both packed and aligned, which Rust refuses.
            .opaque_type("_KGDTENTRY64|_KIDTENTRY64")
            .must_use_type("NTSTATUS|HRESULT")
            .default_enum_style(EnumVariation::ModuleConsts)
            .formatter(Formatter::Prettyplease)
            .rust_edition(RustEdition::Edition2024))
    }
}

fn variable(name: &'static str) -> Result<String, ConfigError> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).map_err(|_| ConfigError::MissingEnv(name))
}

/// Whether the build script is for a package of an arm64 driver.
fn is_arm64() -> bool {
    env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "aarch64")
}

fn directory(path: PathBuf) -> Result<PathBuf, ConfigError> {
    if path.is_dir() { Ok(path) } else { Err(ConfigError::MissingDirectory(path)) }
}
