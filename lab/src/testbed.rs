// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulated hosts with virtio NICs and the driver, and a testbed of two NICs that a link connects.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use device_sim::{
    Nic, NicOptions, PciFunction, Quirks,
    link::{Capture, Faults, Lost, Port, Wire, WireOptions},
    virtio_net::Features,
};
use ndis_sim::{IpHost as _, Keyword, LogEntry, Miniport, NdisHost as _, NdkAdapter, netio::Discovery};
use ndk_abi::nt::NT_SUCCESS;
use ndk_consumer::Adapter;
use nt_sim::{
    ClockKind, Driver, DriverOptions, Event, Host, JoinHandle, Sim,
    driver::DriverState,
    host::{HostOptions, TimerResolution, WatchdogLimits},
};

use crate::{
    device::{Device, DeviceKind},
    os::SimOs,
};

/// Largest size of the RoCEv2 headers and trailers that the Ethernet MTU includes. (rocev2 §5)
const OVERHEAD: u32 = 96;

/// Vendor OID: the counters of the driver's engine, by name.
pub(crate) const OID_VIORDMA_COUNTERS: u32 = 0xff5d_0101;
/// Vendor OID: the trace of the driver's engine.
pub(crate) const OID_VIORDMA_TRACE: u32 = 0xff5d_0102;
const COUNTER_NAME: usize = 32;
const COUNTER_SIZE: usize = COUNTER_NAME + 8;

/// Options of a testbed. The default is virtual time, no faults, conforming devices, verifier on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of the link's faults, and of the order of events in virtual time.
    pub seed: u64,
    /// Runs in real time, with racing threads, instead of in virtual time.
    pub real_time: bool,
    pub faults: Faults,
    /// Frames that a direction of the link holds before the sender has to wait.
    pub capacity: usize,
    /// RoCE path MTU; the MTU of the NICs is set accordingly.
    pub path_mtu: u32,
    pub capture: Option<PathBuf>,
    pub verifier: bool,
    pub timers: TimerResolution,
    pub watchdog: WatchdogLimits,
    /// Processors of each host.
    pub processors: u32,
    /// Faults of the first host's NIC.
    pub quirks: Quirks,
    /// Features that both NICs offer, unless QEMU is the device.
    pub features: Features,
    /// Queue pairs of each NIC, likewise; they also need [`Features::MQ`].
    pub pairs: u16,
    /// Registry values of the adapter, on both hosts.
    pub keywords: Vec<(&'static str, Keyword)>,
    /// Subnets and their prefix lengths. The hosts get the addresses that end with 1 and 2 in each;
    /// [`Machine::address`] is the address in the first subnet.
    pub subnets: Vec<(IpAddr, u8)>,
    /// How the hosts resolve each other's link address.
    pub discovery: Discovery,
    /// One host with both NICs, instead of two hosts.
    pub one_host: bool,
    /// The device of each NIC. QEMU's needs real time.
    pub device: DeviceKind,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            real_time: false,
            faults: Faults::NONE,
            capacity: WireOptions::immediate().capacity,
            path_mtu: 4096,
            capture: None,
            verifier: true,
            timers: TimerResolution::Exact,
            watchdog: WatchdogLimits::default(),
            processors: 2,
            quirks: Quirks::default(),
            features: Features::DEFAULT,
            pairs: 1,
            keywords: Vec::new(),
            subnets: vec![(Ipv4Addr::new(10, 0, 0, 0).into(), 24)],
            discovery: Discovery::Simulated,
            one_host: false,
            device: DeviceKind::Simulated,
        }
    }
}

/// Options of a NIC of a machine.
#[derive(Clone, Debug)]
pub struct AdapterOptions {
    pub mac: [u8; 6],
    /// Its addresses and their prefix lengths; at least one.
    pub addresses: Vec<(IpAddr, u8)>,
    pub device: DeviceKind,
    pub quirks: Quirks,
    /// Features that the NIC offers, unless QEMU is the device.
    pub features: Features,
    /// Queue pairs of the NIC, likewise.
    pub pairs: u16,
}

impl AdapterOptions {
    /// A simulated NIC with all features.
    #[must_use]
    pub fn new(mac: [u8; 6], addresses: Vec<(IpAddr, u8)>) -> Self {
        let (device, quirks) = (DeviceKind::Simulated, Quirks::default());
        Self { mac, addresses, device, quirks, features: Features::DEFAULT, pairs: 1 }
    }
}

