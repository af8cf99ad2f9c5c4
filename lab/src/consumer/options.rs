// SPDX-License-Identifier: MIT OR Apache-2.0

//! Command line of the command, and its checks.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::Result;
use nt_sim::{Tolerance, Tolerances};

use viordma_inf::Edition;

use super::{
    assignment::Assignment,
    keyword::KeywordOption,
    script::{Role, Script, duration},
};
use crate::{
    exit::Exit,
    files::{self, Named},
    filter_image::FilterOptions,
    percent::Percent,
};

/// Run NDK consumer drivers on simulated Windows hosts with viordma.
///
/// Two simulated hosts run viordma.sys and the consumer images, each on a virtio NIC of its own, with a wire between
/// them. Scripts open the consumers' devices, send IOCTLs, and say what has to come out. At the end all handles are
/// closed, the consumers are unloaded, the adapters halted and viordma unloaded, and the verifier says what it found.
/// docs/consumer.md describes scripts, checks and tolerations; lab/scripts has scripts to start from.
///
/// Exit codes: 0 all scripts did as they say, and the verifier found no violation; 1 otherwise; 2 an option, an image or
/// a script cannot be used.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the command")]
pub struct Options {
    /// Consumer drivers, in the order in which they are loaded. A driver's service is named after its file
    #[arg(required = true, value_name = "IMAGE.sys")]
    pub images: Vec<PathBuf>,
    /// Script in TOML; several run one after the other [default: load and unload]
    #[arg(long, value_name = "FILE")]
    pub script: Vec<PathBuf>,
    /// Set a variable of the scripts
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<Assignment>,
    /// One host with two adapters on one wire, instead of two hosts
    #[arg(long)]
    pub one_host: bool,
    /// Share of frames that the wire loses, in each direction, for example 2%
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub loss: Percent,
    /// Share of frames that arrive late, behind frames that were sent after them
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub reorder: Percent,
    /// Share of frames that arrive twice
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub duplicate: Percent,
    /// Share of frames that arrive damaged
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub corrupt: Percent,
    /// Seed of faults and, in virtual time, of the schedule: the same seed replays the same run [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run in real time, with racing threads, instead of in virtual time
    #[arg(long)]
    pub real_time: bool,
    /// RoCE path MTU, the largest payload of a frame
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = ["256", "512", "1024", "2048", "4096"])]
    pub mtu: String,
    /// Write a capture of the wire to this file (pcapng)
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Cut the wire for good, this long after the scripts have begun. What scripts expect is then shown, not required
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub cut: Option<Duration>,
    /// Faults of an image that are reported but are no violations: assertions, use-after-free, leaks, pool-tags, ...
    #[arg(long, value_name = "SERVICE:FAULT,…")]
    pub tolerate: Vec<Toleration>,
    /// Set a registry value of viordma's adapters, or of one: server:NAME=VALUE, client:NAME=VALUE
    #[arg(long, value_name = "[ROLE:]NAME=VALUE")]
    pub keyword: Vec<KeywordOption>,
    #[command(flatten)]
    pub filters: FilterOptions,
    /// Set the interface index of an adapter, for drivers to which it is fixed: server=12, client=15
    #[arg(long, value_name = "ROLE=INDEX")]
    pub interface: Vec<InterfaceIndex>,
    /// Real time after which a call of a driver, or a script, is given up
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub limit: Duration,
    /// Run drivers that import functions which the simulated kernel does not have: a call of one is a bug check
    #[arg(long)]
    pub allow_missing: bool,
    /// Print all frames of the stacks of tolerated faults
    #[arg(long)]
    pub stacks: bool,
}

/// `ROLE=INDEX`.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceIndex {
    pub role: Role,
    pub index: u32,
}

impl FromStr for InterfaceIndex {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, index) = text.split_once('=').ok_or("it is not of the form ROLE=INDEX")?;
        let index = index.parse().ok().filter(|index| *index != 0);
        Ok(Self { role: Role::parse(role)?, index: index.ok_or("an index is a number from 1 on")? })
    }
}

/// `SERVICE:FAULT,FAULT`.
#[derive(Clone, Debug)]
pub struct Toleration {
    pub service: String,
    pub faults: Tolerances,
}

impl FromStr for Toleration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (service, faults) = text.split_once(':').ok_or("it is not of the form SERVICE:FAULT,FAULT")?;
        Ok(Self { service: service.to_owned(), faults: faults.parse().map_err(|error| format!("{error}"))? })
    }
}

/// A consumer driver on the command line.
#[derive(Clone, Debug)]
pub struct Image {
    pub path: PathBuf,
    pub service: String,
    pub tolerate: Tolerances,
    /// Whether it may import functions that the simulated kernel does not have.
    pub allow_missing: bool,
}

