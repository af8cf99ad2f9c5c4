// SPDX-License-Identifier: MIT OR Apache-2.0

//! Settings from environment variables.

use core::fmt;
use core::net::IpAddr;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The variable with the name of the capture.
pub const PCAP: &str = "VIORDMA_PCAP";

/// The variable with the addresses of the devices.
pub const ADDR: &str = "VIORDMA_ADDR";

/// The variable with the interface of Ethernet frames.
pub const INTERFACE: &str = "VIORDMA_INTERFACE";

/// The variable that switches shared memory off.
const SHARED_MEMORY: &str = "VIORDMA_SHARED_MEMORY";

/// How the names of the variables begin.
const PREFIX: &str = "VIORDMA_";

/// The variables, and what each sets.
pub const VARIABLES: [(&str, &str); 6] = [
    (ADDR, "addresses of the devices, separated by commas, instead of those of the host"),
    (INTERFACE, "devices of the addresses of this interface, on which frames travel as they are"),
    (PCAP, "file in which frames are recorded; with {pid} in it, one of each process"),
    ("VIORDMA_FAULTS", "faults of transmitted frames: loss=1%,duplicate=1%,reorder=1%,seed=7"),
    (SHARED_MEMORY, "0: datagrams to other processes at the same address, too, instead of shared memory"),
    ("VIORDMA_STATS", "1: print statistics of each device to stderr when it is closed"),
];

/// Settings of the devices of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Addresses of the devices; empty for those of the host.
    pub addresses: Vec<IpAddr>,
    /// Interface whose addresses become devices, and on which their frames travel as Ethernet frames.
    pub interface: Option<String>,
    pub pcap: Option<PathBuf>,
    pub faults: Faults,
    /// Frames to other processes at the same address go through shared memory.
    pub shared_memory: bool,
    pub statistics: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            interface: None,
            pcap: None,
            faults: Faults::default(),
            shared_memory: true,
            statistics: false,
        }
    }
}

/// Faults of transmitted frames, for tests: shares of frames in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub loss: u32,
    pub duplicate: u32,
    /// Frames that are transmitted after the next one.
    pub reorder: u32,
    /// Equal seeds give equal decisions for equal sequences of frames.
    pub seed: u64,
}

impl Faults {
    /// Returns whether there are any.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.loss == 0 && self.duplicate == 0 && self.reorder == 0
    }
}

/// A variable that has no meaning, or whose value has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVariable {
    pub name: Cow<'static, str>,
    pub value: String,
    pub reason: &'static str,
}

impl InvalidVariable {
    /// Returns the value of a variable that has no meaning for this reason.
    #[must_use]
    pub fn new(name: &'static str, value: String, reason: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), value, reason }
    }
}

impl fmt::Display for InvalidVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever is in it.
        write!(f, "viordma: {}={}: {}", self.name.escape_debug(), self.value.escape_debug(), self.reason)
    }
}

impl std::error::Error for InvalidVariable {}

impl Settings {
    /// Reads the settings of this process.
    ///
    /// # Errors
    /// The first variable whose value is invalid.
    pub fn from_environment() -> Result<Self, InvalidVariable> {
        Self::read(std::env::vars_os())
    }

    /// Reads the settings of variables. An empty value is that of a variable that is not set. A name that is none of those of
    /// [`VARIABLES`], but begins as they do, is a mistake: its setting would be missed without a word.
    ///
    /// # Errors
    /// The first variable whose name or value is invalid.
    pub fn read(all: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, InvalidVariable> {
        let mut settings = Self::default();
        for (name, value) in all {
            if !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let invalid = |reason| {
                let text = |text: &OsStr| text.to_string_lossy().into_owned();
                InvalidVariable { name: Cow::Owned(text(&name)), value: text(&value), reason }
            };
            let known = VARIABLES.iter().find(|(known, _)| name == *known);
            let (known, _) = known.ok_or_else(|| invalid("there is no such variable"))?;
            let text = value.to_str().ok_or_else(|| invalid("not UTF-8"))?;
            if !text.is_empty() {
                settings.set(known, text).map_err(invalid)?;
            }
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            ADDR => {
                for part in value.split(',') {
                    let address = part.trim().parse::<IpAddr>().map_err(|_| "not an IP address")?;
                    if address.is_unspecified() || address.is_multicast() {
                        return Err("not the address of a host");
                    }
                    if self.addresses.contains(&address) {
                        return Err("an address is named twice");
                    }
                    self.addresses.push(address);
                }
            }
            INTERFACE => self.interface = Some(value.to_owned()),
            PCAP => {
                self.pcap = Some(value.replace("{pid}", &std::process::id().to_string()).into());
            }
            "VIORDMA_FAULTS" => self.faults = faults(value)?,
            SHARED_MEMORY => self.shared_memory = switch(value)?,
            _ => self.statistics = switch(value)?,
        }
        Ok(())
    }
}

fn switch(value: &str) -> Result<bool, &'static str> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("neither 0 nor 1"),
    }
}