/// Options of a machine.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    pub name: &'static str,
    /// Its NICs; at least one.
    pub adapters: Vec<AdapterOptions>,
    /// Largest IP packet of the link.
    pub mtu: u16,
    /// RoCE path MTU, limited by `mtu`.
    pub path_mtu: u32,
    pub verifier: bool,
    pub timers: TimerResolution,
    pub watchdog: WatchdogLimits,
    pub processors: u32,
    /// Registry values of the adapters.
    pub keywords: Vec<(&'static str, Keyword)>,
    pub discovery: Discovery,
}

impl MachineOptions {
    /// A machine with the verifier and two processors, on a link of path MTU 4096.
    #[must_use]
    pub fn new(name: &'static str, adapters: Vec<AdapterOptions>) -> Self {
        Self {
            name,
            adapters,
            mtu: 4192,
            path_mtu: 4096,
            verifier: true,
            timers: TimerResolution::Exact,
            watchdog: WatchdogLimits::default(),
            processors: 2,
            keywords: Vec::new(),
            discovery: Discovery::Simulated,
        }
    }
}

/// A host with its NICs and its driver.
pub struct Machine {
    host: Arc<Host>,
    driver: Arc<Driver>,
    adapters: Vec<MachineAdapter>,
}

/// A NIC of a machine, and the driver's adapter on it.
pub struct MachineAdapter {
    host: Arc<Host>,
    device: Device,
    address: IpAddr,
    miniport: Option<Miniport>,
}

/// Counters of the link, the sum of both directions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct WireFigures {
    pub frames: u64,
    pub bytes: u64,
    pub lost: u64,
    pub delayed: u64,
    pub duplicated: u64,
    pub corrupted: u64,
}

/// Two NICs, of two hosts or of one, and the link between them.
pub struct Testbed {
    /// Two, or one with both NICs.
    machines: Vec<Machine>,
    wire: Arc<Wire>,
    capture: Option<Capture>,
    counters: BTreeMap<String, u64>,
    // Dropped last: it ends the threads of the hosts.
    sim: Sim,
}

impl WireFigures {
    /// Returns the counters of a wire, the sum of both directions.
    #[must_use]
    pub fn of(wire: &Wire) -> Self {
        let [there, back] = [0, 1].map(|from| wire.counters(from));
        Self {
            frames: there.sent + back.sent,
            bytes: there.sent_bytes + back.sent_bytes,
            lost: there.lost + back.lost,
            delayed: there.delayed + back.delayed,
            duplicated: there.duplicated + back.duplicated,
            corrupted: there.corrupted + back.corrupted,
        }
    }
}

impl Testbed {
    /// Creates the hosts and loads the driver `image` on each, without starting it.
    ///
    /// # Errors
    /// The image cannot be loaded, the capture cannot be created, or the options are invalid.
    pub fn new(image: &Path, options: &Options) -> Result<Self> {
        let is_simulated = matches!(options.device, DeviceKind::Simulated);
        ensure!(is_simulated || options.real_time, "QEMU's device needs real time");
        // What simulated discovery finds is at the end of a link in this process.
        let discovery = if is_simulated { options.discovery } else { Discovery::OnWire };
        let (clock, wire) = if options.real_time {
            (ClockKind::Threaded, WireOptions::immediate())
        } else {
            (ClockKind::Deterministic { seed: options.seed }, WireOptions::ten_gigabit())
        };
        let mut sim = ndis_sim::builder().clock(clock).build();
        let wire = WireOptions { capacity: options.capacity, ..wire };
        let wire = Wire::new(wire.with_seed(options.seed).with_faults(options.faults));
        let mtu = mtu_for(options.path_mtu)?;
        let adapter = |number: u8| {
            let of_subnet = |&(subnet, prefix): &(IpAddr, u8)| (host_address(subnet, number + 1), prefix);
            AdapterOptions {
                mac: [0x02, 0, 0, 0, 0, number + 1],
                addresses: options.subnets.iter().map(of_subnet).collect(),
                device: options.device.clone(),
                quirks: if number == 0 { options.quirks } else { Quirks::default() },
                features: options.features,
                pairs: options.pairs,
            }
        };
        let hosts = if options.one_host {
            vec![("alpha", vec![adapter(0), adapter(1)])]
        } else {
            vec![("alpha", vec![adapter(0)]), ("beta", vec![adapter(1)])]
        };
        let machines = hosts.into_iter().map(|(name, adapters)| {
            let machine = MachineOptions {
                name,
                adapters,
                mtu,
                path_mtu: options.path_mtu,
                verifier: options.verifier,
                timers: options.timers,
                watchdog: options.watchdog,
                processors: options.processors,
                keywords: options.keywords.clone(),
                discovery,
            };
            Machine::new(&mut sim, image, &machine)
        });
        let mut machines = machines.collect::<Result<Vec<_>>>()?;
        let adapters = machines.iter_mut().flat_map(|machine| &mut machine.adapters);
        for (end, adapter) in adapters.enumerate() {
            adapter.connect(wire.port(end))?;
        }
        let capture = match &options.capture {
            Some(path) => {
                let capture = Capture::create(path, &["alpha", "beta"], Lost::Marked);
                Some(capture.with_context(|| format!("cannot write {}", path.display()))?)
            }
            None => None,
        };
        if let Some(capture) = &capture {
            wire.capture(capture.clone());
        }
        Ok(Self { machines, wire, capture, counters: BTreeMap::new(), sim })
    }

