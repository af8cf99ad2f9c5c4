// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts, each with an Ethernet driver and a NIC, and the wire between them.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use device_sim::{
    Nic, NicOptions, Quirks,
    link::{Capture, Lost, Wire, WireOptions},
    virtio_net::Features,
};
use ndis_sim::{Keyword, Miniport, NdisHost as _};
use ndk_abi::nt::NT_SUCCESS;
use nt_sim::{
    ClockKind, Event, Host, Sim, Tolerances,
    driver::{Driver, DriverOptions, DriverState},
    host::HostOptions,
};

use crate::{
    exit::Exit,
    filter_image::{FilterOptions, Filters},
};

/// A driver's image.
#[derive(Clone, Debug)]
pub struct Image {
    pub path: PathBuf,
    pub service: String,
    pub tolerate: Tolerances,
}

/// How the hosts are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub real_time: bool,
    pub verifier: bool,
    pub capture: Option<PathBuf>,
    pub keywords: Vec<Setting>,
    /// The filters above the adapters.
    pub filters: FilterOptions,
}

/// The names of the hosts.
pub const HOSTS: [&str; 2] = ["alpha", "beta"];

/// A registry value of a host's adapter.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The number of the host.
    pub side: usize,
    pub name: String,
    pub value: String,
}

/// A host, its driver and its NIC.
pub struct Side {
    pub host: Arc<Host>,
    pub nic: Arc<Nic>,
    pub driver: Arc<Driver>,
    filters: Filters,
    miniport: Option<Miniport>,
    /// The machine is turned off: its driver is not unloaded.
    is_off: bool,
}

/// The hosts, and the wire between them.
pub struct TwoHosts {
    pub sides: [Side; 2],
    keywords: Vec<Setting>,
    capture: Option<Capture>,
    // Dropped last: it ends the threads of the hosts.
    sim: Sim,
}

impl Setup {
    /// Returns a setup without verifier, capture, keywords and filters.
    #[must_use]
    pub fn new(real_time: bool) -> Self {
        let (capture, keywords, filters) = (None, Vec::new(), FilterOptions::default());
        Self { seed: 1, real_time, verifier: false, capture, keywords, filters }
    }
}

impl TwoHosts {
    /// Sets up hosts and wire, and loads a driver on each without starting it.
    ///
    /// # Errors
    /// An image cannot be loaded, or the capture cannot be created.
    pub fn new(images: [&Image; 2], setup: &Setup) -> Result<Self> {
        let (clock, wire) = if setup.real_time {
            (ClockKind::Threaded, WireOptions::immediate())
        } else {
            (ClockKind::Deterministic { seed: setup.seed }, WireOptions::ten_gigabit())
        };
        let mut sim = ndis_sim::builder().clock(clock).seed(setup.seed).build();
        let wire = Wire::new(wire.with_seed(setup.seed));
        let [first, second] = images;
        let first = Side::new(&mut sim, HOSTS[0], 1, first, setup)?;
        let second = Side::new(&mut sim, HOSTS[1], 2, second, setup)?;
        for Setting { side, name, value } in &setup.keywords {
            [&first, &second][*side].host.set_keyword(name, Keyword::Text(value.clone()));
        }
        ndis_sim::bus::join_nics(&wire, &first.nic, &second.nic);
        let capture = match &setup.capture {
            Some(path) => Some(Capture::create(path, &HOSTS, Lost::Marked).context("the capture")?),
            None => None,
        };
        if let Some(capture) = &capture {
            wire.capture(capture.clone());
        }
        Ok(Self { sides: [first, second], keywords: setup.keywords.clone(), capture, sim })
    }

