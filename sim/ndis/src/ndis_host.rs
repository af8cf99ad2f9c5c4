// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods that NDIS adds to a simulated Windows host.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use device_sim::{Bus, Nic, NicOptions, PciFunction};
use ndk_abi::nt::DRIVER_OBJECT;
use nt_sim::{Host, guest::Guest};

use crate::{
    adapter::{self, Adapter},
    bus, config, driver,
    event_log::{self, LogEntry},
    filter_module::BOUND_FILTERS,
    interface::{self, Interface},
    interrupt,
    keyword::Keyword,
    nbl,
    ndk_objects::NDK_OBJECTS,
    ndk_state,
};

/// A host's NICs, adapters, registry keywords and event log.
pub trait NdisHost {
    /// Plugs a NIC into the host. The driver meets it when [`Miniport::start`](crate::Miniport::start) is
    /// called.
    ///
    /// # Panics
    /// When the host's memory cannot be mapped for it.
    fn plug(self: &Arc<Self>, options: NicOptions) -> Arc<Nic>;

    /// Plugs in, as [`NdisHost::plug`] does, a device that `make` creates from the host's bus, its memory, and the size of that in bytes.
    ///
    /// # Errors
    /// That of `make`, and when a file descriptor cannot be duplicated.
    fn plug_function<F: PciFunction + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(Arc<dyn Bus>, File, usize) -> io::Result<Arc<F>>,
    ) -> io::Result<Arc<F>>;

    /// Returns the NICs in the host, in the order they were plugged in.
    #[must_use]
    fn nics(&self) -> Vec<Arc<dyn PciFunction>>;

    /// Cuts the power and the cables: from now on nothing the host sends appears on a link.
    fn kill(&self);

    /// Returns the adapters of the host, in the order they were started.
    #[must_use]
    fn adapters(&self) -> Vec<Arc<Adapter>>;

    /// Accounts for the objects below NDK adapters that are opened from now on: [`NdkRequests::open_objects`]. Objects
    /// that are closed twice are reported.
    ///
    /// [`NdkRequests::open_objects`]: crate::NdkRequests::open_objects
    fn track_ndk_objects(&self);

    /// Returns the driver objects of the miniport drivers, in the order they registered.
    #[must_use]
    fn miniport_drivers(&self) -> Vec<Guest<DRIVER_OBJECT>>;

    /// Returns the interface of a NIC.
    ///
    /// # Panics
    /// When the NIC is not in the host.
    #[must_use]
    fn interface(&self, nic: &Arc<impl PciFunction + ?Sized>) -> Arc<Interface>;

    /// Sets the index of a NIC's interface. To be called before its adapter starts.
    ///
    /// # Panics
    /// When the index is 0 or that of another interface, or the NIC is not in the host.
    fn set_interface_index(&self, nic: &Arc<impl PciFunction + ?Sized>, index: u32);

    /// Sets the number of frames that a receive DPC may indicate (`MaxNblsToIndicate`), 64 at first; `None` for no limit. For
    /// the DPCs that run from now on.
    fn set_receive_limit(&self, limit: Option<u32>);

    /// Has each miniport with a line disable or enable it, as NDIS does for diagnostics.
    ///
    /// # Panics
    /// When the host dies.
    fn set_line_enabled(self: &Arc<Self>, is_enabled: bool);

    /// Sets whether the system enables bus mastering of the devices that it starts, as Windows' PCI bus does, or leaves that to
    /// drivers, as at first: a driver that does it itself depends on neither.
    fn set_bus_mastering(&self, by_system: bool);

    /// Sets whether MDLs of received NET_BUFFERs may describe more bytes than their data has, which is reported at first: NDIS allows
    /// it, but the iSCSI initiator of Server 2025 reads them wrongly then.
    fn allow_long_mdls(&self, are_allowed: bool);

    /// Sets whether consumers close their NDK adapters before a miniport is halted, as if the system asked them to, or stay until the miniport
    /// reports that it disables NDK, as at first. No page says what Windows does: a miniport has to halt either way.
    fn close_ndk_before_halt(&self, are_closed: bool);

    /// Has NDIS attach a module of the filter driver with this service name to each adapter, as the INF of a driver does: when the adapter
    /// starts, or when the driver registers.
    fn bind_filter(&self, service: &str);

    /// Sets a keyword of every adapter, e.g. `"*NetworkDirect"`.
    /// [`Interface::set_keyword`] sets it for one adapter.
    fn set_keyword(&self, name: &str, value: impl Into<Keyword>);

    /// Returns the value of a keyword of the first adapter.
    ///
    /// # Panics
    /// When the host has no NIC.
    #[must_use]
    fn keyword(&self, name: &str) -> Option<Keyword>;

    /// Returns whether a driver has read a keyword of an adapter. Names of no effect, such as mistyped ones, are not read.
    fn has_read_keyword(&self, name: &str) -> bool;

    /// Returns the value of a keyword of an adapter.
    ///
    /// # Panics
    /// When the NIC is not in the host.
    #[must_use]
    fn keyword_of(&self, nic: &Arc<impl PciFunction + ?Sized>, name: &str) -> Option<Keyword>;

    /// Returns what the image wrote to the event log so far.
    #[must_use]
    fn event_log(&self) -> Vec<LogEntry>;
}

