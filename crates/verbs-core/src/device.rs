// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices.

use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;

use fallible::Arc as EngineArc;
use parking_lot::Mutex;
use roce::{Config, Engine, NumberPrefix, ReadLimits, Timing};
use roce_wire::{MacAddr, Path, PathMtu};

use crate::Lock;
use crate::adapter::Adapter;
use crate::addresses::{gid, interface_index, interface_mtu};
use crate::environment::Settings;
use crate::error::Error;
use crate::limits;
use crate::link::{Capture, Link, MAC, SLOT_BITS};
use crate::{progress, sys};

/// Minimum times without an answer before a packet is sent again: a peer that is not scheduled for a time slice or two has lost nothing.
const MIN_RESEND: Duration = Duration::from_millis(20);
const MIN_PROBE: Duration = Duration::from_millis(10);

/// Bytes of IPv6, UDP, BTH, AtomicETH, immediate data and ICRC around the payload of a frame.
const HEADERS: u32 = 40 + 8 + 12 + 28 + 4 + 4;

/// A device with one address. The progress thread runs as long as it exists.
pub struct Device {
    address: IpAddr,
    adapter: Arc<Adapter>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Statistics are to be printed.
    reports: AtomicBool,
    /// The process that has the thread.
    process: u32,
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device of an address. Its frames are recorded in `capture`.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] if as many processes as there are slots have opened it; [`Error::System`] if it is not an address of this host,
    /// or there can be no packet socket; [`Error::NoDevice`] if the interface is gone; [`Error::OutOfMemory`].
    pub fn open(
        address: IpAddr,
        settings: &Settings,
        capture: Option<&Arc<Capture>>,
    ) -> Result<Arc<Self>, Error> {
        let interface =
            settings.interface.as_deref().map(|name| sys::interface_index(name).ok_or(Error::NoDevice));
        let link = Link::open(address, interface.transpose()?, settings, capture)?;
        let config = config(address, &link);
        let engine: EngineArc<Engine<Lock>> = Engine::try_new(config)?;
        engine.use_large_pages(sys::request_large_pages);
        engine.connections().set_addresses(&[address]).map_err(|_| Error::OutOfMemory)?;
        let adapter = Arc::new(Adapter::new(engine, link)?);
        let thread = Mutex::new(Some(progress::start(Arc::clone(&adapter))?));
        let process = std::process::id();
        Ok(Arc::new(Self { address, adapter, thread, reports: settings.statistics.into(), process }))
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the largest path MTU of which frames fit packets of the interface.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        path_mtu(interface_mtu(self.address))
    }

    /// Returns the index of the interface that has the address; 0 if that is not known.
    #[must_use]
    pub fn interface_index(&self) -> u32 {
        interface_index(self.address)
    }

    /// Receives, transmits and delivers what is there.
    pub fn drive(&self) {
        self.adapter.drive();
    }

    pub(crate) fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    pub(crate) fn engine(&self) -> &Engine<Lock> {
        &self.adapter.engine
    }

    /// Returns the path from this device to an address.
    pub(crate) fn path_to(&self, remote: IpAddr, traffic_class: u8) -> Path {
        Path { traffic_class, ..Path::new(MAC, MAC, self.address, remote) }
    }

    /// Calls `each` with the name of each counter of the engine, the link and the progress thread, and its value.
    pub fn each_counter(&self, mut each: impl FnMut(&'static str, u64)) {
        self.engine().each_total(&mut each);
        self.adapter.link.each_counter(&mut each);
        each("progress_sleeps", self.adapter.sleeps());
    }
}

impl Device {
    /// Returns whether this process has opened the device: a child of that process has a copy without the progress thread.
    pub fn is_of_this_process(&self) -> bool {
        std::process::id() == self.process
    }

    /// Begins to end the connections of a process that ends: their peers need not wait for an answer.
    pub fn leave(&self) {
        self.adapter.leave();
    }

    /// Returns whether the connections are ended after [`Device::leave`].
    pub fn has_left(&self) -> bool {
        self.adapter.has_left()
    }

    /// Prints the statistics to stderr, once, if the settings ask for them.
    pub fn report(&self) {
        if !self.reports.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut counters = vec![format!("viordma: {}:", self.address)];
        self.each_counter(|name, value| {
            if value > 0 {
                counters.push(format!("{name}={value}"));
            }
        });
        // A program may have closed it.
        let _ = writeln!(std::io::stderr(), "{}", counters.join(" "));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // The thread is not there, and what the adapter would wake is the parent's.
            core::mem::forget(self.thread.lock().take());
            return;
        }
        self.adapter.stop();
        if let Some(thread) = self.thread.lock().take()
            // The last reference may be one that an event held while this thread delivered it.
            && thread.thread().id() != std::thread::current().id()
        {
            drop(thread.join());
        }
        self.report();
    }
}

/// Returns the GUID of the device of an address: locally administered, from the last bytes of the GID.
#[must_use]
pub fn guid(address: IpAddr) -> u64 {
    let mut mac = MacAddr([0; 6]);
    mac.0.copy_from_slice(&gid(address)[10..]);
    mac.0[0] = mac.0[0] & !1 | 2;
    mac.eui64()
}

fn config(address: IpAddr, link: &Link) -> Config {
    let mut config = Config::new(guid(address) ^ u64::from(link.slot()), sys::random_seed());
    config.loopback = true;
    config.relax = sys::yield_processor;
    // Slots are fewer than the prefix can number.
    config.number_prefix = NumberPrefix::new(link.slot(), SLOT_BITS).unwrap_or(NumberPrefix::NONE);
    config.max_qps = limits::QUEUE_PAIRS;
    config.max_regions = limits::REGIONS;
    config.max_message = limits::MESSAGE;
    config.max_reads = ReadLimits { inbound: limits::READS, outbound: limits::READS };
    config.window = link.window();
    config.max_in_flight = config.window * PathMtu::Bytes4096.bytes() as u32;
    config.timing = Timing { min_resend: MIN_RESEND, min_probe: MIN_PROBE, ..Timing::default() };
    config
}

/// Returns the largest path MTU of which frames fit packets of `bytes`.
fn path_mtu(bytes: u32) -> PathMtu {
    [PathMtu::Bytes4096, PathMtu::Bytes2048, PathMtu::Bytes1024, PathMtu::Bytes512]
        .into_iter()
        .find(|mtu| mtu.bytes() as u32 + HEADERS <= bytes)
        .unwrap_or(PathMtu::Bytes256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_mtu_follows_the_interface() {
        for (bytes, mtu) in [
            (65_536, PathMtu::Bytes4096),
            (4192, PathMtu::Bytes4096),
            (4191, PathMtu::Bytes2048),
            (1500, PathMtu::Bytes1024),
            (576, PathMtu::Bytes256),
        ] {
            assert_eq!(path_mtu(bytes), mtu, "{bytes}");
        }
    }

    #[test]
    fn a_guid_is_locally_administered_and_of_its_address() {
        assert_eq!(guid([127, 0, 0, 1].into()), 0xFEFF_7FFF_FE00_0001);
        assert_ne!(guid([127, 0, 0, 1].into()), guid([127, 0, 0, 2].into()));
    }
}