    /// Starts the driver on both hosts: `DriverEntry`, then the adapter.
    ///
    /// # Errors
    /// A driver or its adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        self.machines.iter_mut().try_for_each(Machine::start)
    }

    /// Halts the adapters, unloads the drivers of hosts that are alive, lets the verifier check for leaks, and ends the
    /// capture.
    ///
    /// # Errors
    /// An adapter cannot be halted, or the capture cannot be written.
    pub fn stop(&mut self) -> Result<()> {
        for machine in &mut self.machines {
            for (name, value) in machine.counters() {
                *self.counters.entry(name).or_default() += value;
            }
            machine.stop()?;
        }
        if let Some(capture) = self.capture.take() {
            capture.finish().context("cannot write the capture")?;
        }
        Ok(())
    }

    /// Returns the two hosts.
    ///
    /// # Panics
    /// When there is one.
    #[must_use]
    pub fn machines(&self) -> [&Machine; 2] {
        let [alpha, beta] = &self.machines[..] else { panic!("a testbed of two hosts") };
        [alpha, beta]
    }

    /// Returns the two adapters that the link connects.
    #[must_use]
    pub fn adapters(&self) -> [&MachineAdapter; 2] {
        let mut adapters = self.machines.iter().flat_map(|machine| &machine.adapters);
        [adapters.next(), adapters.next()].map(|adapter| adapter.expect("a link has two ends"))
    }

    pub fn machine_mut(&mut self, number: usize) -> &mut Machine {
        &mut self.machines[number]
    }

    #[must_use]
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    #[must_use]
    pub fn event(&self) -> Event {
        self.sim.event()
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

    /// Returns the event log entries of both drivers: host, event number, data.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let of = |machine: &Machine| {
            let name = machine.host.name().to_owned();
            machine
                .event_log()
                .into_iter()
                .map(move |entry| format!("{name}: event {} {:?}", entry.code & 0xffff, entry.data))
        };
        self.machines.iter().flat_map(of).collect()
    }

    /// Returns the counters of the link, the sum of both directions.
    #[must_use]
    pub fn wire_figures(&self) -> WireFigures {
        WireFigures::of(&self.wire)
    }

    /// Returns the sum of both drivers' counters, read when the drivers were stopped.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.counters.clone()
    }
}

/// Returns the smallest MTU that the path MTU needs, but at least 1500.
pub(crate) fn mtu_for(path_mtu: u32) -> Result<u16> {
    Ok(u16::try_from(path_mtu + OVERHEAD)?.max(1500))
}

/// Returns the address of a subnet that ends with `number`.
fn host_address(subnet: IpAddr, number: u8) -> IpAddr {
    match subnet {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | u32::from(number)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | u128::from(number)).into(),
    }
}