    /// Starts drivers and adapters.
    ///
    /// # Errors
    /// A driver or an adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        for side in &mut self.sides {
            side.filters.start(&side.host)?;
            let driver = side.driver.clone();
            let status = side.host.spawn("DriverEntry", move || driver.start()).join()?;
            ensure!(NT_SUCCESS(status), "DriverEntry of {} returned {status:#010x}", side.driver.service());
            side.start_adapter()?;
        }
        Ok(())
    }

    /// Halts the adapters that run, unloads the drivers, and says what the verifier found.
    ///
    /// # Errors
    /// An adapter cannot be halted, or there are violations.
    pub fn stop(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for side in &mut self.sides {
            outcome = outcome.and(side.stop());
        }
        if let Some(capture) = self.capture.take() {
            capture.finish().context("the capture")?;
        }
        let violations: Vec<_> = self.violations();
        ensure!(violations.is_empty(), "{}", violations.join("\n"));
        outcome
    }

    /// Returns a sentence about the first registry value that was set, and that the driver of its host has not read.
    #[must_use]
    pub fn unread_keywords(&self) -> Option<String> {
        let is_unread = |set: &&Setting| !self.sides[set.side].host.has_read_keyword(&set.name);
        let Setting { side, name, .. } = self.keywords.iter().find(is_unread)?;
        Some(format!(
            "{} on {} does not read the keyword '{name}'",
            self.sides[*side].driver.service(),
            HOSTS[*side]
        ))
    }

    /// Returns an event of the simulation.
    #[must_use]
    pub fn event(&self) -> Event {
        self.sim.event()
    }

    /// Returns the violations that the verifier found so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.sim.verdict().violations.iter().map(ToString::to_string).collect()
    }
}

impl Side {
    fn new(sim: &mut Sim, name: &str, number: u8, image: &Image, setup: &Setup) -> Result<Self> {
        let host = sim.add_host(HostOptions { verifier: setup.verifier, ..HostOptions::new(name) });
        // What drivers of others leave to Windows, and what QEMU's devices take from them.
        host.set_bus_mastering(true);
        host.allow_long_mdls(true);
        let quirks = Quirks { lenient: true, ..Quirks::default() };
        // As QEMU's device, which not every driver of others accepts with ACCESS_PLATFORM.
        let features = Features::DEFAULT.without(Features::ACCESS_PLATFORM);
        let nic = host.plug(NicOptions { features, quirks, ..NicOptions::new([0x02, 0, 0, 0, 0, number]) });
        let options = DriverOptions::new(&image.service).tolerate(image.tolerate);
        let driver = host
            .load_driver(&image.path, options)
            .map_err(|error| Exit::usage(format!("{}: {error}", image.path.display())))?;
        let filters = setup.filters.load(&host)?;
        Ok(Self { host, nic, driver, filters, miniport: None, is_off: false })
    }

    /// Starts the adapter.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_adapter(&mut self) -> Result<()> {
        let started = Miniport::start_on(&self.host, &self.nic);
        self.miniport = Some(started.with_context(|| format!("the adapter of {}", self.driver.service()))?);
        self.filters.check_attached(&self.host)
    }

    /// Returns the adapter.
    ///
    /// # Errors
    /// It does not run.
    pub fn miniport(&self) -> Result<Miniport> {
        self.miniport.clone().context("the adapter is halted")
    }

    /// Shuts the adapter down, and turns the machine off.
    ///
    /// # Errors
    /// The host dies of it.
    pub fn shut_down(&mut self) -> Result<()> {
        self.miniport.take().context("the adapter is halted")?.shut_down()?;
        self.is_off = true;
        self.host.kill();
        Ok(())
    }

    /// Takes the device away.
    ///
    /// # Errors
    /// The host dies of it.
    pub fn remove_device(&mut self) -> Result<()> {
        Ok(self.miniport.take().context("the adapter is halted")?.surprise_remove()?)
    }

    /// Halts the adapter.
    ///
    /// # Errors
    /// The host dies of it.
    pub fn halt(&mut self) -> Result<()> {
        match self.miniport.take() {
            Some(miniport) if !self.host.is_dead() => Ok(miniport.halt()?),
            _ => Ok(()),
        }
    }

    fn stop(&mut self) -> Result<()> {
        self.halt()?;
        if !self.is_off && !self.host.is_dead() && self.driver.state() == DriverState::Started {
            let driver = self.driver.clone();
            self.host.spawn("DriverUnload", move || driver.unload()).join()?;
        }
        if self.is_off { Ok(()) } else { self.filters.unload(&self.host) }
    }
}