fn faults(value: &str) -> Result<Faults, &'static str> {
    let mut faults = Faults::default();
    for part in value.split(',') {
        let (key, value) = part.split_once('=').ok_or("not a list of key=value")?;
        match key.trim() {
            "loss" => faults.loss = share(value)?,
            "duplicate" => faults.duplicate = share(value)?,
            "reorder" => faults.reorder = share(value)?,
            "seed" => faults.seed = value.trim().parse().map_err(|_| "the seed is not a number")?,
            _ => return Err("the keys are loss, duplicate, reorder, seed"),
        }
    }
    Ok(faults)
}

/// Returns a percentage in millionths.
fn share(value: &str) -> Result<u32, &'static str> {
    const WRONG: &str = "a share is a percentage from 0% to 100%, as in loss=1.5%";
    let percent: f64 =
        value.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok()).ok_or(WRONG)?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(WRONG);
    }
    #[allow(clippy::cast_sign_loss, reason = "from 0 to 1,000,000")]
    Ok((percent * 10_000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, InvalidVariable> {
        Settings::read([(name.into(), value.into())].into_iter())
    }

    #[test]
    fn each_variable_sets_its_part() {
        assert_eq!(Settings::read([].into_iter()), Ok(Settings::default()));
        let empty = VARIABLES.map(|(name, _)| (name.into(), "".into()));
        assert_eq!(Settings::read(empty.into_iter()), Ok(Settings::default()));
        assert_eq!(read("HOME", "VIORDMA_"), Ok(Settings::default()));
        let addresses = read("VIORDMA_ADDR", "127.0.0.1, ::1").unwrap().addresses;
        assert_eq!(addresses, ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(read("VIORDMA_INTERFACE", "eth0").unwrap().interface.as_deref(), Some("eth0"));
        let faults = read("VIORDMA_FAULTS", "loss=1.5%,reorder=100%,seed=7").unwrap().faults;
        assert_eq!(faults, Faults { loss: 15_000, duplicate: 0, reorder: 1_000_000, seed: 7 });
        assert_eq!(read("VIORDMA_PCAP", "/tmp/a").unwrap().pcap, Some("/tmp/a".into()));
        assert!(read("VIORDMA_STATS", "1").unwrap().statistics);
        assert!(!read("VIORDMA_SHARED_MEMORY", "0").unwrap().shared_memory);
    }

    #[test]
    fn a_value_without_meaning_is_reported_with_the_name_of_its_variable() {
        for (name, value) in [
            ("VIORDMA_ADDR", "localhost"),
            ("VIORDMA_ADDR", "0.0.0.0"),
            ("VIORDMA_ADDR", "::1,::1"),
            ("VIORDMA_FAULTS", "loss"),
            ("VIORDMA_FAULTS", "loss=1"),
            ("VIORDMA_FAULTS", "loss=101%"),
            ("VIORDMA_FAULTS", "loss=NaN%"),
            ("VIORDMA_FAULTS", "speed=1%"),
            ("VIORDMA_FAULTS", "seed=x"),
            ("VIORDMA_STATS", "yes"),
            ("VIORDMA_SHARED_MEMORY", "2"),
            ("VIORDMA_STATS", "1\n"),
            // Names of none.
            ("VIORDMA_FAULT", "loss=1%"),
            ("VIORDMA_", ""),
        ] {
            let error = read(name, value).unwrap_err();
            assert_eq!((&*error.name, error.value.as_str()), (name, value));
            let line = error.to_string();
            assert!(line.contains(name) && !line.contains('\n'), "{line}");
        }
        let broken = OsString::from_vec(vec![b'/', 0xFF]);
        let error = Settings::read([(PCAP.into(), broken)].into_iter()).unwrap_err();
        assert_eq!((&*error.name, error.reason), (PCAP, "not UTF-8"));
    }
}
