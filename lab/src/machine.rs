// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulated hosts with virtio NICs and the driver.
#![allow(unsafe_code, reason = "asks the system")]

use std::{collections::BTreeMap, net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use device_sim::{Nic, NicOptions, PciFunction, Quirks, link::Port, virtio_net::Features};
use ndis_sim::{IpHost as _, Keyword, LogEntry, Miniport, NdisHost as _, NdkAdapter, netio::Discovery};
use ndk_abi::nt::NT_SUCCESS;
use ndk_consumer::Adapter;
use nt_sim::{
    Driver, DriverOptions, Host, JoinHandle, Sim,
    cpu::groups::MAX_GROUP_SIZE,
    driver::DriverState,
    host::{HostOptions, TimerResolution, WatchdogLimits},
};
use qemu_device::QemuNic;

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
    /// Interrupt messages of the NIC, likewise; 0: it has no MSI-X; `None` for one for each queue and one for the configuration.
    pub messages: Option<u16>,
    /// Largest sizes of its receive and of its transmit queues, likewise.
    pub queue_sizes: [u16; 2],
}

impl AdapterOptions {
    /// A simulated NIC with all features.
    #[must_use]
    pub fn new(mac: [u8; 6], addresses: Vec<(IpAddr, u8)>) -> Self {
        Self {
            mac,
            addresses,
            device: DeviceKind::Simulated,
            quirks: Quirks::default(),
            features: Features::DEFAULT,
            pairs: 1,
            messages: None,
            queue_sizes: [256; 2],
        }
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
    /// Processors of a processor group.
    pub group_size: u32,
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
            group_size: MAX_GROUP_SIZE,
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

/// Returns the smallest MTU that the path MTU needs, but at least 1500.
pub(crate) fn mtu_for(path_mtu: u32) -> Result<u16> {
    Ok(u16::try_from(path_mtu + OVERHEAD)?.max(1500))
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
            group_size: options.group_size,
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
            let [receive, transmit] = adapter.queue_sizes;
            nic.queue_sizes = [receive, transmit, nic.queue_sizes[2]];
            // The control queue has none.
            let enough = nic.vectors.max(adapter.pairs.saturating_mul(2).saturating_add(1));
            nic.vectors = adapter.messages.unwrap_or(enough);
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

    /// Returns the adapters, for changes.
    pub fn adapters_mut(&mut self) -> &mut [MachineAdapter] {
        &mut self.adapters
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

    /// Returns the warnings and errors that the driver has written to the event log.
    #[must_use]
    pub fn event_log(&self) -> Vec<LogEntry> {
        self.entries(|entry| !entry.is_information())
    }

    /// Returns what the driver has written to the event log for information.
    #[must_use]
    pub fn information(&self) -> Vec<LogEntry> {
        self.entries(LogEntry::is_information)
    }

    fn entries(&self, wanted: impl Fn(&LogEntry) -> bool) -> Vec<LogEntry> {
        self.host.event_log().into_iter().filter(|entry| wanted(entry)).collect()
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

    /// Returns QEMU's device.
    ///
    /// # Panics
    /// When the device is simulated.
    #[must_use]
    pub fn qemu(&self) -> &Arc<QemuNic> {
        let Device::Qemu { nic, .. } = &self.device else { panic!("QEMU's device") };
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
                .ndk()
                .open(2, 0)
                .map_err(|status| anyhow!("opening the NDK adapter failed: {status:#010x}"))?;
            let result = {
                // SAFETY: the adapter was opened above. It is closed below, after `body` has dropped all its objects.
                let adapter = unsafe { Adapter::new(&os, pointer(&opened)?) };
                body(&adapter)
            };
            miniport.ndk().close(opened)?;
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

impl<T: 'static> Consumer<T> {
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
