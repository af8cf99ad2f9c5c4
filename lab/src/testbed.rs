// SPDX-License-Identifier: MIT OR Apache-2.0

//! A testbed of two NICs, of two hosts or of one, that a link connects.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use device_sim::{
    Quirks,
    link::{Capture, Faults, Lost, Wire, WireOptions},
    virtio_net::Features,
};
use ndis_sim::{Keyword, netio::Discovery};
use nt_sim::{
    ClockKind, Event, Sim,
    cpu::groups::MAX_GROUP_SIZE,
    host::{TimerResolution, WatchdogLimits},
    nt::trace_sessions::Session,
};

use crate::{
    device::DeviceKind,
    event_log,
    machine::{AdapterOptions, Machine, MachineAdapter, MachineOptions, mtu_for},
    trace::{self, TracedEvent},
};

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
    /// Bits per second of the link in virtual time.
    pub rate: u64,
    /// RoCE path MTU.
    pub path_mtu: u32,
    /// MTU of the NICs; `None` for the smallest that the path MTU needs, at least 1500.
    pub mtu: Option<u16>,
    pub capture: Option<PathBuf>,
    pub verifier: bool,
    pub timers: TimerResolution,
    pub watchdog: WatchdogLimits,
    /// Processors of each host.
    pub processors: u32,
    /// Processors of a processor group, at most 64.
    pub group_size: u32,
    /// Faults of the first host's NIC.
    pub quirks: Quirks,
    /// Faults of the second host's NIC.
    pub peer_quirks: Quirks,
    /// Features that both NICs offer, unless QEMU is the device.
    pub features: Features,
    /// Queue pairs of each NIC, likewise; they also need [`Features::MQ`].
    pub pairs: u16,
    /// Interrupt messages of each NIC, likewise; 0: it has no MSI-X; `None` for as many as it has use for.
    pub messages: Option<u16>,
    /// Largest sizes of the receive and of the transmit queues of each NIC, likewise.
    pub queue_sizes: [u16; 2],
    /// The session by which each host records the driver's trace; `None` for no record.
    pub trace: Option<Session>,
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
    /// The device of the second NIC, if it is another one.
    pub peer_device: Option<DeviceKind>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            real_time: false,
            faults: Faults::NONE,
            capacity: WireOptions::immediate().capacity,
            rate: 10_000_000_000,
            path_mtu: 4096,
            mtu: None,
            capture: None,
            verifier: true,
            timers: TimerResolution::Exact,
            watchdog: WatchdogLimits::default(),
            processors: 2,
            group_size: MAX_GROUP_SIZE,
            quirks: Quirks::default(),
            peer_quirks: Quirks::default(),
            features: Features::DEFAULT,
            pairs: 1,
            messages: None,
            queue_sizes: [256; 2],
            trace: None,
            keywords: Vec::new(),
            subnets: vec![(Ipv4Addr::new(10, 0, 0, 0).into(), 24)],
            discovery: Discovery::Simulated,
            one_host: false,
            device: DeviceKind::Simulated,
            peer_device: None,
        }
    }
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
        let peer_device = options.peer_device.as_ref().unwrap_or(&options.device);
        let is_simulated =
            [&options.device, peer_device].iter().all(|kind| matches!(kind, DeviceKind::Simulated));
        ensure!(is_simulated || options.real_time, "QEMU's device needs real time");
        // What simulated discovery finds is at the end of a link in this process.
        let discovery = if is_simulated { options.discovery } else { Discovery::OnWire };
        let (clock, wire) = if options.real_time {
            (ClockKind::Threaded, WireOptions::immediate())
        } else {
            (
                ClockKind::Deterministic { seed: options.seed },
                WireOptions { rate: Some(options.rate), ..WireOptions::ten_gigabit() },
            )
        };
        let mut sim = ndis_sim::builder().clock(clock).build();
        let wire = WireOptions { capacity: options.capacity, ..wire };
        let wire = Wire::new(wire.with_seed(options.seed).with_faults(options.faults));
        let mtu = options.mtu.map_or_else(|| mtu_for(options.path_mtu), Ok)?;
        let adapter = |number: u8| {
            let of_subnet = |&(subnet, prefix): &(IpAddr, u8)| (host_address(subnet, number + 1), prefix);
            AdapterOptions {
                mac: [0x02, 0, 0, 0, 0, number + 1],
                addresses: options.subnets.iter().map(of_subnet).collect(),
                device: if number == 0 { options.device.clone() } else { peer_device.clone() },
                quirks: if number == 0 { options.quirks } else { options.peer_quirks },
                features: options.features,
                pairs: options.pairs,
                messages: options.messages,
                queue_sizes: options.queue_sizes,
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
                group_size: options.group_size,
                keywords: options.keywords.clone(),
                discovery,
            };
            Machine::new(&mut sim, image, &machine)
        });
        let mut machines = machines.collect::<Result<Vec<_>>>()?;
        if let Some(session) = options.trace {
            for machine in &machines {
                machine.host().start_trace(trace::provider(), session);
            }
        }
        let adapters = machines.iter_mut().flat_map(Machine::adapters_mut);
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
        let mut adapters = self.machines.iter().flat_map(Machine::adapters);
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

    /// Returns the event log entries of both drivers as lines: host, event.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let of = |machine: &Machine| {
            let name = machine.host().name().to_owned();
            machine.event_log().into_iter().map(move |entry| format!("{name}: {}", event_log::text(&entry)))
        };
        self.machines.iter().flat_map(of).collect()
    }

    /// Returns what the hosts have recorded of the driver's trace, by time.
    #[must_use]
    pub fn trace(&self) -> Vec<TracedEvent> {
        let hosts: Vec<_> = self.machines.iter().map(|machine| &**machine.host()).collect();
        TracedEvent::of(&hosts)
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

/// Returns the address of a subnet that ends with `number`.
fn host_address(subnet: IpAddr, number: u8) -> IpAddr {
    match subnet {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | u32::from(number)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | u128::from(number)).into(),
    }
}