impl Options {
    /// Returns the path MTU in bytes.
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        self.mtu.parse().unwrap_or(4096)
    }

    /// Returns the seed of `--seed`, or a random one.
    #[must_use]
    pub fn seed_or_random(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32)
    }

    /// Returns the registry values, with the role of the adapter where one is named.
    ///
    /// # Errors
    /// With exit code 2, if viordma does not read a value, or there is no such role.
    pub fn keywords(&self) -> Result<Vec<(Option<Role>, String, String)>> {
        let with_role = |set: &KeywordOption| {
            set.edition()?;
            let role = set.of.as_deref().map(Role::parse).transpose().map_err(Exit::usage)?;
            Ok((role, set.name.clone(), set.value.clone()))
        };
        self.keyword.iter().map(with_role).collect()
    }

    /// Returns whether only the strict edition of viordma reads one of the registry values, and no image is named.
    ///
    /// # Errors
    /// With exit code 2, if no edition reads a value.
    pub fn needs_strict_image(&self) -> Result<bool> {
        let editions: Result<Vec<_>> = self.keyword.iter().map(KeywordOption::edition).collect();
        Ok(editions?.contains(&Edition::Strict) && std::env::var_os("VIORDMA_IMAGE").is_none())
    }

    /// Returns the interface indices.
    #[must_use]
    pub fn interfaces(&self) -> Vec<(Role, u32)> {
        self.interface.iter().map(|set| (set.role, set.index)).collect()
    }

    /// Returns the images with their services and what is tolerated of each.
    ///
    /// # Errors
    /// With exit code 2, if an image cannot be read, two have the same service, or a toleration names no image.
    pub fn images(&self) -> Result<Vec<Image>> {
        let mut images: BTreeMap<String, Image> = BTreeMap::new();
        let mut order = Vec::new();
        for path in &self.images {
            if let Err(error) = std::fs::read(path) {
                return Err(Exit::usage(format!("cannot read {}: {error}", path.display())));
            }
            let service = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let image = Image {
                path: path.clone(),
                service: service.clone(),
                tolerate: Tolerances::NONE,
                allow_missing: self.allow_missing,
            };
            if images.insert(service.to_lowercase(), image).is_some()
                || service.eq_ignore_ascii_case("viordma")
            {
                return Err(Exit::usage(format!("two drivers are named {service}: {}", path.display())));
            }
            order.push(service.to_lowercase());
        }
        for Toleration { service, faults } in &self.tolerate {
            let name = service.strip_suffix(".sys").unwrap_or(service).to_lowercase();
            let image = images.get_mut(&name).ok_or_else(|| {
                Exit::usage(format!("--tolerate names {service}, which is none of the images"))
            })?;
            let faults = Tolerance::ALL.into_iter().filter(|fault| faults.contains(*fault));
            image.tolerate = faults.fold(image.tolerate, Tolerances::with);
        }
        Ok(order.into_iter().filter_map(|service| images.remove(&service)).collect())
    }

    /// Reads the scripts, with the variables of the command line, and checks that the drivers are there that they need.
    ///
    /// # Errors
    /// With exit code 2.
    pub fn scripts(&self, images: &[Image]) -> Result<Vec<Script>> {
        let mut scripts = Vec::new();
        for path in &self.script {
            let mut script = Script::read(path)?;
            for driver in &script.drivers {
                if !images.iter().any(|image| image.service.eq_ignore_ascii_case(driver)) {
                    return Err(Exit::usage(format!("{} needs {driver}.sys", path.display())));
                }
            }
            let own: Vec<_> = self.set.iter().map(|set| (set.name.clone(), set.value.clone())).collect();
            script.set(&own).map_err(|reason| Exit::usage(format!("{}: {reason}", path.display())))?;
            scripts.push(script);
        }
        for set in &self.set {
            if !scripts.iter().any(|script| script.variables.iter().any(|(name, _)| *name == set.name)) {
                return Err(Exit::usage(format!("no script has a variable '{}'", set.name)));
            }
        }
        Ok(scripts)
    }

    /// Refuses outputs that cannot be written.
    ///
    /// # Errors
    /// With exit code 2.
    pub fn check_outputs(&self, image: &Path) -> Result<()> {
        let mut inputs = vec![Named { option: "the driver image", path: image }];
        inputs.extend(self.images.iter().map(|path| Named { option: "an image", path }));
        inputs.extend(self.script.iter().map(|path| Named { option: "--script", path }));
        let outputs = self.capture.iter().map(|path| Named { option: "--capture", path });
        files::check_outputs(&inputs, &outputs.collect::<Vec<_>>())
    }
}
