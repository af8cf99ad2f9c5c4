// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts with viordma and consumer drivers: two hosts with an adapter each, or one host with two.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use device_sim::{
    Nic, NicOptions,
    link::{Capture, Faults, Lost, Wire, WireOptions},
};
use ndis_sim::{IpHost as _, Keyword, Miniport, NdisHost as _};
use ndk_abi::nt::NT_SUCCESS;
use nt_sim::{
    ClockKind, Host, Sim,
    driver::{Driver, DriverOptions},
    host::HostOptions,
};

use super::{
    limit::Limit,
    options::Image,
    script::{Role, Variables},
};
use crate::{
    exit::Exit,
    filter_image::{FilterOptions, Filters},
    machine, missing_imports,
};

/// How the hosts are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub one_host: bool,
    pub seed: u64,
    pub real_time: bool,
    pub faults: Faults,
    pub path_mtu: u32,
    pub capture: Option<std::path::PathBuf>,
    /// Registry values of the adapters: of all, or of that of one role.
    pub keywords: Vec<(Option<Role>, String, String)>,
    /// Interface indices other than those that Windows gives.
    pub interfaces: Vec<(Role, u32)>,
    /// The filters above the adapters.
    pub filters: FilterOptions,
    /// The part of the run that goes on.
    pub limit: Limit,
}

/// The hosts, and the wire between their adapters.
pub struct Bed {
    hosts: Vec<Arc<Host>>,
    /// The adapter of each role, the server's first.
    ports: Vec<Port>,
    /// In the order in which they were loaded: viordma, then the consumers, host by host.
    drivers: Vec<(Arc<Host>, Arc<Driver>)>,
    filters: Vec<(Arc<Host>, Filters)>,
    wire: Arc<Wire>,
    capture: Option<Capture>,
    limit: Limit,
    // Dropped last: it ends the threads of the hosts.
    sim: Sim,
}

/// An adapter.
struct Port {
    host: Arc<Host>,
    nic: Arc<Nic>,
    /// IPv4 and IPv6.
    addresses: [IpAddr; 2],
    miniport: Option<Miniport>,
}

impl Bed {
    /// Sets up hosts and wire, and loads viordma and the consumers without starting them.
    ///
    /// # Errors
    /// With exit code 2, if an image cannot be loaded.
    pub fn new(viordma: &Path, consumers: &[Image], setup: &Setup) -> Result<Self> {
        let (clock, wire) = if setup.real_time {
            (ClockKind::Threaded, WireOptions::immediate())
        } else {
            (ClockKind::Deterministic { seed: setup.seed }, WireOptions::ten_gigabit())
        };
        let mut sim = ndis_sim::builder().clock(clock).seed(setup.seed).build();
        let wire = Wire::new(wire.with_seed(setup.seed).with_faults(setup.faults));
        let names: &[&str] = if setup.one_host { &["alpha"] } else { &["alpha", "beta"] };
        let hosts: Vec<_> = names.iter().map(|name| sim.add_host(HostOptions::new(name))).collect();
        let mut ports = Vec::new();
        for number in 0..2_u8 {
            let host = &hosts[usize::from(number) % hosts.len()];
            ports.push(port(host, number, setup)?);
        }
        ndis_sim::bus::join_nics(&wire, &ports[0].nic, &ports[1].nic);
        let capture = match &setup.capture {
            Some(path) => {
                let capture = Capture::create(path, &["server", "client"], Lost::Marked);
                Some(capture.with_context(|| format!("cannot write {}", path.display()))?)
            }
            None => None,
        };
        if let Some(capture) = &capture {
            wire.capture(capture.clone());
        }
        let mut drivers = Vec::new();
        for (role, name, value) in &setup.keywords {
            let of_role = |number: usize| role.is_none_or(|role| Role::ALL[number] == role);
            for (_, port) in ports.iter().enumerate().filter(|(number, _)| of_role(*number)) {
                port.host.interface(&port.nic).set_keyword(name, Keyword::Text(value.clone()));
            }
        }
        set_indices(&ports, &setup.interfaces)?;
        for host in &hosts {
            drivers.push((host.clone(), load(host, viordma, DriverOptions::new("viordma"))?));
            for image in consumers {
                let options = DriverOptions::new(&image.service).tolerate(image.tolerate);
                let driver = load(host, &image.path, options)?;
                missing_imports::check(driver.image(), image.allow_missing)?;
                drivers.push((host.clone(), driver));
            }
        }
        let load = |host: &Arc<Host>| setup.filters.load(host).map(|filters| (host.clone(), filters));
        let filters = hosts.iter().map(load).collect::<Result<_>>()?;
        Ok(Self { hosts, ports, drivers, filters, wire, capture, limit: setup.limit.clone(), sim })
    }

