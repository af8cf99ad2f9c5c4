// SPDX-License-Identifier: MIT OR Apache-2.0

//! One host with the driver on it, whose wire leaves the simulation: towards a virtual machine, or another external host.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use device_sim::{
    Quirks,
    link::{Capture, Datagrams, Faults, Lost, Tunnel, TunnelCounters, Wire, WireOptions},
};
use ndis_sim::{Keyword, netio::Discovery, open_tunnel};
use nt_sim::{ClockKind, Sim};

use crate::testbed::{Machine, MachineOptions};

/// Frames that either direction of the wire holds for a receiver that has no room at the moment.
const CAPACITY: usize = 1 << 13;

/// How an external host is built.
#[derive(Clone, Debug)]
pub struct Options {
    pub mac: [u8; 6],
    /// The host's addresses and their prefix lengths; the first one is [`Machine::address`].
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest IP packet of the link: 1500, or 9000 with jumbo frames.
    pub mtu: u16,
    /// RoCE path MTU, which frames of the link must have room for: up to 1024 with an MTU of 1500, 4096 with 9000.
    pub path_mtu: u32,
    /// Faults of what the host sends, and of what it receives.
    pub faults: [Faults; 2],
    /// Seed of the faults.
    pub seed: u64,
    pub capture: Option<PathBuf>,
    pub verifier: bool,
    /// Registry values of the adapter.
    pub keywords: Vec<(&'static str, Keyword)>,
}

impl Options {
    /// A good wire without jumbo frames, everything verified.
    #[must_use]
    pub fn new(mac: [u8; 6], addresses: &[(IpAddr, u8)]) -> Self {
        Self {
            mac,
            addresses: addresses.to_vec(),
            mtu: 1500,
            path_mtu: 1024,
            faults: [Faults::NONE; 2],
            seed: 0,
            capture: None,
            verifier: true,
            keywords: Vec::new(),
        }
    }

    /// With jumbo frames and the largest path MTU.
    #[must_use]
    pub fn jumbo(self) -> Self {
        Self { mtu: 9000, path_mtu: 4096, ..self }
    }
}

/// The host, and its end of the wire. Dropping it cuts the wire and ends the host, whatever runs on it.
///
/// The thread that makes it is the simulation's [harness thread](Sim): one external host per thread.
pub struct ExternalHost {
    machine: Machine,
    tunnel: Tunnel,
    wire: Arc<Wire>,
    capture: Option<Capture>,
    // Dropped last: it ends the threads of the host.
    sim: Sim,
}

impl ExternalHost {
    /// A host with `image` loaded on it, not started yet, whose frames leave through `datagrams`.
    pub fn new(image: &Path, options: &Options, datagrams: Datagrams) -> Result<Self> {
        let mut sim = ndis_sim::builder().clock(ClockKind::Threaded).build();
        let wire = Wire::new(WireOptions {
            capacity: CAPACITY,
            faults: options.faults,
            seed: options.seed,
            ..WireOptions::immediate()
        });
        let capture = match &options.capture {
            Some(path) => {
                let capture = Capture::create(path, &["viordma", "outside"], Lost::Marked);
                Some(capture.with_context(|| format!("cannot write {}", path.display()))?)
            }
            None => None,
        };
        if let Some(capture) = &capture {
            wire.capture(capture.clone());
        }
        let machine = MachineOptions {
            name: "viordma",
            mac: options.mac,
            addresses: options.addresses.clone(),
            mtu: options.mtu,
            path_mtu: options.path_mtu,
            verifier: options.verifier,
            quirks: Quirks::default(),
            keywords: options.keywords.clone(),
            discovery: Discovery::OnWire,
        };
        let machine = Machine::new(&mut sim, image, &machine)?;
        machine.nic().connect(wire.port(0));
        let tunnel = open_tunnel(sim.world(), wire.port(1), datagrams).context("cannot open the tunnel")?;
        Ok(Self { machine, tunnel, wire, capture, sim })
    }

    /// Starts the driver: from now on the host is on the wire.
    pub fn start(&mut self) -> Result<()> {
        self.machine.start()
    }

    /// Halts the adapter and unloads the driver; the verifier looks for what they left. Ends the capture.
    pub fn stop(&mut self) -> Result<()> {
        self.machine.stop()?;
        if let Some(capture) = self.capture.take() {
            capture.finish().context("cannot write the capture")?;
        }
        Ok(())
    }

    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The wire: end 0 is the host's, end 1 leads outside.
    #[must_use]
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// What the socket sent and received.
    #[must_use]
    pub fn tunnel(&self) -> TunnelCounters {
        self.tunnel.counters()
    }

    /// The run's own time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.sim.now())
    }

    /// Everything the verifier found so far, as it would be printed.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.sim.verdict().violations.iter().map(ToString::to_string).collect()
    }
}
