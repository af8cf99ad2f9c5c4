// SPDX-License-Identifier: MIT OR Apache-2.0

//! Command line of the command.

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use nt_sim::Tolerances;

use super::cases::{self, Case};
use crate::{
    consumer::{KeywordOption, script::duration},
    exit::Exit,
    filter_image::FilterOptions,
    miniport::two_hosts::{HOSTS, Setting},
};

/// Run an NDIS miniport driver for virtio-net on a simulated Windows host.
///
/// The image runs as it is, with a simulated virtio-net device, opposite viordma and itself: OIDs, frames, ping and TCP, the link,
/// pause and restart, halt and a second start, reset, power, removal. Each case is a simulation and a process of its own, with the
/// verifier on. docs/miniport.md says what was seen.
///
/// Exit codes: 0 every case passed, or no image was named; 1 a case failed; 2 the image cannot be used.
#[derive(clap::Args)]
pub struct Options {
    /// The driver, a file that you bring
    #[arg(value_name = "IMAGE.sys")]
    pub image: Option<PathBuf>,
    /// Only this case
    #[arg(long, value_name = "NAME", hide = true)]
    pub case: Option<String>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Only with this driver at the other end
    #[arg(long, value_enum, overrides_with = "peer")]
    pub peer: Option<Peer>,
    /// Seed of the schedule in virtual time: the same seed replays the same run
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Run in real time, with racing threads, instead of in virtual time
    #[arg(long)]
    pub real_time: bool,
    /// Write a capture of the wire to this file (pcapng); of the last case
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Faults of the image that are reported but are no violations: assertions, leaks, stale-info, ... (docs/verifier.md)
    #[arg(long, value_name = "FAULT,…", default_value = "")]
    pub tolerate: Tolerances,
    /// Real time after which a case is given up
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = duration)]
    pub limit: Duration,
    /// Run a driver that imports functions which the simulated kernel does not have: a call of one is a bug check
    #[arg(long)]
    pub allow_missing: bool,
    /// Cases that are known to fail with this image: they are run and reported, and do not fail the command
    #[arg(long, value_name = "CASE,…", value_delimiter = ',')]
    pub known: Vec<String>,
    #[command(flatten)]
    pub filters: FilterOptions,
    /// Set a registry value of its adapters: with itself as the peer, of both. Of one host: alpha:NAME=VALUE, beta:NAME=VALUE (the peer)
    #[arg(long, value_name = "[HOST:]NAME=VALUE")]
    pub keyword: Vec<KeywordOption>,
}

/// The driver at the other end of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peer {
    Viordma,
    Itself,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viordma => "viordma",
            Self::Itself => "itself",
        })
    }
}

impl Options {
    /// Returns the peers that are wanted.
    pub(super) fn peers(&self) -> Vec<Peer> {
        self.peer.map_or_else(|| vec![Peer::Viordma, Peer::Itself], |peer| vec![peer])
    }

    /// Returns the cases to run, each with its peer.
    pub(super) fn selected(&self) -> Vec<(&'static Case, Peer)> {
        let only = self.only.as_deref().unwrap_or_default();
        let wanted = cases::ALL.iter().filter(|case| case.name.contains(only));
        wanted
            .flat_map(|case| self.peers().into_iter().map(move |peer| (case, peer)))
            .filter(|(case, peer)| case.with_itself || *peer == Peer::Viordma)
            .collect()
    }

    /// Returns the registry values, for a peer.
    ///
    /// # Errors
    /// With exit code 2, if a host of another name is named.
    pub(super) fn keywords(&self, peer: Peer) -> Result<Vec<Setting>> {
        let mut settings = Vec::new();
        for KeywordOption { of, name, value } in &self.keyword {
            let sides = match of.as_deref() {
                None if peer == Peer::Itself => 0..2,
                None => 0..1,
                Some(host) => {
                    let side = HOSTS.iter().position(|known| *known == host).ok_or_else(|| {
                        Exit::usage(format!(
                            "--keyword names '{host}'; the hosts are {}",
                            HOSTS.join(" and ")
                        ))
                    })?;
                    side..side + 1
                }
            };
            settings.extend(sides.map(|side| Setting { side, name: name.clone(), value: value.clone() }));
        }
        Ok(settings)
    }
}