    /// Returns the sentences that name imports of consumers that the simulated kernel does not have.
    #[must_use]
    pub fn missing_imports(&self) -> BTreeSet<String> {
        self.drivers.iter().filter_map(|(_, driver)| missing_imports::sentence(driver.image())).collect()
    }

    /// Starts the filters, viordma and the adapters, then the consumers.
    ///
    /// # Errors
    /// A driver or an adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        let drivers = self.drivers.clone();
        let (viordma, consumers): (Vec<_>, Vec<_>) =
            drivers.into_iter().partition(|(_, driver)| driver.service() == "viordma");
        for (host, filters) in &self.filters {
            self.limit.begin(format!("DriverEntry of the filters of {}", host.name()));
            filters.start(host)?;
        }
        for (host, driver) in viordma {
            self.start_driver(&host, driver)?;
        }
        for port in &mut self.ports {
            self.limit.begin(format!("the start of an adapter of {}", port.host.name()));
            port.miniport = Some(Miniport::start_on(&port.host, &port.nic)?);
        }
        for (host, filters) in &self.filters {
            filters.check_attached(host)?;
        }
        consumers.into_iter().try_for_each(|(host, driver)| self.start_driver(&host, driver))
    }

    fn start_driver(&self, host: &Arc<Host>, driver: Arc<Driver>) -> Result<()> {
        self.limit.begin(format!("DriverEntry of {} on {}", driver.service(), host.name()));
        start(host, driver)
    }

    fn unload_driver(&self, host: &Arc<Host>, driver: Arc<Driver>) -> Result<()> {
        self.limit.begin(format!("DriverUnload of {} on {}", driver.service(), host.name()));
        unload(host, driver)
    }

    /// Unloads the consumers in the reverse order, halts the adapters, unloads viordma, and ends the capture. Hosts that
    /// are dead are left out.
    ///
    /// # Errors
    /// A host dies of it, or the capture cannot be written.
    pub fn stop(&mut self) -> Result<()> {
        let (viordma, consumers): (Vec<_>, Vec<_>) =
            self.drivers.drain(..).partition(|(_, driver)| driver.service() == "viordma");
        let mut outcome = Ok(());
        for (host, driver) in consumers.into_iter().rev() {
            outcome = outcome.and(self.unload_driver(&host, driver));
        }
        let is_stuck = self.sim.world().clock.is_stuck();
        for port in &mut self.ports {
            self.limit.begin(format!("the halt of an adapter of {}", port.host.name()));
            if let Some(miniport) = port.miniport.take()
                && !port.host.is_dead()
                && !is_stuck
            {
                outcome = outcome.and(miniport.halt().map_err(Into::into));
            }
        }
        for (host, driver) in viordma.into_iter().rev() {
            outcome = outcome.and(self.unload_driver(&host, driver));
        }
        for (host, filters) in &self.filters {
            self.limit.begin(format!("DriverUnload of the filters of {}", host.name()));
            outcome = outcome.and(filters.unload(host));
        }
        if let Some(capture) = self.capture.take() {
            capture.finish().context("cannot write the capture")?;
        }
        outcome
    }

    /// Returns the values of the roles' variables.
    #[must_use]
    pub fn variables(&self) -> Variables {
        let mut variables = Variables::default();
        for (role, port) in Role::ALL.into_iter().zip(&self.ports) {
            let [v4, v6] = port.addresses;
            variables.add_role(role, v4, v6, port.host.interface(&port.nic).index());
        }
        variables
    }

    /// Returns the host of a role.
    #[must_use]
    pub fn host(&self, role: Role) -> &Arc<Host> {
        let number = usize::from(role == Role::Client);
        &self.ports[number].host
    }

    #[must_use]
    pub fn hosts(&self) -> &[Arc<Host>] {
        &self.hosts
    }

    #[must_use]
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Returns the sums of the adapters' counters.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        // A simulation in which no thread can continue answers no request.
        if self.sim.world().clock.is_stuck() {
            return counters;
        }
        for port in self.ports.iter().filter(|port| !port.host.is_dead()) {
            for (name, value) in port.miniport.iter().flat_map(machine::counters) {
                *counters.entry(name).or_default() += value;
            }
        }
        counters
    }
}