impl Machine {
    /// Adds a host to `sim`, with NICs that are not connected, and loads the driver `image` without starting it.
    ///
    /// # Errors
    /// The image cannot be loaded, or `options` has no adapter, or an adapter no address.
    pub fn new(sim: &mut Sim, image: &Path, options: &MachineOptions) -> Result<Self> {
        let host = sim.add_host(HostOptions {
            verifier: options.verifier,
            timers: options.timers,
            watchdog: options.watchdog,
            cpus: options.processors,
            ..HostOptions::new(options.name)
        });
        host.set_discovery(options.discovery);
        let mut adapters = Vec::new();
        for adapter in &options.adapters {
            let mut nic = NicOptions::new(adapter.mac);
            nic.mtu = options.mtu;
            nic.quirks = adapter.quirks;
            nic.features = adapter.features;
            nic.pairs = adapter.pairs;
            // One for each queue, and one for the configuration.
            nic.vectors = nic.vectors.max(adapter.pairs.saturating_mul(2).saturating_add(1));
            let device = Device::plug(&host, &adapter.device, nic)?;
            let function = device.function();
            for &(address, prefix) in &adapter.addresses {
                host.add_address_on(&function, address, prefix);
            }
            let address = adapter.addresses.first().context("an adapter needs an address")?.0;
            adapters.push(MachineAdapter { host: host.clone(), device, address, miniport: None });
        }
        ensure!(!adapters.is_empty(), "a machine needs an adapter");
        host.set_keyword("*JumboPacket", Keyword::Text((u32::from(options.mtu) + 14).to_string()));
        host.set_keyword("*NetworkDirectRoCEFrameSize", Keyword::Text(options.path_mtu.to_string()));
        for (name, value) in &options.keywords {
            host.set_keyword(name, value.clone());
        }
        let driver = host.load_driver(image, DriverOptions::new("viordma"));
        let driver = driver.with_context(|| format!("cannot load {}", image.display()))?;
        if let [missing, ..] = driver.image().missing_imports() {
            bail!("{}: the simulated kernel does not have {missing}", image.display());
        }
        Ok(Self { host, driver, adapters })
    }

    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    #[must_use]
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Returns the adapters, in the order of their NICs.
    #[must_use]
    pub fn adapters(&self) -> &[MachineAdapter] {
        &self.adapters
    }

    pub fn adapter_mut(&mut self, number: usize) -> &mut MachineAdapter {
        &mut self.adapters[number]
    }

    /// Returns the first NIC.
    ///
    /// # Panics
    /// When it is QEMU's.
    #[must_use]
    pub fn nic(&self) -> &Arc<Nic> {
        self.adapters[0].nic()
    }

    /// Returns the first address of the first adapter.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.adapters[0].address
    }

    /// Returns the first adapter, if it has started.
    #[must_use]
    pub fn miniport(&self) -> Option<&Miniport> {
        self.adapters[0].miniport()
    }

    /// Returns the event log entries of the driver.
    #[must_use]
    pub fn event_log(&self) -> Vec<LogEntry> {
        self.host.event_log()
    }

    /// Calls `DriverEntry` and starts the adapters.
    ///
    /// # Errors
    /// `DriverEntry` fails, or an adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        self.enter()?;
        self.start_adapter()
    }

    /// Calls `DriverEntry`. A host can run a driver once.
    ///
    /// # Errors
    /// `DriverEntry` fails.
    pub fn enter(&mut self) -> Result<()> {
        let driver = self.driver.clone();
        let status = self.host.spawn("DriverEntry", move || driver.start()).join()?;
        ensure!(NT_SUCCESS(status), "DriverEntry failed: {status:#010x}");
        Ok(())
    }

    /// Starts the adapters. [`Machine::enter`] must have succeeded.
    ///
    /// # Errors
    /// An adapter does not start.
    pub fn start_adapter(&mut self) -> Result<()> {
        self.adapters.iter_mut().try_for_each(MachineAdapter::start)
    }

    /// Halts the adapters that have started.
    ///
    /// # Errors
    /// An adapter cannot be halted.
    pub fn halt_adapter(&mut self) -> Result<()> {
        self.adapters.iter_mut().try_for_each(MachineAdapter::halt)
    }

    /// Removes the first device, whose adapter has started, and halts the adapter.
    ///
    /// # Errors
    /// The adapter has not started, or the host dies.
    pub fn surprise_remove_adapter(&mut self) -> Result<()> {
        self.adapters[0].surprise_remove()
    }

    /// Halts the adapters and unloads the driver, if they run. Does nothing on a host that is dead.
    ///
    /// # Errors
    /// The adapter cannot be halted, or the host dies.
    pub fn stop(&mut self) -> Result<()> {
        if self.host.is_dead() {
            return Ok(());
        }
        self.halt_adapter()?;
        if self.driver.state() == DriverState::Started {
            let driver = self.driver.clone();
            self.host.spawn("DriverUnload", move || driver.unload()).join()?;
        }
        Ok(())
    }

    /// Runs an NDK consumer of the first adapter, as [`MachineAdapter::consumer`] does.
    pub fn consumer<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce(&Arc<Adapter<SimOs>>) -> T + Send + 'static,
    ) -> Consumer<T> {
        self.adapters[0].consumer(name, body)
    }

    /// Returns the sums of the adapters' counters by name.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (name, value) in self.adapters.iter().flat_map(MachineAdapter::counters) {
            *sums.entry(name).or_default() += value;
        }
        sums
    }
}

