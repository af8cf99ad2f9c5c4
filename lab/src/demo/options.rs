// SPDX-License-Identifier: MIT OR Apache-2.0

//! Command line of the demo, and its checks.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    device::DeviceName,
    exit::Exit,
    files::{self, Named},
    percent::Percent,
};

/// Bytes copied when no file is named, and with `--quick`.
const DEFAULT_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 16 << 20;

/// Copy a file between two simulated Windows hosts by RDMA, and read it back.
///
/// Two simulated hosts run the driver image, each on a virtio NIC of its own, with a wire between them. The first host
/// writes the file into the second host's memory by RDMA Write, and reads it back by RDMA Read. With --smb, it sends SMB2
/// WRITE and READ requests over SMB Direct, and the second host reads and writes the first one's memory. Nothing is
/// written to disk except what --pcap, --json and --report name.
///
/// Exit codes: 0 success; 1 the demo cannot run; 2 an option or a file cannot be used, and no file was written; 3 the
/// copy did not complete, or differs, or the driver broke a rule of the kernel (--kill-peer-at always ends with 3).
#[derive(clap::Args)]
pub struct Options {
    /// File to copy [default: 256 MiB of generated data]
    pub file: Option<PathBuf>,
    /// Copy by SMB2 requests over SMB Direct: the second host reads the file from the first host's memory, and writes it back
    #[arg(long)]
    pub smb: bool,
    /// Share of frames that the wire loses, in each direction, for example 1%
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub loss: Percent,
    /// Share of frames that arrive late, behind frames that were sent after them [without a value: 1%]
    #[arg(long, value_name = "PERCENT", default_value = "0%", default_missing_value = "1%", num_args = 0..=1)]
    pub reorder: Percent,
    /// Run in virtual time with this seed: the same seed replays the same run, frame by frame [default: real time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// RoCE path MTU, the largest payload of a frame
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = ["256", "512", "1024", "2048", "4096"])]
    pub mtu: String,
    /// Write a capture of the wire to this file (pcapng; about twice as large as the data)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Copy 16 MiB of generated data instead of 256
    #[arg(long, conflicts_with = "file")]
    pub quick: bool,
    /// Write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the events of the driver's trace on both hosts to this file: one JSON object a line if its name ends with .jsonl,
    /// lines for people otherwise
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Write a report to this file: one HTML page with charts of goodput, retransmissions, latencies and packets
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Network device of both hosts: simulated, or QEMU's virtio-net-pci, in real time
    #[arg(long, value_name = "DEVICE", default_value = "simulated")]
    pub device: DeviceName,
    /// Disconnect the second host after this share of the whole transfer, which is the data there and back: at 25%
    /// half of the data was written, at 50% all was written, at 75% half was read back. Runs in virtual time
    #[arg(long, value_name = "PERCENT")]
    pub kill_peer_at: Option<Percent>,
}

impl Options {
    /// Returns the size of the data to generate when no file is named.
    #[must_use]
    pub fn generated_bytes(&self) -> u64 {
        if self.quick { QUICK_BYTES } else { DEFAULT_BYTES }
    }

    /// Returns the path MTU in bytes.
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        self.mtu.parse().unwrap_or(4096)
    }

    /// Whether the run is in real time. A peer that is gone is detected by timeouts, which take no time in virtual time.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.seed.is_none() && self.kill_peer_at.is_none()
    }

    /// Refuses options that contradict each other.
    fn check_device(&self) -> Result<()> {
        if self.device == DeviceName::Qemu && !self.is_real_time() {
            return Err(Exit::usage("QEMU's device needs real time: not with --seed or --kill-peer-at"));
        }
        Ok(())
    }

    /// Returns the seed of `--seed`, or a random one.
    #[must_use]
    pub fn seed_or_random(&self) -> u64 {
        // 32 bits: short enough to type, and exact in every JSON reader.
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32)
    }

    /// Refuses what cannot be done, before anything is built or opened. `image` is the driver image, if it is there.
    ///
    /// # Errors
    /// With exit code 2, if the file cannot be read, or an output cannot be written or is another file of the command.
    pub fn check(&self, image: &Path) -> Result<()> {
        self.check_device()?;
        let mut inputs = vec![Named { option: "the driver image", path: image }];
        if let Some(file) = &self.file {
            let metadata = std::fs::File::open(file).and_then(|file| file.metadata());
            match metadata {
                Err(error) => return Err(Exit::usage(format!("cannot read {}: {error}", file.display()))),
                Ok(metadata) if !metadata.is_file() => {
                    return Err(Exit::usage(format!("{} is not a regular file", file.display())));
                }
                Ok(_) => inputs.push(Named { option: "the file to copy", path: file }),
            }
        }
        files::check_outputs(&inputs, &self.outputs())
    }

    fn outputs(&self) -> Vec<Named<'_>> {
        let outputs = [
            ("--pcap", &self.pcap),
            ("--json", &self.json),
            ("--report", &self.report),
            ("--events", &self.events),
        ];
        outputs
            .into_iter()
            .filter_map(|(option, path)| Some(Named { option, path: path.as_deref()? }))
            .collect()
    }
}