fn port(host: &Arc<Host>, number: u8, setup: &Setup) -> Result<Port> {
    let mut options = NicOptions::new([0x02, 0, 0, 0, 0, number + 1]);
    let mtu = machine::mtu_for(setup.path_mtu)?;
    options.mtu = mtu;
    let nic = host.plug(options);
    let addresses: [IpAddr; 2] = [
        IpAddr::from([10, 0, 0, number + 1]),
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number) + 1]),
    ];
    for (address, prefix) in addresses.into_iter().zip([24, 64]) {
        host.add_address_on(&nic, address, prefix);
    }
    let keywords = [("*JumboPacket", u32::from(mtu) + 14), ("*NetworkDirectRoCEFrameSize", setup.path_mtu)];
    for (name, value) in keywords {
        host.set_keyword(name, Keyword::Text(value.to_string()));
    }
    Ok(Port { host: host.clone(), nic, addresses, miniport: None })
}

/// Sets the interface indices of roles.
fn set_indices(ports: &[Port], indices: &[(Role, u32)]) -> Result<()> {
    for &(role, index) in indices {
        let port = &ports[usize::from(role == Role::Client)];
        let others = ports
            .iter()
            .filter(|other| Arc::ptr_eq(&other.host, &port.host) && !Arc::ptr_eq(&other.nic, &port.nic));
        if others.map(|other| other.host.interface(&other.nic).index()).any(|other| other == index) {
            return Err(Exit::usage(format!(
                "--interface: both adapters of {} would have the index {index}",
                port.host.name()
            )));
        }
        port.host.set_interface_index(&port.nic, index);
    }
    Ok(())
}

fn load(host: &Arc<Host>, path: &Path, options: DriverOptions) -> Result<Arc<Driver>> {
    host.load_driver(path, options).map_err(|error| match error.to_string() {
        text if text.contains(&path.display().to_string()) => Exit::usage(text),
        text => Exit::usage(format!("{}: {text}", path.display())),
    })
}

fn start(host: &Arc<Host>, driver: Arc<Driver>) -> Result<()> {
    let service = driver.service().to_owned();
    let status = host.spawn("DriverEntry", move || driver.start()).join()?;
    ensure!(NT_SUCCESS(status), "DriverEntry of {service} on {} returned {status:#010x}", host.name());
    Ok(())
}

fn unload(host: &Arc<Host>, driver: Arc<Driver>) -> Result<()> {
    if host.is_dead() || driver.state() != nt_sim::driver::DriverState::Started {
        return Ok(());
    }
    host.spawn("DriverUnload", move || driver.unload()).join()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bed(viordma: &Path, one_host: bool, interfaces: &[(Role, u32)]) -> Result<Bed> {
        let keyword = |role, name: &str, value: &str| -> (Option<Role>, String, String) {
            (role, name.into(), value.into())
        };
        let setup = Setup {
            one_host,
            seed: 1,
            real_time: false,
            faults: Faults::NONE,
            path_mtu: 1024,
            capture: None,
            keywords: vec![
                keyword(Some(Role::Client), "VlanID", "7"),
                keyword(None, "*PriorityVLANTag", "2"),
            ],
            interfaces: interfaces.to_vec(),
            filters: FilterOptions::default(),
            limit: Limit::default(),
        };
        Bed::new(viordma, &[], &setup)
    }

    #[test]
    fn keywords_and_indices_are_those_of_the_adapter_of_their_role() {
        let Some(viordma) = crate::image() else { return };
        for one_host in [false, true] {
            let bed = bed(&viordma, one_host, &[(Role::Client, 77)]).unwrap();
            let of = |name| {
                bed.ports.iter().map(move |port| port.host.keyword_of(&port.nic, name)).collect::<Vec<_>>()
            };
            let text = |value: &str| Some(Keyword::Text(value.to_owned()));
            assert_eq!(of("VlanID"), [None, text("7")]);
            assert_eq!(of("*PriorityVLANTag"), [text("2"), text("2")]);
            let variables = bed.variables();
            let index = |role: &str| variables.expand(&format!("${{{role}.interface}}")).unwrap();
            assert_eq!([index("server"), index("client")], ["4", "77"]);
        }
        let error = bed(&viordma, true, &[(Role::Client, 4)]).err().unwrap();
        assert!(error.to_string().contains("both adapters of alpha would have the index 4"), "{error}");
        assert!(bed(&viordma, false, &[(Role::Client, 4)]).is_ok());
    }
}