impl MachineAdapter {
    /// Returns the simulated NIC.
    ///
    /// # Panics
    /// When the device is QEMU's.
    #[must_use]
    pub fn nic(&self) -> &Arc<Nic> {
        let Device::Simulated(nic) = &self.device else { panic!("a simulated NIC") };
        nic
    }

    /// Sets the link state that a simulated device reports. The link of QEMU's is always up.
    pub fn set_link(&self, up: bool) {
        if let Device::Simulated(nic) = &self.device {
            nic.set_link(up);
        }
    }

    /// Returns the device.
    #[must_use]
    pub fn function(&self) -> Arc<dyn PciFunction> {
        self.device.function()
    }

    /// Connects the device to one end of a link.
    ///
    /// # Errors
    /// The sockets between QEMU and the link cannot be opened.
    ///
    /// # Panics
    /// When it is connected already, or it is QEMU's and the clock is not real time.
    pub fn connect(&mut self, port: Port) -> Result<()> {
        self.device.connect(&self.host, port)
    }

    /// Returns its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the miniport, if it has started.
    #[must_use]
    pub fn miniport(&self) -> Option<&Miniport> {
        self.miniport.as_ref()
    }

    /// Starts the adapter.
    ///
    /// # Errors
    /// The adapter does not start.
    pub fn start(&mut self) -> Result<()> {
        self.miniport = Some(Miniport::start_on(&self.host, &self.device.function())?);
        Ok(())
    }

    /// Halts the adapter, if it has started.
    ///
    /// # Errors
    /// The adapter cannot be halted.
    pub fn halt(&mut self) -> Result<()> {
        match self.miniport.take() {
            Some(miniport) => Ok(miniport.halt()?),
            None => Ok(()),
        }
    }

    /// Removes the device of the adapter that started, and halts the adapter.
    ///
    /// # Errors
    /// The adapter has not started, or the host dies.
    pub fn surprise_remove(&mut self) -> Result<()> {
        let miniport = self.miniport.take().context("the adapter has not started")?;
        Ok(miniport.surprise_remove()?)
    }

    /// Runs an NDK consumer on a thread of the host: opens the adapter, runs `body`, closes the adapter.
    pub fn consumer<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce(&Arc<Adapter<SimOs>>) -> T + Send + 'static,
    ) -> Consumer<T> {
        let (os, miniport) = (Arc::new(SimOs::new(&self.host)), self.miniport.clone());
        let run = move || {
            let miniport = miniport.context("the adapter has not started")?;
            let opened = miniport
                .open_ndk(2, 0)
                .map_err(|status| anyhow!("opening the NDK adapter failed: {status:#010x}"))?;
            let result = {
                // SAFETY: the adapter was opened above. It is closed below, after `body` has dropped all its objects.
                let adapter = unsafe { Adapter::new(&os, pointer(&opened)?) };
                body(&adapter)
            };
            miniport.close_ndk(opened)?;
            Ok(result)
        };
        Consumer(self.host.spawn(name, run))
    }

    /// Returns the counters of the driver's engine by name. Empty if the adapter does not run or the query fails.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        match &self.miniport {
            Some(miniport) if !self.host.is_dead() => counters(miniport),
            _ => BTreeMap::new(),
        }
    }
}

/// Returns the counters of the driver's engine on an adapter by name. Empty if the query fails.
pub(crate) fn counters(miniport: &Miniport) -> BTreeMap<String, u64> {
    let records = miniport
        .query(OID_VIORDMA_COUNTERS, 0)
        .or_else(|refused| miniport.query(OID_VIORDMA_COUNTERS, refused.needed as usize));
    let record = |bytes: &[u8]| {
        let (name, value) = bytes.split_at(COUNTER_NAME);
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        (name, value.try_into().map_or(0, u64::from_le_bytes))
    };
    records.unwrap_or_default().chunks_exact(COUNTER_SIZE).map(record).collect()
}

fn pointer(opened: &NdkAdapter) -> Result<std::ptr::NonNull<ndk_abi::ndk::NDK_ADAPTER>> {
    std::ptr::NonNull::new(opened.as_ptr()).context("the NDK adapter is null")
}

/// A running consumer.
pub struct Consumer<T>(JoinHandle<Result<T>>);

impl<T> Consumer<T> {
    /// Returns whether the consumer has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the consumer has ended and returns its result.
    ///
    /// # Errors
    /// The host was killed, or the adapter could not be opened or closed.
    pub fn join(self) -> Result<T> {
        self.0.join()?
    }
}