impl NdisHost for Host {
    fn plug(self: &Arc<Self>, options: NicOptions) -> Arc<Nic> {
        bus::plug(self, options)
    }

    fn plug_function<F: PciFunction + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(Arc<dyn Bus>, File, usize) -> io::Result<Arc<F>>,
    ) -> io::Result<Arc<F>> {
        bus::plug_function(self, make)
    }

    fn nics(&self) -> Vec<Arc<dyn PciFunction>> {
        bus::nics(self)
    }

    fn kill(&self) {
        bus::kill(self);
    }

    fn adapters(&self) -> Vec<Arc<Adapter>> {
        adapter::adapters(self)
    }

    fn set_receive_limit(&self, limit: Option<u32>) {
        interrupt::set_receive_limit(self, limit);
    }

    fn set_line_enabled(self: &Arc<Self>, is_enabled: bool) {
        let host = self.clone();
        let call = move || interrupt::set_line_enabled(&host, is_enabled);
        self.spawn("diagnostics", call).join().expect("the host lives");
    }

    fn set_bus_mastering(&self, by_system: bool) {
        self.state(&bus::BUS_MASTERING).store(by_system, Relaxed);
    }

    fn allow_long_mdls(&self, are_allowed: bool) {
        self.state(&nbl::LONG_MDLS).store(are_allowed, Relaxed);
    }

    fn close_ndk_before_halt(&self, are_closed: bool) {
        self.state(&ndk_state::CLOSED_BEFORE_HALT).store(are_closed, Relaxed);
    }

    fn bind_filter(&self, service: &str) {
        self.state(&BOUND_FILTERS).lock().push(service.to_owned());
    }

    fn set_keyword(&self, name: &str, value: impl Into<Keyword>) {
        config::set_keyword(self, name, value);
    }

    fn keyword(&self, name: &str) -> Option<Keyword> {
        config::keyword(self, &interface::first(self), name)
    }

    fn has_read_keyword(&self, name: &str) -> bool {
        config::is_read(self, name)
    }

    fn keyword_of(&self, nic: &Arc<impl PciFunction + ?Sized>, name: &str) -> Option<Keyword> {
        config::keyword(self, &interface::of_nic(self, nic), name)
    }

    fn track_ndk_objects(&self) {
        self.state(&NDK_OBJECTS).enable();
    }

    fn miniport_drivers(&self) -> Vec<Guest<DRIVER_OBJECT>> {
        driver::drivers(self).iter().map(|driver| driver.object).collect()
    }

    fn interface(&self, nic: &Arc<impl PciFunction + ?Sized>) -> Arc<Interface> {
        interface::of_nic(self, nic)
    }

    fn set_interface_index(&self, nic: &Arc<impl PciFunction + ?Sized>, index: u32) {
        interface::set_index(self, nic, index);
    }

    fn event_log(&self) -> Vec<LogEntry> {
        self.state(&event_log::LOG).lock().clone()
    }
}
