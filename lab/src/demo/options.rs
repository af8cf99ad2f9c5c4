//! The demo's command line, checked.

use std::{path::PathBuf, str::FromStr};

use crate::exit::Exit;

/// Bytes moved when no file is named, and with `--quick`.
const DEFAULT_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 16 << 20;

#[derive(clap::Args)]
pub struct Options {
    /// The file to copy; without one, 256 MiB made from the seed
    pub file: Option<PathBuf>,
    /// Share of frames that the wire loses, in each direction, for example 1%
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub loss: Percent,
    /// Share of frames that arrive late, behind others that left after them
    #[arg(long, value_name = "PERCENT", default_value = "0%", default_missing_value = "1%", num_args = 0..=1)]
    pub reorder: Percent,
    /// Run in virtual time, where the same seed replays the same run, frame by frame
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// RoCE path MTU: the largest payload of one frame
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = ["256", "512", "1024", "2048", "4096"])]
    pub mtu: String,
    /// Write the capture here instead of target/demo.pcapng
    #[arg(long, value_name = "PATH")]
    pub pcap: Option<PathBuf>,
    /// Move 16 MiB instead of 256
    #[arg(long, conflicts_with = "file")]
    pub quick: bool,
    /// Also write the figures to this file
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Cut the peer off when this share of the file has been moved
    #[arg(long, value_name = "PERCENT")]
    pub kill_peer_at: Option<Percent>,
}

impl Options {
    /// Bytes of data to make when no file is named.
    pub fn made_bytes(&self) -> u64 {
        if self.quick { QUICK_BYTES } else { DEFAULT_BYTES }
    }

    pub fn path_mtu(&self) -> u32 {
        self.mtu.parse().unwrap_or(4096)
    }

    /// Refuses what cannot be done before anything is built.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(file) = &self.file {
            let metadata = std::fs::File::open(file).and_then(|file| file.metadata());
            match metadata {
                Err(error) => return Err(Exit::usage(format!("cannot read {}: {error}", file.display()))),
                Ok(metadata) if !metadata.is_file() => {
                    return Err(Exit::usage(format!("{} is not a file", file.display())));
                }
                Ok(_) => {}
            }
        }
        for path in [&self.pcap, &self.json].into_iter().flatten() {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            if directory.is_some_and(|directory| !directory.is_dir()) {
                return Err(Exit::usage(format!("cannot write {}: no such directory", path.display())));
            }
        }
        Ok(())
    }
}

/// A share between 0 and 1, written as `1%`, `0.5%` or `50`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        match number.parse::<f64>() {
            Ok(value) if (0.0..=100.0).contains(&value) => Ok(Self(value / 100.0)),
            _ => Err("a percentage between 0% and 100% is expected".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_with_and_without_their_sign() {
        assert_eq!("1%".parse(), Ok(Percent(0.01)));
        assert_eq!("0.5%".parse(), Ok(Percent(0.005)));
        assert_eq!("50".parse(), Ok(Percent(0.5)));
    }

    #[test]
    fn what_is_no_percentage_is_refused() {
        for text in ["", "%", "-1%", "101%", "nan", "1/2"] {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }
}
