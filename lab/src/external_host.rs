// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host with the driver whose link leads out of the simulation: to a virtual machine or another external host.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use device_sim::link::{Capture, Datagrams, Faults, Lost, Tunnel, TunnelCounters, Wire, WireOptions};
use ndis_sim::{Keyword, netio::Discovery, open_tunnel};
use nt_sim::{ClockKind, Sim, nt::trace_sessions::Session};

use crate::{
    device::DeviceKind,
    machine::{AdapterOptions, Machine, MachineOptions},
    trace::{self, TracedEvent},
};

/// Frames that each direction of the link queues for a receiver without a free buffer.
const CAPACITY: usize = 1 << 13;

/// Options of an external host.
#[derive(Clone, Debug)]
pub struct Options {
    pub mac: [u8; 6],
    /// The host's addresses and their prefix lengths; the first one is [`Machine::address`].
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest IP packet of the link: 1500, or 9000 with jumbo frames.
    pub mtu: u16,
    /// RoCE path MTU, limited by the link's MTU: up to 1024 with an MTU of 1500, 4096 with 9000.
    pub path_mtu: u32,
    /// Faults of sent and of received frames.
    pub faults: [Faults; 2],
    /// Seed of the faults.
    pub seed: u64,
    pub capture: Option<PathBuf>,
    pub verifier: bool,
    /// The session by which the host records the driver's trace; `None` for no record.
    pub trace: Option<Session>,
    /// Registry values of the adapter.
    pub keywords: Vec<(&'static str, Keyword)>,
    pub device: DeviceKind,
}

impl Options {
    /// Returns options for a link without faults and without jumbo frames, with the verifier on.
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
            trace: None,
            keywords: Vec::new(),
            device: DeviceKind::Simulated,
        }
    }

    /// Returns the options with jumbo frames and the largest path MTU.
    #[must_use]
    pub fn jumbo(self) -> Self {
        Self { mtu: 9000, path_mtu: 4096, ..self }
    }
}

/// The host and its link. Drop disconnects the link and ends the host with all its threads.
///
/// The thread that creates it is the simulation's [harness thread](Sim): one external host per thread.
pub struct ExternalHost {
    machine: Machine,
    tunnel: Tunnel,
    wire: Arc<Wire>,
    /// Faults of the link while the cable is plugged in.
    faults: [Faults; 2],
    capture: Option<Capture>,
    // Dropped last: it ends the threads of the host.
    sim: Sim,
}

impl ExternalHost {
    /// Creates a host and loads the driver `image`, without starting it. `datagrams` carries the host's frames.
    ///
    /// # Errors
    /// The image cannot be loaded, the capture cannot be created, or the tunnel cannot be opened.
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
        let adapter = AdapterOptions {
            device: options.device.clone(),
            ..AdapterOptions::new(options.mac, options.addresses.clone())
        };
        let machine = MachineOptions {
            mtu: options.mtu,
            path_mtu: options.path_mtu,
            verifier: options.verifier,
            keywords: options.keywords.clone(),
            discovery: Discovery::OnWire,
            ..MachineOptions::new("viordma", vec![adapter])
        };
        let mut machine = Machine::new(&mut sim, image, &machine)?;
        if let Some(session) = options.trace {
            machine.host().start_trace(trace::provider(), session);
        }
        machine.adapters_mut()[0].connect(wire.port(0))?;
        let tunnel = open_tunnel(sim.world(), wire.port(1), datagrams).context("cannot open the tunnel")?;
        Ok(Self { machine, tunnel, wire, faults: options.faults, capture, sim })
    }

    /// Starts the driver, which connects the host to the link.
    ///
    /// # Errors
    /// The driver or its adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        self.machine.start()
    }

    /// Halts the adapter, unloads the driver, lets the verifier check for leaks, and ends the capture.
    ///
    /// # Errors
    /// The adapter cannot be halted, or the capture cannot be written.
    pub fn stop(&mut self) -> Result<()> {
        self.machine.stop()?;
        if let Some(capture) = self.capture.take() {
            capture.finish().context("cannot write the capture")?;
        }
        Ok(())
    }

    /// Returns the host with its driver.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns what the host has recorded of the driver's trace, by time.
    #[must_use]
    pub fn trace(&self) -> Vec<TracedEvent> {
        TracedEvent::of(&[&**self.machine.host()])
    }

    /// Returns the link: end 0 is the host, end 1 the tunnel.
    #[must_use]
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// Unplugs the cable, or plugs it in again: without it, all frames are lost, and a simulated device reports that its link
    /// is down.
    pub fn set_link(&self, up: bool) {
        let none = Faults { loss: 1.0, ..Faults::NONE };
        for (end, faults) in self.faults.into_iter().enumerate() {
            self.wire.set_faults(end, if up { faults } else { none });
        }
        self.machine.adapters()[0].set_link(up);
    }

    /// Returns the counters of the tunnel's socket.
    #[must_use]
    pub fn tunnel(&self) -> TunnelCounters {
        self.tunnel.counters()
    }

    /// Returns the time since the start of the simulation.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.sim.now())
    }

    /// Returns the violations that the verifier has found so far, as text.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.sim.verdict().violations.iter().map(ToString::to_string).collect()
    }
}
